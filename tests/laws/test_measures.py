"""What `federation.measures` adds to a run, and that it adds nothing else."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd
import pytest

import raffed
from raffed import Data, Federation, Local, Numerics, RunConfig
from raffed.errors import UsageError
from tests.tiny import digits

BASE = digits(
    "p5c4", 64, local=Local(0.05, batch_size=64, epochs=1), federation=Federation(2, measures="spectrum")
)


def spectrum(rows: pd.DataFrame) -> pd.DataFrame:
    return rows[rows["metric"].str.startswith("eigenvalue_variance")]


@pytest.fixture(scope="module")
def fedavg() -> raffed.RunResult:
    return raffed.run(BASE)


def test_after_the_last_round_the_global_model_and_each_participant_s_are_measured(
    fedavg: raffed.RunResult,
) -> None:
    rows = spectrum(fedavg.to_pandas())
    assert set(rows["round"]) == {2}
    whole = rows[rows["model"] == "global"].set_index("metric")
    assert whole.loc["eigenvalue_variance", "n"] == 360 // 128  # digits has 360 test images
    assert 0 < whole.loc["eigenvalue_variance", "value"] < 64**2 / 128
    assert set(whole.index) == {"eigenvalue_variance", "eigenvalue_variance_class", "eigenvalue_variance_raw"}
    own = rows[(rows["model"] == "local") & rows["client"].notna()]
    assert len(own) == 5
    mean = rows[(rows["model"] == "local") & rows["client"].isna()]
    assert mean["value"].item() == pytest.approx(own["value"].dropna().mean())


def test_it_leaves_weights_and_all_other_rows_as_they_are(fedavg: raffed.RunResult) -> None:
    without = raffed.run(replace(BASE, federation=Federation(rounds=2)))
    assert without.hashes["weights"] == fedavg.hashes["weights"]
    assert fedavg.metrics.num_rows - len(spectrum(fedavg.to_pandas())) == without.metrics.num_rows


def test_a_method_without_a_global_model_has_only_its_clients_measured() -> None:
    rows = spectrum(
        raffed.run(replace(BASE, method="fedper", federation=Federation(1, measures="spectrum"))).to_pandas()
    )
    assert set(rows["model"]) == {"local"}


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


def test_calibration_and_fairness_add_their_rows_and_change_no_other() -> None:
    data = replace(BASE.data, local_test=0.3)
    plain, asked = (
        raffed.run(replace(BASE, data=data, federation=Federation(rounds=2, measures=words)))
        for words in ("", "calibration,fairness")
    )
    rows = asked.to_pandas()
    new = rows["metric"].isin(["calibration_error", "accuracy_worst_decile", "accuracy_spread"])
    assert set(rows[new]["round"]) == {2}
    assert len(rows[new]) == 1 + 2 * 2  # calibration of the global model; two figures of two kinds of models
    assert len(rows) - len(rows[new]) == plain.metrics.num_rows
    assert asked.hashes["weights"] == plain.hashes["weights"]
    last = rows[(rows["round"] == 2) & (rows["model"] == "personal") & (rows["metric"] == "accuracy")]
    own = last[last["client"].notna() & (last["split"] == "local_test")]["value"]
    spread = rows[(rows["metric"] == "accuracy_spread") & (rows["model"] == "personal")]["value"].item()
    assert spread == pytest.approx(own.std(ddof=0))


def test_the_accuracy_on_the_pooled_training_samples_is_measured_in_every_evaluated_round() -> None:
    """It is Σ correct / Σ n over the clients, and it changes no other row."""
    config = replace(BASE, data=replace(BASE.data, local_test=0.3))
    plain, asked = (
        raffed.run(replace(config, federation=Federation(rounds=4, eval_every=2, measures=words)))
        for words in ("", "training")
    )
    rows = asked.to_pandas()
    new = (rows["model"] == "global") & (rows["split"] == "train") & (rows["metric"] == "accuracy")
    assert rows[new]["round"].tolist() == [2, 4]
    assert rows[new]["client"].isna().all()
    losses = rows[(rows["metric"] == "loss") & (rows["model"] == "local") & (rows["round"] == 1)]
    assert set(rows[new]["n"]) == {int(losses["n"].sum())}  # all five clients take part
    assert len(rows[~new]) == plain.metrics.num_rows
    assert asked.hashes["weights"] == plain.hashes["weights"]


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


def test_a_method_without_a_global_model_has_no_accuracy_on_the_training_samples() -> None:
    config = replace(BASE, method="fedper", federation=Federation(1, measures="training"))
    rows = raffed.run(config).to_pandas()
    assert not ((rows["split"] == "train") & (rows["metric"] == "accuracy")).any()


@pytest.mark.parametrize("cohort", [0, 3])
def test_the_strength_of_terms_is_measured_in_every_evaluated_round_and_changes_no_other_row(
    cohort: int,
) -> None:
    config = replace(BASE, method="fedmr", args={"mu1": 0.1}, numerics=Numerics(cohort=cohort))
    plain, asked = (
        raffed.run(replace(config, federation=Federation(rounds=4, eval_every=2, measures=words)))
        for words in ("", "term_strength")
    )
    rows = asked.to_pandas()
    new = rows["metric"].str.startswith("term_strength")
    assert len(rows[~new]) == plain.metrics.num_rows
    assert asked.hashes["weights"] == plain.hashes["weights"]
    found = rows[new]
    assert set(found["round"]) == {2, 4}
    assert set(found["metric"]) == {
        "term_strength",
        "term_strength_intra_class",
        "term_strength_inter_class",
    }
    assert len(found) == 2 * 2 * 3 * (5 + 1)  # rounds, models, names; participants and their median
    for _, one in found.groupby(["round", "model", "metric"]):
        middle, own = one[one["client"].isna()]["value"].item(), one[one["client"].notna()]["value"]
        assert middle == pytest.approx(own.median())


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


def test_a_method_without_terms_has_no_strengths() -> None:
    rows = raffed.run(replace(BASE, federation=Federation(1, measures="term_strength"))).to_pandas()
    assert not rows["metric"].str.startswith("term_strength").any()
