"""Measures and scores that a run is asked for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pytest
import torch

import raffed
from raffed import Data, Federation, Local, Numerics, RunConfig
from raffed.core import seeds
from raffed.core.measures.scores import ScoreCounts
from raffed.core.params import State
from raffed.data import transforms
from raffed.errors import UsageError
from raffed.runs.federation import RoundLoop as Rounds
from raffed.runs.folder import RunFolder
from raffed.runtime.record_files import load_server
from raffed.runtime.setup import Setup, prepare_run
from raffed.runtime.setup_model import make_network
from raffed.runtime.worker import SerialBackend
from tests.tiny import digits

# What `federation.measures` adds to a run, and that it adds nothing else.

BASE = digits(
    "p5c4", 64, local=Local(0.05, batch_size=64, epochs=1), federation=Federation(2, measures="spectrum")
)


def spectrum(rows: pd.DataFrame) -> pd.DataFrame:
    return rows[rows["metric"].str.startswith("eigenvalue_variance")]


FIGURES = ["calibration_error", "accuracy_worst_decile", "accuracy_spread"]


def pooled(rows: pd.DataFrame) -> pd.Series:
    """Which rows are of the accuracy on the training samples."""
    return (rows["model"] == "global") & (rows["split"] == "train") & (rows["metric"] == "accuracy")


@pytest.fixture(scope="module", params=[0, 3], ids=["alone", "stacked"])
def both(request: pytest.FixtureRequest) -> tuple[raffed.RunResult, pd.DataFrame, pd.Series]:
    """A run without measures, the rows of the same run with nearly all, and which of these rows are new."""
    run = replace(BASE, method="fedmr", args={"mu1": 0.1}, data=replace(BASE.data, local_test=0.3))
    run = replace(run, numerics=Numerics(cohort=request.param))
    asked = "spectrum,calibration,fairness,training,term_strength"
    plain, measured = (
        raffed.run(replace(run, federation=Federation(rounds=4, eval_every=2, measures=words)))
        for words in ("", asked)
    )
    assert measured.hashes["weights"] == plain.hashes["weights"]
    rows = measured.to_pandas()
    new = rows["metric"].str.startswith(("eigenvalue_variance", "term_strength")) | rows["metric"].isin(
        FIGURES
    )
    return plain, rows, new | pooled(rows)


def test_measures_leave_weights_and_all_other_rows_as_they_are(both: Any) -> None:
    plain, rows, new = both
    assert len(rows[~new]) == plain.metrics.num_rows


def test_after_the_last_round_the_global_model_and_each_participant_s_are_measured(both: Any) -> None:
    rows = spectrum(both[1])
    assert set(rows["round"]) == {4}
    whole = rows[rows["model"] == "global"].set_index("metric")
    assert whole.loc["eigenvalue_variance", "n"] == 360 // 128  # digits has 360 test images
    assert 0 < whole.loc["eigenvalue_variance", "value"] < 64**2 / 128
    assert set(whole.index) == {"eigenvalue_variance", "eigenvalue_variance_class", "eigenvalue_variance_raw"}
    own = rows[(rows["model"] == "local") & rows["client"].notna()]
    assert len(own) == 5
    mean = rows[(rows["model"] == "local") & rows["client"].isna()]
    assert mean["value"].item() == pytest.approx(own["value"].dropna().mean())


def test_a_method_without_a_global_model_has_only_its_clients_measured() -> None:
    asked = Federation(1, measures="spectrum,training")
    rows = raffed.run(replace(BASE, method="fedper", federation=asked)).to_pandas()
    assert set(spectrum(rows)["model"]) == {"local"}
    assert not ((rows["split"] == "train") & (rows["metric"] == "accuracy")).any()


def test_what_is_not_asked_for_is_no_part_of_a_run_s_identity_and_unknown_names_are_refused() -> None:
    recorded = (
        "9947d9631ccf64e5050f6f7e6be006772e13bbfaabcd4b47cd8692f966da62e4"  # by the version before it existed
    )
    assert RunConfig().identity() == recorded
    assert RunConfig(federation=Federation(measures="spectrum")).identity() != recorded
    with pytest.raises(UsageError, match="spectrum"):
        replace(BASE, federation=Federation(measures="spectra"))


def test_the_memory_of_a_client_is_a_measure_too() -> None:
    """An MLP of 64-64-10: 4,810 weights; FedProx holds the downloaded ones besides and keeps nothing."""
    config = replace(BASE, method="fedprox", federation=Federation(rounds=2, measures="memory"))
    rows = raffed.run(config).to_pandas()
    found = rows[rows["metric"].str.startswith("floats_")].set_index("metric")["value"].to_dict()
    assert found == {"floats_model": 4810, "floats_training": 9620, "floats_kept": 0}


def test_calibration_and_fairness_are_measured_after_the_last_round(both: Any) -> None:
    rows = both[1]
    new = rows[rows["metric"].isin(FIGURES)]
    assert set(new["round"]) == {4}
    assert len(new) == 1 + 2 * 2  # calibration of the global model; two figures of two kinds of models
    last = rows[(rows["round"] == 4) & (rows["model"] == "personal") & (rows["metric"] == "accuracy")]
    own = last[last["client"].notna() & (last["split"] == "local_test")]["value"]
    spread = rows[(rows["metric"] == "accuracy_spread") & (rows["model"] == "personal")]["value"].item()
    assert spread == pytest.approx(own.std(ddof=0))


def test_the_accuracy_on_the_pooled_training_samples_is_measured_in_every_evaluated_round(both: Any) -> None:
    """It is Σ correct / Σ n over the clients."""
    rows = both[1]
    new = rows[pooled(rows)]
    assert new["round"].tolist() == [2, 4]
    assert new["client"].isna().all()
    losses = rows[(rows["metric"] == "loss") & (rows["model"] == "local") & (rows["round"] == 1)]
    assert set(new["n"]) == {int(losses["n"].sum())}  # all five clients take part


def test_the_strength_of_terms_is_measured_in_every_evaluated_round(both: Any) -> None:
    found = both[1][both[1]["metric"].str.startswith("term_strength")]
    assert set(found["round"]) == {2, 4}
    names = {"term_strength", "term_strength_intra_class", "term_strength_inter_class"}
    assert set(found["metric"]) == names
    assert len(found) == 2 * 2 * 3 * (5 + 1)  # rounds, models, names; participants and their median
    for _, one in found.groupby(["round", "model", "metric"]):
        middle, own = one[one["client"].isna()]["value"].item(), one[one["client"].notna()]["value"]
        assert middle == pytest.approx(own.median())


def test_a_model_that_fits_its_training_samples_scores_higher_there_than_on_the_test_set() -> None:
    """Five samples of each client, learned by heart: 1 on these, and less on images that nobody has seen."""
    config = replace(
        BASE,
        data=Data(dataset="digits", split="iid:5", samples=50),
        local=Local(lr=0.1, batch_size=10, epochs=5),
        federation=Federation(rounds=30, eval_every=30, measures="training"),
    )
    rows = raffed.run(config).to_pandas()
    found = rows[(rows["metric"] == "accuracy") & (rows["model"] == "global") & rows["class"].isna()]
    scores = found.set_index("split")["value"]
    assert scores["train"] == 1.0
    assert scores["test"] < 0.95


def test_the_strength_of_terms_is_measured_in_some_evaluated_rounds_and_after_the_last_one() -> None:
    """Six rounds, of which 2, 4 and 6 are evaluated: 4 is the only one of them that is a multiple of four."""
    config = replace(BASE, method="fedprox", args={"mu": 0.1})
    always = Federation(rounds=6, eval_every=2, measures="term_strength")
    often, seldom = (
        raffed.run(replace(config, federation=replace(always, strength_every=every))).to_pandas()
        for every in (1, 4)
    )
    measured = often["metric"].str.startswith("term_strength")
    assert set(often[measured]["round"]) == {2, 4, 6}
    kept = often[~measured | often["round"].isin([4, 6])].reset_index(drop=True)
    own = ["run_id", "seconds"]
    pd.testing.assert_frame_equal(seldom.drop(columns=own), kept.drop(columns=own), check_categorical=False)


def test_a_rule_that_may_end_a_run_needs_the_strengths_of_every_evaluated_round() -> None:
    """With fewer of them the last round must be known beforehand, because it is measured in any case."""
    ended = Federation(rounds=6, measures="term_strength", stop_when="val.accuracy no better for 1 rounds")
    config = replace(BASE, data=replace(BASE.data, validation=0.2), federation=ended)
    prepare_run(config)
    with pytest.raises(UsageError, match=r"strength_every = 4: the last rounds are measured"):
        prepare_run(config.changed({"federation.strength_every": 4}))


def test_a_method_without_terms_has_no_strengths() -> None:
    rows = raffed.run(replace(BASE, federation=Federation(1, measures="term_strength"))).to_pandas()
    assert not rows["metric"].str.startswith("term_strength").any()


# Table 7's four readings, from a run's final weights to its rows (docs/papers/fedmr.md §E3), worked out
# again with NumPy.

Array = npt.NDArray[np.float64]
RUN = replace(
    digits("iid:1", 64, local=Local(0.1, 0.9, batch_size=64, epochs=3)),
    federation=Federation(1, measures="spectrum"),
    seed=3,
)


def variance(z: Array, top: int, standardised: bool = True) -> float:
    """(1/B) Σ_{i ≤ top} (λ_i − λ̄)² of M = ẐᵀẐ/(B − 1), [D, D], of z [B, D]; a dead feature is a column
    of zeros.
    """
    centred = z - z.mean(0)
    if standardised:
        deviation = centred.std(0, ddof=1)
        centred = centred / np.where(deviation > 0, deviation, 1.0)
    values = np.linalg.eigvalsh(centred.T @ centred / (len(z) - 1))[-top:]
    return float(((values - values.mean()) ** 2).sum() / len(z))


def mean_variance(z: Array, top: int, batch: int, standardised: bool = True) -> tuple[float, int]:
    """Over the full batches of z in its order, and how many they are."""
    found = [variance(z[i : i + batch], top, standardised) for i in range(0, len(z) - batch + 1, batch)]
    return (float(np.mean(found)), len(found)) if found else (np.nan, 0)


def features(setup: Setup, folder: Path, part: str) -> tuple[Array, npt.NDArray[np.int64]]:
    """z [n, 64] of the final weights on the test set or the training pool, and the labels."""
    server = load_server(folder / "final.safetensors", setup.method)
    data, own = setup.dataset, setup.partition.train[0]
    images, labels = (data.x_test, data.y_test) if part == "test" else (data.x[own], data.y[own])
    x = transforms.prepare_images(images, setup.data.transform, setup.dataset.max_value)
    z = make_network(setup.network, setup.data).apply(State(server.w, server.b), x)[1]
    return z.double().numpy(), labels


@pytest.mark.parametrize(("batch", "top"), [(128, 50), (16, 10)])
def test_all_readings_are_of_the_final_weights(
    batch: int, top: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One client, so that its trained model is the server's. Digits has 355 test images, 34 to 36 a class: in
    batches of 128 there is none of one class, in batches of 16 there are two.
    """
    monkeypatch.setattr("raffed.core.measures.scores.BATCH", batch)
    monkeypatch.setattr("raffed.core.measures.scores.TOP", top)
    rows = raffed.run(RUN, out=tmp_path / "run").to_pandas()
    rows = rows[rows["metric"].str.startswith("eigenvalue_variance")]
    rows = rows[(rows["model"] == "global") | (rows["client"] == 0)]  # without the mean over the one client
    found = {(row.model, row.metric): (row.value, row.n) for row in rows.itertuples()}
    setup = prepare_run(RUN)
    z, y = features(setup, tmp_path / "run", "test")
    order = seeds.rng(3, "spectrum").permutation(len(z))
    z, y = z[order], y[order]
    classes = [mean_variance(z[y == label], top, batch) for label in range(10)]
    own, _ = features(setup, tmp_path / "run", "train")
    own = own[seeds.rng(3, "spectrum", client=0).permutation(len(own))]
    of_class = float(np.mean([mean for mean, _ in classes]))  # NaN where there is no batch
    wanted = {
        ("global", "eigenvalue_variance"): mean_variance(z, top, batch),
        ("global", "eigenvalue_variance_class"): (of_class, sum(count for _, count in classes)),
        ("global", "eigenvalue_variance_raw"): mean_variance(z, top, batch, standardised=False),
        ("local", "eigenvalue_variance"): mean_variance(own, top, batch),
    }
    assert {key: count for key, (_, count) in found.items()} == {
        key: count for key, (_, count) in wanted.items()
    }
    for key, (value, _) in wanted.items():
        assert found[key][0] == pytest.approx(value, rel=1e-6, nan_ok=True), key


# Scores beside the usual ones: without the public images, of the privately trained model, of the point that
# is sent out; and who never took part.

INCOMPLETE = digits(
    "incomplete:10", 16, local=Local(0.1, batch_size=16, epochs=1), federation=Federation(2, 0.3)
)


def rows_of(**changes: Any) -> pd.DataFrame:
    return raffed.run(replace(INCOMPLETE, **changes)).to_pandas()


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
    setup = prepare_run(replace(INCOMPLETE, method="feddf", args=args))
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
    rows = raffed.run(
        replace(INCOMPLETE, method="feddf", args=args, federation=Federation(1, 0.3))
    ).to_pandas()
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
