"""FedGELA (Fan et al., NeurIPS 2023): a frozen simplex ETF, scaled by the client's class shares at home."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from raffed.core.losses import cross_entropy
from raffed.core.method import Method
from raffed.methods.common import BODY_ONLY, KeepHead
from raffed.methods.fedgela import ScaledByShares, fedgela, shares
from tests.tiny import Tiny, bare_context, client_data, leaves, network, same_bits

COUNTS = torch.tensor([80, 15, 0, 5])
LOGITS = torch.tensor([[1.0, 0.5, -0.5, 0.0]]) @ (math.sqrt(4 / 3) * (torch.eye(4) - 1 / 4))


def test_the_worked_example_has_the_sheet_s_logits_and_scales() -> None:
    """C = 4, U = I, h = (1, .5, −.5, 0), n = (80, 15, 0, 5)."""
    wanted = torch.tensor([[0.8660254, 0.2886751, -0.8660254, -0.2886751]])
    torch.testing.assert_close(LOGITS, wanted, rtol=0, atol=1e-6)
    torch.testing.assert_close(shares(COUNTS), torch.tensor([3.2, 0.6, 0.0, 0.2]), rtol=0, atol=1e-6)


@pytest.mark.parametrize(("temperature", "loss"), [(1.0, 0.1790406), (0.2, 3.9613e-6)])
def test_the_worked_example_has_the_sheet_s_loss(temperature: float, loss: float) -> None:
    head, k = ScaledByShares(temperature), bare_context(class_counts=COUNTS)
    found = cross_entropy(head.logits(LOGITS.double(), k), torch.tensor([0]))
    assert float(found) == pytest.approx(loss, rel=1e-4)


def test_a_missing_class_has_the_logit_0_and_is_not_masked() -> None:
    k = bare_context(class_counts=COUNTS)
    assert float(ScaledByShares(0.2).logits(LOGITS, k)[0, 2]) == 0.0


def test_with_equal_counts_and_temperature_1_it_is_fedavg_under_a_frozen_etf_bit_for_bit() -> None:
    frozen = Method("ETF", passes=BODY_ONLY, server=KeepHead(), network=fedgela().network)
    data = [client_data(12, (0, 1, 2), seed) for seed in range(4)]
    mine, plain = (
        Tiny(one, net=network(norm=True), data=data).run(3) for one in (fedgela(temperature=1.0), frozen)
    )
    assert same_bits(mine.everything(), plain.everything())


def test_unequal_counts_or_another_temperature_make_another_run() -> None:
    data = [client_data(12, (0, 1, 2), seed) for seed in range(4)]
    one, other = (Tiny(fedgela(temperature=t), data=data).run(2) for t in (1.0, 0.2))
    assert not same_bits(one.server.w, other.server.w)


def test_the_frame_keeps_its_bits() -> None:
    tiny = Tiny(fedgela(), net=network(norm=True))
    start = tiny.server.w["head.weight"]
    torch.testing.assert_close(start @ start.T, torch.eye(3) * 1.5 - 0.5, rtol=0, atol=1e-6)
    assert same_bits(tiny.run(3).server.w["head.weight"], start)


def test_the_client_s_model_has_scaled_rows_and_the_global_one_has_not() -> None:
    tiny = Tiny(fedgela(), net=network()).run(1, [0, 1, 2, 3])
    done = tiny.last[1]  # 5 samples of class 1 and 5 of class 2
    own, frame = done.personal_state(tiny.method).w, tiny.server.w["head.weight"]
    torch.testing.assert_close(own["head.weight"], frame * torch.tensor([[0.0], [1.5], [1.5]]))
    assert same_bits(own["body.fc.weight"], done.trained.w["body.fc.weight"])


def test_a_batch_of_one_sample_is_trained_on() -> None:
    """BatchNorm over one sample's features has no variance, so the running statistics normalise it."""
    tiny = Tiny(fedgela(temperature=1.0), data=[replace(client_data(5, (0, 1, 2), s)) for s in range(4)])
    tiny.run(2, [0, 1, 2, 3])
    assert all(bool(torch.isfinite(t).all()) for t in leaves(tiny.server))
