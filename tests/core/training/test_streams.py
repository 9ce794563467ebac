"""The random numbers of a training phase have streams of their own for every round, client and pass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from raffed.core import seeds
from raffed.core.method import Method
from raffed.core.parts import Pass
from raffed.core.training.session import one_by_one
from raffed.core.training.task import TrainingPhase
from tests.tiny import NOISY, Tiny, network


def test_augmentation_and_dropout_draw_from_the_stream_of_the_round_the_client_and_the_pass() -> None:
    """docs/design.md §2: a seed is made of (seed, purpose, round, client), and here of the pass as well."""
    tiny = Tiny(
        Method("Two passes", passes=(Pass(), Pass())), net=network(dropout=0.3), augment=NOISY, seed=7
    )
    used: list[tuple[int, int]] = []

    def execute(net: Any, task: Any, phases: Sequence[TrainingPhase], augmentation: Any) -> list[Any]:
        for phase in phases:
            assert phase.augment is not None
            assert phase.dropout is not None
            used.append((phase.augment.initial_seed(), phase.dropout.initial_seed()))
        return one_by_one(net, task, phases, augmentation)

    tiny.session = replace(tiny.session, execute=execute)
    for _ in range(2):
        tiny.step((1, 3))
    keys = [(round, client, number) for round in range(2) for client in (1, 3) for number in range(2)]
    assert used == [(seeds.seed(7, "augment", *key), seeds.seed(7, "dropout", *key)) for key in keys]
