"""The hash by which runs are compared covers every number of a model."""

from __future__ import annotations

import hashlib
import struct

import torch

from raffed.core.params import Params, State
from raffed.runs.checkpoint import weights_sha256


def test_the_hash_of_a_model_covers_names_weights_and_batchnorm_s_statistics() -> None:
    model = State(Params({"head": torch.tensor([1.0, -2.0])}), Params({"mean": torch.tensor([0.5])}))
    covered = b"head" + struct.pack("<2f", 1.0, -2.0) + b"mean" + struct.pack("<f", 0.5)
    assert weights_sha256(model) == hashlib.sha256(covered).hexdigest()
