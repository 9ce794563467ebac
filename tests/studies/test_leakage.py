"""The leakage study: attacks in processes of their own, and what cannot be attacked."""

from __future__ import annotations

import pytest
import torch
from raffed.reproductions.studies.leakage import FIGURE_10, carried_out

from raffed.attacks.protocol import Effort, leakage
from raffed.config.run import RunConfig
from raffed.errors import UsageError

IMAGE = torch.linspace(0, 1, 64).reshape(1, 8, 8)
TASKS = [
    (setting, IMAGE, 3, 10, i, 0, Effort(iterations=2, restarts=1)) for i, setting in enumerate(FIGURE_10[:2])
]


@pytest.mark.more
def test_in_two_processes_attacks_have_the_outcomes_of_one_in_the_order_asked_for() -> None:
    alone, beside = list(carried_out(TASKS, 1, 1)), list(carried_out(TASKS, 2, 1))
    assert len(alone) == len(TASKS)
    for one, two in zip(alone, beside, strict=True):
        assert one.attempt.trace == two.attempt.trace
        assert torch.equal(one.attempt.image, two.attempt.image)
        assert (one.label, one.said) == (two.label, two.said)


def test_what_cannot_be_attacked_is_refused() -> None:
    with pytest.raises(UsageError, match="exactly one step"):
        leakage(RunConfig(method="pfedme"), images=1, iterations=1)
    with pytest.raises(UsageError, match="images"):
        leakage(RunConfig(), images=0)
