"""What is known and said of a run before it starts: who takes part, what is scored, the network that its
method requires, and warnings about settings that are valid but probably unintended.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from raffed import Data, Federation, Model, RunConfig
from raffed.errors import UsageError
from raffed.runs.federation import warn
from raffed.runtime.run_method import network_of
from raffed.runtime.setup import prepare_run
from raffed.runtime.setup_model import make_spec
from tests.runtime.conftest import small


@pytest.mark.parametrize(
    ("share", "clients", "count"),
    [(0.29, 100, 29), (0.01, 3550, 36), (0.001, 100, 1), (1.0, 7, 7)],
)
def test_a_share_of_the_clients_is_rounded_not_cut(share: float, clients: int, count: int) -> None:
    """docs/papers/map.md §E1: int(0.29 · 100) = 28."""
    assert Federation(participation=share).participants(clients) == count


@pytest.mark.parametrize(("share", "rounds", "visits"), [(0.2, 150, 30), (0.29, 100, 29), (0.1, 4, 1)])
def test_a_client_is_expected_in_its_share_of_the_rounds_at_least_once(
    share: float, rounds: int, visits: int
) -> None:
    """docs/papers/map.md §2.1: max(int(Q·T), 1), 30 in MAP's tables, 10 in its Fig. 8."""
    setup = prepare_run(RunConfig(data=Data(split="iid:100"), federation=Federation(rounds, share)))
    assert make_spec(setup.data, 5).expected_visits == visits


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
    images, labels = without.data.test_set()
    np.testing.assert_array_equal(labels, setup.dataset.y[rows])
    assert len(images) == len(labels) > 100


def test_what_the_method_requires_is_added_to_what_the_run_gives() -> None:
    config = RunConfig("fedetf", {"scale": 2.0}, model=Model("mlp", {"hidden": [16], "features": "l2"}))
    added = {"feature_layer": True, "feature_scale": 2.0, "learn_scale": True}
    head = {"head_init": "etf", "head_bias": False}
    assert network_of(config).args == {"hidden": [16], "features": "l2", **added, **head}


@pytest.mark.parametrize(
    ("method", "model", "said"),
    [
        ("fedetf", Model("mlp", {"features": "raw"}), "features = l2, and model.args has features = raw"),
        ("fedetf", Model("tests.models.own_nets:OwnFeatures"), "of this name itself; rename that one"),
        ("fedgela", Model("mlp", {"hidden": [8]}), "8 is below 10; use a network with wider features"),
        *((name, Model("linear"), "linear has no weights") for name in ("fedrep", "mpfedcon", "pfedfda")),
    ],
)
def test_a_network_that_the_method_cannot_have_is_refused_before_work_starts(
    method: str, model: Model, said: str
) -> None:
    with pytest.raises(UsageError, match=said):
        prepare_run(replace(small(method), model=model))


SIMPLE = Model("mlp", {"hidden": [4]})


@pytest.mark.parametrize(
    ("method", "model", "args", "resumed", "warned"),
    [
        ("fedmr", SIMPLE, {}, False, True),
        ("fedmr", SIMPLE, {}, True, False),
        ("fedmr", Model("resnet8"), {}, False, False),
        ("fedmr", SIMPLE, {"prototype_from": "global"}, False, False),
        ("fedmr", SIMPLE, {"mu2": 0.0}, False, False),
        ("fedavg", SIMPLE, {}, False, False),
    ],
)
def test_fedmr_s_local_prototypes_in_a_network_without_normalisation_are_warned_of_once(
    method: str,
    model: Model,
    args: dict[str, Any],
    resumed: bool,
    warned: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    config = replace(small(method), model=model, args=args, data=Data("digits", "p5c2"))
    warn(prepare_run(config), resumed=resumed)
    assert caplog.text.count("can destroy training in a network without normalisation") == warned
