"""Clients that never train: who they are, that nobody learns from them, and how they are scored."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pandas as pd
import pytest

import raffed
from raffed import Federation, RunConfig
from raffed.core.context import Spec
from raffed.errors import UsageError
from raffed.runtime.federated_data import unseen_clients
from raffed.runtime.setup import prepare_run
from raffed.runtime.setup_model import make_spec
from tests.tiny import bare_context, digits

BASE = digits("dirichlet:6:0.5", local_test=0.3, federation=Federation(2, unseen_clients=0.34))


def with_(config: RunConfig = BASE, **federation: float) -> RunConfig:
    return replace(config, federation=replace(config.federation, **federation))


def rows_of(config: RunConfig) -> pd.DataFrame:
    return raffed.run(config).to_pandas()


def test_they_are_drawn_by_the_seed_alone_and_never_train() -> None:
    unseen = set(unseen_clients(BASE.federation, BASE.seed, 6))
    assert len(unseen) == 2
    assert len({unseen_clients(BASE.federation, seed, 6) for seed in range(8)}) > 1
    rows = rows_of(with_(rounds=3))
    trained = rows[rows["split"] == "train"]["client"].dropna().unique()
    assert set(trained) == set(range(6)) - unseen


def test_nobody_learns_from_them() -> None:
    """The server's weights are those of a federation that consists of the other clients."""
    unseen = unseen_clients(BASE.federation, BASE.seed, 6)
    setup = prepare_run(BASE)
    assert make_spec(setup.data, 4).num_clients == 4
    assert make_spec(setup.data, 4).samples == sum(
        n for client, n in enumerate(setup.data.sizes) if client not in unseen
    )
    val = prepare_run(replace(BASE, data=replace(BASE.data, validation=0.2)))
    assert len(val.data.scored_rows["val"][1]) == sum(
        len(val.partition.val[client]) for client in setup.data.trainable
    )


def test_a_fraction_of_0_is_a_run_without_them() -> None:
    assert with_(unseen_clients=0.0).identity() == replace(BASE, federation=Federation(rounds=2)).identity()
    assert with_().identity() != with_(unseen_clients=0.0).identity()


@pytest.mark.parametrize("method", ["fedavg", "scaffold"])
def test_without_personal_models_they_get_the_server_s_model(method: str) -> None:
    rows = rows_of(replace(BASE, method=method))
    found = rows[rows["metric"] == "accuracy_unseen"]
    assert set(found["client"].dropna()) == set(unseen_clients(BASE.federation, BASE.seed, 6))
    assert set(found["round"]) == {2}
    one, other = (found[found["model"] == model] for model in ("global", "personal"))
    assert one["value"].tolist() == other["value"].tolist()
    assert one[one["client"].isna()]["value"].item() == one[one["client"].notna()]["value"].mean()


SLOW = ("ditto", "apfl", "perfedavg", "pfedme", "gldp", "solo", "fedphp", "flda", "fedrod", "mpfedcon")


@pytest.mark.parametrize(
    "method",
    [*("finetune", "map", "fedrep"), *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW)],
)
def test_a_personal_method_treats_them_as_clients_that_come_new(method: str) -> None:
    rows = rows_of(replace(BASE, method=method))
    found = rows[(rows["metric"] == "accuracy_unseen") & (rows["model"] == "personal")]
    assert len(found) == 3
    assert found["value"].between(0, 1).all()


def test_scoring_them_leaves_no_trace() -> None:
    """What a survey does to nobody's weights, the scores of new clients do not either."""
    surveyed, plain = raffed.run(with_(survey=2)), raffed.run(BASE)
    assert surveyed.hashes["weights"] == plain.hashes["weights"]
    assert surveyed.hashes["vaults"] == plain.hashes["vaults"]
    rows = surveyed.to_pandas()
    assert set(rows[rows["metric"] == "accuracy_unseen"]["round"]) == {1, 2}
    between = rows[(rows["metric"] == "accuracy_between") & rows["client"].notna()]
    assert not set(between["client"]) & set(unseen_clients(BASE.federation, BASE.seed, 6))


def test_a_set_of_chosen_clients_is_drawn_among_those_that_train() -> None:
    spec = Spec(3, 4, 4, 1, unseen=(1, 4))
    chosen = [bare_context(spec=spec, client=client).chosen(0.5, "sharers") for client in range(6)]
    assert sum(chosen) == 2
    assert not chosen[1]
    assert not chosen[4]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"federation.unseen_clients": 0.99}, "leaves no client to train"),
        ({"federation.unseen_clients": 0.05}, "is none of them"),
        ({"federation.unseen_clients": 1.0}, "unseen_clients = 1.0 is outside"),
        ({"data.local_test": 0.0}, "local test part"),
    ],
)
def test_what_cannot_work_is_refused_in_a_line(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words) as found:
        prepare_run(BASE.changed(changes))
    assert "\n" not in str(found.value)
