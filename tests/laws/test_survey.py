"""Surveys of all clients between rounds, and clients that never train."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pandas as pd
import pytest
import torch

import raffed
from raffed import Clock, Data, Federation, RunConfig
from raffed.core.aggregation.exact_sums import PointSum
from raffed.core.context import Spec
from raffed.core.params import Params
from raffed.errors import UsageError
from raffed.methods.fedrep import fedrep
from raffed.runs.metric_rows import ClientSurvey
from raffed.runtime.api import RoundOrder
from raffed.runtime.federated_data import unseen_clients
from raffed.runtime.setup import prepare_run
from raffed.runtime.setup_model import make_spec
from tests.params import one_in
from tests.tiny import SHORT, Tiny, bare_context, digits

# A survey scores every client between rounds: what it must find, and that it leaves no trace in the run.

BASE = digits(local_test=0.3, federation=Federation(4, 0.5, survey=2))


def rows_of(method: str, config: RunConfig = BASE, **args: Any) -> pd.DataFrame:
    rows = raffed.run(replace(config, method=method, args=args)).to_pandas()
    return rows[(rows["split"] == "local_test") & rows["class"].isna()]


def scores(rows: pd.DataFrame, model: str, metric: str, done: int) -> dict[int, float]:
    kept = rows[
        (rows["model"] == model)
        & (rows["metric"] == metric)
        & (rows["round"] == done)
        & rows["client"].notna()
    ]
    return {int(client): value for client, value in zip(kept["client"], kept["value"], strict=True)}


@pytest.mark.parametrize(
    "method",
    one_in(3, ["fedavg", "map", "fedrep", "apfl", "perfedavg", "pfedme", "gldp", "scaffold", "creff"]),
)
def test_a_survey_changes_neither_weights_nor_vaults(method: str) -> None:
    config = replace(
        BASE, method=method, args=SHORT.get(method, {}), federation=replace(BASE.federation, rounds=3)
    )
    with_, without = (
        raffed.run(replace(config, federation=replace(config.federation, survey=n))) for n in (2, 0)
    )
    assert (with_.hashes["weights"], with_.hashes["vaults"]) == (
        without.hashes["weights"],
        without.hashes["vaults"],
    )
    assert with_.metrics.num_rows > without.metrics.num_rows


@pytest.mark.parametrize("method", one_in(3, ["fedrep", "fedavg", "fedprox", "mpfedcon", "fedper"]))
def test_between_rounds_a_client_has_what_it_starts_the_next_round_with(method: str) -> None:
    """Without a personal model of its own: the new shared part with its own layers, the last it had."""
    rows = rows_of(method)
    between = scores(rows, "personal", "accuracy_between", 3)
    downloaded = scores(rows, "global", "accuracy", 4)
    assert len(between) == 6
    assert len(downloaded) == 3
    assert {client: between[client] for client in downloaded} == downloaded


@pytest.mark.parametrize("method", ["map", "fedphp", "ditto"])
def test_a_model_that_is_kept_scores_between_rounds_as_when_it_was_made(method: str) -> None:
    rows = rows_of(method)
    last: dict[int, float] = {}
    for done in (1, 2, 3, 4):
        last |= scores(rows, "personal", "accuracy", done)
    between = scores(rows, "personal", "accuracy_between", 4)
    assert len(last) > 3  # not the last round's participants alone
    assert {client: between[client] for client in last} == last


def test_the_global_model_of_a_survey_is_the_one_that_the_server_has() -> None:
    rows = rows_of("fedavg")
    assert scores(rows, "global", "accuracy_between", 4) == scores(rows, "personal", "accuracy_between", 4)


def test_fine_tuning_between_rounds_is_that_of_the_next_round() -> None:
    """Each fine-tunes the model it would download; the batches are another round's stream, so the
    full-batch case.
    """
    config = replace(BASE, local=replace(BASE.local, batch_size=2000))
    rows = rows_of("finetune", config, epochs=3.0, scope="all", every_round=True)
    between, then = scores(rows, "personal", "accuracy_between", 3), scores(rows, "personal", "accuracy", 4)
    assert {client: between[client] for client in then} == then


def test_with_one_participant_the_mean_of_the_heads_is_its_head() -> None:
    rows = rows_of("fedrep", replace(BASE, federation=Federation(rounds=3, participation=1 / 6, survey=1)))
    [who] = scores(rows, "personal", "accuracy", 3)
    oracle = scores(rows, "global", "accuracy_oracle", 3)
    own = scores(rows, "personal", "accuracy_between", 3)
    assert oracle[who] == own[who]
    assert oracle != own  # of the others it is not


def test_prototype_inference_and_private_models_have_no_oracle() -> None:
    for method in ("gldp", "solo"):
        assert not len(rows_of(method, **SHORT.get(method, {})).query("metric == 'accuracy_oracle'"))


def test_the_mean_is_over_all_clients() -> None:
    rows = rows_of("map")
    mean = rows[(rows["metric"] == "accuracy_between") & rows["client"].isna() & (rows["round"] == 4)]
    each = scores(rows, "personal", "accuracy_between", 4)
    found = mean[mean["model"] == "personal"]
    assert found["n"].item() == 6
    assert found["value"].item() == pytest.approx(sum(each.values()) / 6, rel=1e-12)


def test_in_stages_each_stage_is_scored_apart_and_the_whole_is_their_sum() -> None:
    config = replace(
        BASE, data=Data(dataset="digits", split="stages:4:3:2:if5"), federation=Federation(rounds=4, survey=1)
    )
    rows = rows_of("fedavg", config)
    last = rows[(rows["round"] == 4) & (rows["model"] == "personal") & rows["client"].notna()]
    for _, own in last.groupby("client"):
        parts = own[own["metric"].isin(["accuracy_stage0", "accuracy_stage1"])]
        whole = own[own["metric"] == "accuracy"]
        assert whole["value"].item() * whole["n"].item() == pytest.approx(
            (parts["value"] * parts["n"]).sum(), abs=1e-9
        )
        assert whole["n"].item() == parts["n"].sum()
    # Stage 1 is still to come
    assert not len(rows[(rows["round"] == 3) & (rows["metric"] == "accuracy_stage1")])


def test_participants_are_scored_in_surveyed_rounds_though_the_global_test_is_rarer() -> None:
    """A_sel is of participants in every stage, the global test of nobody there: eval_every = 4 of four
    rounds, two surveyed.
    """
    rows = raffed.run(replace(BASE, federation=replace(BASE.federation, eval_every=4))).to_pandas()
    tested = rows[(rows["model"] == "global") & (rows["split"] == "test") & (rows["metric"] == "accuracy")]
    scored = rows[
        (rows["model"] == "personal") & (rows["split"] == "local_test") & (rows["metric"] == "accuracy")
    ]
    assert set(tested["round"]) == {4}
    assert set(scored["round"]) == {3, 4}


@pytest.mark.parametrize("method", ["map", "fedphp", "scamap"])
def test_a_client_that_never_took_part_has_no_private_model_and_scores_as_the_global_one(method: str) -> None:
    """docs/papers/map.md §3.5; of six clients one takes part in each of two rounds, so at least four
    never did.
    """
    config = replace(BASE, federation=Federation(rounds=2, participation=0.17, survey=1))
    rows = raffed.run(replace(config, method=method)).to_pandas()
    visited = set(rows[(rows["split"] == "train") & rows["client"].notna()]["client"].astype(int))
    own, shared = (
        scores(rows[rows["class"].isna()], model, "accuracy_between", 2) for model in ("personal", "global")
    )
    assert 1 <= len(visited) <= 2
    assert len(own) == 6
    assert all(own[client] == shared[client] for client in set(own) - visited)
    [never] = rows[rows["metric"] == "never_selected"]["value"]
    assert never == 6 - len(visited)


def test_a_client_without_a_model_of_its_own_scores_as_the_global_model_does() -> None:
    rows = rows_of("fedavg")
    both = [scores(rows, model, "accuracy_between", 4) for model in ("global", "personal")]
    assert both[0] == both[1]
    assert len(both[0]) == 6


@pytest.mark.parametrize(
    ("server", "weights", "shares"),
    [
        ("fedbuff", (1 / 3, 1 / 6, 1 / 9), (6 / 11, 3 / 11, 2 / 11)),
        ("fedasync", (0.25,), (1.0,)),
        ("waits", (0.5, 0.3, 0.2), (0.5, 0.3, 0.2)),
    ],
)
def test_the_mean_of_the_layers_that_stale_clients_keep_is_of_weights_that_add_up_to_1(
    server: str, weights: tuple[float, ...], shares: tuple[float, ...]
) -> None:
    """FedBuff's three uploads are 0, 3 and 8 steps old: (1 + τ)^−½ / 3 = 1/3, 1/6, 1/9, whose sum is 11/18.
    The shared layers are the server's as they are.
    """
    tiny = Tiny(fedrep()).run(1, [0, 1, 2])
    clients = tuple(range(len(weights)))
    heads = [tiny.client_states[client].v for client in clients]

    def own_layers(order: RoundOrder) -> list[Any]:
        total = PointSum()
        for client, weight in zip(order.participants, order.weights, strict=True):
            total.add(heads[client], weight, "test")
        return [total.export()]

    config = SimpleNamespace(clock=Clock(speeds="constant", server=server))  # type: ignore[arg-type]
    setup, backend = SimpleNamespace(method=fedrep(), config=config), SimpleNamespace(own_layers=own_layers)
    survey = ClientSurvey(cast(Any, setup), cast(Any, backend), tiny.net.initial)
    order = RoundOrder(tiny.server.broadcast(), clients, weights, (1,) * len(clients), True, ())
    whole = survey.oracle(tiny.server, dict.fromkeys(clients, 1), order)
    assert whole is not None
    wanted = sum((head * share for head, share in zip(heads, shares, strict=True)), heads[0].zeros())
    assert isinstance(wanted, Params)
    assert set(wanted.names) == {"head.weight", "head.bias"}
    for n, t in wanted.tensors.items():
        torch.testing.assert_close(whole.w[n], t, rtol=1e-6, atol=1e-6)
    for n, t in tiny.server.w.tensors.items():
        assert torch.equal(whole.w[n], t)


# Clients that never train: who they are, that nobody learns from them, and how they are scored.

WITH_NEW = digits("dirichlet:6:0.5", local_test=0.3, federation=Federation(2, unseen_clients=0.34))


def with_(config: RunConfig = WITH_NEW, **federation: float) -> RunConfig:
    return replace(config, federation=replace(config.federation, **federation))


def all_rows_of(config: RunConfig) -> pd.DataFrame:
    return raffed.run(config).to_pandas()


def test_they_are_drawn_by_the_seed_alone_and_never_train() -> None:
    unseen = set(unseen_clients(WITH_NEW.federation, WITH_NEW.seed, 6))
    assert len(unseen) == 2
    assert len({unseen_clients(WITH_NEW.federation, seed, 6) for seed in range(8)}) > 1
    rows = all_rows_of(with_(rounds=3))
    trained = rows[rows["split"] == "train"]["client"].dropna().unique()
    assert set(trained) == set(range(6)) - unseen


def test_nobody_learns_from_them() -> None:
    """The server's weights are those of a federation that consists of the other clients."""
    unseen = unseen_clients(WITH_NEW.federation, WITH_NEW.seed, 6)
    setup = prepare_run(WITH_NEW)
    assert make_spec(setup.data, 4).num_clients == 4
    assert make_spec(setup.data, 4).samples == sum(
        n for client, n in enumerate(setup.data.sizes) if client not in unseen
    )
    val = prepare_run(replace(WITH_NEW, data=replace(WITH_NEW.data, validation=0.2)))
    assert len(val.data.scored_rows["val"][1]) == sum(
        len(val.partition.val[client]) for client in setup.data.trainable
    )


