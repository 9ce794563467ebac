"""A split, a loss and metrics of one's own, and unseen clients, have the same bits on Ray as serially."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import raffed
from raffed import Data, Runtime
from tests.own.own_code import federated, write

EVERYTHING = replace(
    federated(metrics="./mylab.py:right,./mylab.py:nll", unseen_clients=0.34),
    data=Data(split="./mylab.py:halves", split_args={"clients": 6}, local_test=0.2, validation=0.2),
    loss="./mylab.py:balanced",
    method="map",
)


@pytest.mark.slow
def test_ray_and_the_serial_backend_agree_bit_for_bit(lab: Path) -> None:
    write(lab)
    serial = raffed.run(EVERYTHING)
    on_ray = raffed.run(replace(EVERYTHING, runtime=Runtime(execution="ray", actors=2)), out="run")
    assert on_ray.hashes == serial.hashes
    assert raffed.verify("run").ok
