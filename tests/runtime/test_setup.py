"""What is known of a run before it starts: how many take part, how often one is expected to, what a
global model is scored on.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from raffed import Data, Federation, RunConfig
from raffed.runtime.network_setup import make_spec
from raffed.runtime.setup import prepare_run


@pytest.mark.parametrize(
    ("share", "clients", "count"),
    [(0.29, 100, 29), (0.2, 100, 20), (0.01, 3550, 36), (0.001, 100, 1), (1.0, 7, 7)],
)
def test_a_share_of_the_clients_is_rounded_not_cut(share: float, clients: int, count: int) -> None:
    """docs/papers/map.md §E1: int(0.29 · 100) = 28."""
    assert Federation(participation=share).participants(clients) == count


@pytest.mark.parametrize(
    ("share", "rounds", "visits"), [(0.2, 150, 30), (1.0, 10, 10), (0.29, 100, 29), (0.1, 4, 1)]
)
def test_a_client_is_expected_in_its_share_of_the_rounds_at_least_once(
    share: float, rounds: int, visits: int
) -> None:
    """docs/papers/map.md §2.1: max(int(Q·T), 1), 30 in MAP's tables, 10 in its Fig. 8."""
    setup = prepare_run(RunConfig(data=Data(split="iid:100"), federation=Federation(rounds, share)))
    assert make_spec(setup.data, 5).expected_visits == visits


@pytest.mark.parametrize(
    ("split", "rounds_per_cycle"), [("stages:4:3:3:if4", 3), ("stages:4:3:3:if4:outer", 1), ("iid:4", 1)]
)
def test_stages_in_inner_order_take_turns_and_others_do_not(split: str, rounds_per_cycle: int) -> None:
    """docs/papers/gldp.md §3: a round of the paper is M exchanges."""
    config = RunConfig(data=Data(split=split), federation=Federation(6))
    assert make_spec(prepare_run(config).data, 5).rounds_per_cycle == rounds_per_cycle


def test_without_a_test_set_of_its_own_a_global_model_is_scored_on_all_local_test_parts() -> None:
    """docs/papers/map.md §E6, Fig. 12: the global test is the union of the local ones, as FEMNIST has no
    other.
    """
    setup = prepare_run(RunConfig(data=Data(split="incomplete:10", local_test=0.2)))
    own, rows = setup.data.scored_rows["test"]
    assert (own, len(rows)) == ("test", len(setup.dataset.y_test))
    local_only = replace(setup.dataset, x_test=setup.dataset.x_test[:0], y_test=setup.dataset.y_test[:0])
    without = replace(setup, dataset=local_only)
    pool, rows = without.data.scored_rows["test"]
    assert pool == "train"
    np.testing.assert_array_equal(np.sort(rows), np.sort(np.concatenate(setup.partition.test)))
    assert not set(rows.tolist()) & {int(i) for part in setup.partition.train for i in part}
    images, labels = without.data.test_set()
    np.testing.assert_array_equal(labels, setup.dataset.y[rows])
    assert len(images) == len(labels) > 100