def test_a_fraction_of_0_is_a_run_without_them() -> None:
    assert (
        with_(unseen_clients=0.0).identity() == replace(WITH_NEW, federation=Federation(rounds=2)).identity()
    )
    assert with_().identity() != with_(unseen_clients=0.0).identity()


@pytest.mark.parametrize("method", ["fedavg", "scaffold"])
def test_without_personal_models_they_get_the_server_s_model(method: str) -> None:
    rows = all_rows_of(replace(WITH_NEW, method=method))
    found = rows[rows["metric"] == "accuracy_unseen"]
    assert set(found["client"].dropna()) == set(unseen_clients(WITH_NEW.federation, WITH_NEW.seed, 6))
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
    rows = all_rows_of(replace(WITH_NEW, method=method))
    found = rows[(rows["metric"] == "accuracy_unseen") & (rows["model"] == "personal")]
    assert len(found) == 3
    assert found["value"].between(0, 1).all()


def test_scoring_them_leaves_no_trace() -> None:
    """What a survey does to nobody's weights, the scores of new clients do not either."""
    surveyed, plain = raffed.run(with_(survey=2)), raffed.run(WITH_NEW)
    assert surveyed.hashes["weights"] == plain.hashes["weights"]
    assert surveyed.hashes["vaults"] == plain.hashes["vaults"]
    rows = surveyed.to_pandas()
    assert set(rows[rows["metric"] == "accuracy_unseen"]["round"]) == {1, 2}
    between = rows[(rows["metric"] == "accuracy_between") & rows["client"].notna()]
    assert not set(between["client"]) & set(unseen_clients(WITH_NEW.federation, WITH_NEW.seed, 6))


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
        prepare_run(WITH_NEW.changed(changes))
    assert "\n" not in str(found.value)
