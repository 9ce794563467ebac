"""Scores beside the usual ones: without the public images, of the privately trained model, of the point that
is sent out; and who never took part.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import raffed
from raffed import Federation, Local
from raffed.core.measures.scores import ScoreCounts
from raffed.runs.federation import RoundLoop as Rounds
from raffed.runs.folder import RunFolder
from raffed.runtime.setup import prepare_run
from raffed.runtime.setup_model import make_network
from raffed.runtime.worker import SerialBackend
from tests.tiny import digits

BASE = digits("incomplete:10", 16, local=Local(0.1, batch_size=16, epochs=1), federation=Federation(2, 0.3))


def rows_of(**changes: Any) -> pd.DataFrame:
    return raffed.run(replace(BASE, **changes)).to_pandas()


def test_a_tally_less_a_part_of_it_is_the_rest() -> None:
    whole, part = ScoreCounts((3, 2), (4, 5), (4, 5), 7.0, 6), ScoreCounts((1, 2), (1, 3), (2, 2), 2.0, 3)
    rest = whole - part
    assert (rest.accuracy, rest.n, rest.loss) == (2 / 5, 5, 5.0)
    assert rest + part == whole


def test_the_clean_score_is_the_accuracy_on_the_test_images_that_the_server_has_not_seen(
    tmp_path: Any,
) -> None:
    """docs/papers/baselines.md, FedDF: on the images outside U, counted here by hand."""
    args = {"server_steps": 20, "public": 100, "server_lr": 0.01}
    setup = prepare_run(replace(BASE, method="feddf", args=args))
    rounds = Rounds(setup, SerialBackend(setup), RunFolder(tmp_path / "run", setup))
    rounds.step()
    images, labels = setup.data.test_set()
    net = make_network(setup.network, setup.data)
    x = torch.from_numpy(np.asarray(images)).float() / setup.dataset.max_value
    public = rounds.aggregator.public
    assert public is not None
    seen = {tuple(row.tolist()) for row in public.flatten(1)}
    outside = [i for i in range(len(x)) if tuple(x[i].flatten().tolist()) not in seen]
    assert len(outside) == len(labels) - 100
    logits, _ = net.apply(rounds.now.state, x[outside])
    right = float((logits.argmax(1).numpy() == labels[outside]).mean())
    rows = raffed.run(replace(BASE, method="feddf", args=args, federation=Federation(1, 0.3))).to_pandas()
    [clean] = rows[rows["metric"] == "accuracy_clean"].itertuples()
    assert clean.n == len(outside)
    assert clean.value == pytest.approx(right, abs=1e-12)


def test_a_server_that_has_seen_all_test_images_or_none_has_no_clean_score() -> None:
    for method, args in (("feddf", {"preset": "authors", "server_steps": 2}), ("fedavg", {})):
        assert "accuracy_clean" not in set(rows_of(method=method, args=args)["metric"])


@pytest.mark.parametrize("method", ["feddyn", "feddc"])
def test_a_server_that_extrapolates_is_scored_at_the_mean_and_at_the_point_that_it_sends(method: str) -> None:
    """docs/papers/baselines.md, FedDyn: both are logged; asked for the broadcast point alone, that is the
    accuracy.
    """
    both, sent = rows_of(method=method), rows_of(method=method, args={"score": "broadcast"})

    def values(rows: pd.DataFrame, metric: str) -> list[float]:
        found = rows[
            (rows["metric"] == metric)
            & (rows["split"] == "test")
            & rows["client"].isna()
            & rows["class"].isna()
        ]
        return found.sort_values("round")["value"].tolist()

    assert values(both, "accuracy_broadcast") == values(sent, "accuracy") != values(both, "accuracy")
    assert len(values(sent, "accuracy")) == 2
    assert not values(sent, "accuracy_broadcast")


def scores(rows: pd.DataFrame, model: str, metric: str) -> dict[tuple[int, int], float]:
    found = rows[
        (rows["model"] == model)
        & (rows["metric"] == metric)
        & (rows["split"] == "local_test")
        & rows["client"].notna()
    ]
    return {(int(row.round), int(row.client)): row.value for row in found.itertuples()}


def test_without_stage_2_the_private_score_is_the_trained_model_s_and_without_inheritance_the_personal_one_s() -> (  # noqa: E501
    None
):
    """docs/papers/map.md §6 M3: with stage-2 rate 0, ω^per = ω_k; with μ = 0 the HPM is ω^per."""
    still = rows_of(method="map", args={"lr_scale": 0.0}, federation=Federation(3, 0.3))
    assert scores(still, "personal", "accuracy_private") == scores(still, "local", "accuracy")
    own = rows_of(method="map", args={"mu": 0.0, "least": 20}, federation=Federation(3, 0.3))
    assert scores(own, "personal", "accuracy_private") == scores(own, "personal", "accuracy")
    assert scores(own, "personal", "accuracy_private") != scores(own, "local", "accuracy")
    mean = own[(own["metric"] == "accuracy_private") & own["client"].isna() & (own["round"] == 3)][
        "value"
    ].item()
    last = [
        value for (number, _), value in scores(own, "personal", "accuracy_private").items() if number == 3
    ]
    assert mean == pytest.approx(np.mean(last))


@pytest.mark.parametrize("method", ["fedphp", "ditto", "fedavg"])
def test_where_the_personal_model_is_the_trained_one_there_is_no_second_score(method: str) -> None:
    assert "accuracy_private" not in set(rows_of(method=method)["metric"])


def test_a_survey_says_how_many_clients_never_took_part() -> None:
    """3 of 10 a round: 7 after one round; after two rounds as many as neither round drew."""
    rows = rows_of(federation=Federation(2, 0.3, survey=2))
    never = rows[rows["metric"] == "never_selected"].set_index("round")
    trained = rows[(rows["metric"] == "loss") & (rows["model"] == "local")]
    for number in (1, 2):
        drawn = set(trained[trained["round"] <= number]["client"])
        assert never.loc[number, "value"] == 10 - len(drawn)
        assert never.loc[number, "n"] == 10
    assert never.loc[1, "value"] == 7
