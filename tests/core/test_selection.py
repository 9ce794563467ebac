"""The draws of participants by each rule, with expected values from probability or by counting."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest

from raffed.config.federation import PowerOfChoice, RoundRobin, Rule, Size
from raffed.core import seeds
from raffed.errors import UsageError
from raffed.federation.selection import Draw, chosen, chosen_by_own

DRAWS = 6000


def draw(
    sizes: Sequence[int], count: int, round: int = 0, losses: Sequence[float] = (), seed: int = 0
) -> Draw:
    generator = seeds.rng(seed, "sampling", round)
    return Draw(round, sizes, count, generator, lambda clients: [losses[client] for client in clients])


def frequencies(rule: Rule, sizes: Sequence[int], count: int) -> list[float]:
    """How often each client stands in a draw, as a share of DRAWS rounds."""
    found = Counter(one for round in range(DRAWS) for one in chosen(rule, draw(sizes, count, round)))
    return [found[client] / DRAWS for client in range(len(sizes))]


def test_with_replacement_a_client_is_expected_in_proportion_to_its_size() -> None:
    """Two draws at shares 1/6, 2/6 and 3/6; within 4 standard deviations of 6000 rounds."""
    found = frequencies(Size(), (1, 2, 3), 2)
    for share, p in zip(found, (1 / 6, 2 / 6, 3 / 6), strict=True):
        assert abs(share - 2 * p) < 4 * np.sqrt(2 * p * (1 - p) / DRAWS)


def test_without_replacement_inclusion_is_not_proportional() -> None:
    """Of sizes 1, 2, 3 two are drawn one after the other: 0.4166667, 0.7333333 and 0.85."""
    found = frequencies(Size(replacement=False), (1, 2, 3), 2)
    for share, p in zip(found, (0.4166667, 0.7333333, 0.85), strict=True):
        assert abs(share - p) < 4 * np.sqrt(p * (1 - p) / DRAWS)


def test_power_of_choice_takes_the_candidates_with_the_largest_losses() -> None:
    """Clients 1, 2, 3 are the only ones with samples; of the losses 0.5, 1.5, 1 the two largest count.

    An index into all clients instead of the candidates would give 1 and 2.
    """
    sizes, losses = (0, 10, 10, 10), (2.0, 0.5, 1.5, 1.0)
    assert chosen(PowerOfChoice(candidates=3), draw(sizes, 2, losses=losses)) == [2, 3]


def test_round_robin_visits_every_client_once_in_a_turn() -> None:
    """Six rounds of two of four: three turns, which wrap around the end."""
    found = [chosen(RoundRobin(), draw([1] * 5, 2, round)) for round in range(5)]
    assert found == [[0, 1], [2, 3], [4, 0], [1, 2], [3, 4]]


def test_a_rule_of_one_s_own_gets_what_its_signature_names() -> None:
    def every(sizes: Sequence[int], count: int, offset: int = 0) -> list[int]:
        return [(offset + i) % len(sizes) for i in range(count)]

    assert chosen_by_own("mine", every, {"offset": 3}, draw([1] * 4, 2)) == [3, 0]


@pytest.mark.parametrize("wrong", [[], [0, 0], [4], [-1]])
def test_a_rule_of_one_s_own_must_return_different_clients(wrong: list[int]) -> None:
    with pytest.raises(UsageError, match="as numbers from 0 to 3"):
        chosen_by_own("mine", lambda: wrong, {}, draw([1] * 4, 2))
