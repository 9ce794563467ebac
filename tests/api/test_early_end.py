"""Early stopping and the best model: the rule and its round, decided on validation data, recorded, resumable,
verifiable.
"""

from __future__ import annotations

import copy
import math
import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import raffed
from raffed import Federation, Local, RunConfig, Runtime
from raffed.config.federation import MEASURES, StopRule, ValidationCurve, read_rule
from raffed.config.validation import Value
from raffed.data.dataset import Dataset
from raffed.errors import UsageError
from raffed.results.runfile import read_run
from raffed.runs.checkpoint import values_in
from raffed.runtime import setup_model
from tests.api.test_branching import verified
from tests.forging import edited
from tests.tiny import digits

RULE = "val.accuracy no better for 3 rounds"
BASE = digits(
    "dirichlet:4:0.5",
    16,
    local=Local(lr=0.3, batch_size=16, epochs=2),
    federation=Federation(40, 0.5, stop_when=RULE),
    samples=300,
    validation=0.2,
).changed({"runtime.checkpoint_every": 2})


Ended = tuple[raffed.RunResult, Path]


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Ended:
    out = tmp_path_factory.mktemp("early") / "run"
    return raffed.run(BASE, out), out


def test_the_run_ends_three_rounds_after_its_best_one(ended: Ended) -> None:
    result, out = ended
    about, values = read_run(out), dict(values_in(result.metrics, "val.accuracy"))
    best = min(round for round, value in values.items() if value == max(values.values()))
    assert about["state"] == result.state == "finished"
    assert about["rounds_done"] == best + 3 < 40
    assert result.best_round == best
    assert result.ended_early.startswith(f"{RULE} (best ")


def test_verify_checks_the_end_and_the_best_round(ended: Ended) -> None:
    found = [one.what for one in raffed.verify(ended[1], 99, progress=False).checks]
    assert "end by federation.stop_when" in found
    assert "best round" in found
    assert verified(ended[1]) == []


@pytest.mark.parametrize(
    "forge", [lambda about: about["best"].update(round=1), lambda about: about.pop("ended_early")]
)
def test_another_best_round_or_end_in_run_json_is_found_out(
    ended: Ended, tmp_path: Path, forge: Callable[[dict[str, Any]], object]
) -> None:
    shutil.copytree(ended[1], tmp_path / "run")
    edited(tmp_path / "run" / "run.json", forge)
    assert verified(tmp_path / "run") != []


def test_verify_finds_a_changed_bit_in_any_best_model(ended: Ended, tmp_path: Path) -> None:
    for file in ended[1].glob("checkpoints/*/best.safetensors"):
        run = Path(shutil.copytree(ended[1], tmp_path / file.parent.name))
        raw = bytearray(file.read_bytes())
        raw[-1] ^= 1
        (run / file.relative_to(ended[1])).write_bytes(raw)
        failed = [one.what for one in raffed.verify(run, 0, progress=False).checks if not one.ok]
        assert failed == [f"{file.parent.name}, best.safetensors"]


@pytest.mark.parametrize("after", [1, 4])
def test_a_resumed_run_ends_in_the_same_round(ended: Ended, tmp_path: Path, after: int) -> None:
    result, out = ended
    rounds = iter(range(1, 99))
    run = tmp_path / "run"
    assert raffed.run(BASE, run, stop=lambda: next(rounds) == after).state == "stopped"
    again = raffed.resume(run)
    assert (again.best_round, again.ended_early) == (result.best_round, result.ended_early)
    assert again.hashes == result.hashes
    assert (run / "best.safetensors").read_bytes() == (out / "best.safetensors").read_bytes()


def test_permuted_test_labels_change_neither_the_end_nor_the_best_model(
    ended: Ended, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result, out = ended
    load = setup_model.load_data

    def permuted(asked: RunConfig, recorded: Mapping[str, Any] | None = None) -> tuple[Dataset, str]:
        data, found = load(asked, recorded)
        labels = np.random.default_rng(3).permutation(data.y_test)
        again = copy.copy(data)
        object.__setattr__(again, "y_test", labels)
        return again, found

    monkeypatch.setattr(setup_model, "load_data", permuted)
    other = raffed.run(BASE, tmp_path / "run")
    assert other.accuracy != result.accuracy
    assert (other.ended_early, other.best_round) == (result.ended_early, result.best_round)
    assert read_run(tmp_path / "run")["round_hashes"] == read_run(out)["round_hashes"]
    best = (tmp_path / "run" / "best.safetensors").read_bytes()
    assert best == (out / "best.safetensors").read_bytes()


def test_the_exported_best_model_has_the_weights_of_the_best_round(ended: Ended, tmp_path: Path) -> None:
    result, out = ended
    assert result.best_round is not None
    short = BASE.changed({"federation.stop_when": "", "federation.rounds": result.best_round})
    raffed.run(short, tmp_path / "short")
    raffed.export(out, tmp_path / "best.pt", best=True)
    raffed.export(tmp_path / "short", tmp_path / "last.pt")
    best, last = (torch.load(tmp_path / name, weights_only=True) for name in ("best.pt", "last.pt"))
    assert best.keys() == last.keys()
    assert all(torch.equal(best[name], last[name]) for name in best)


def test_a_run_without_validation_part_has_no_best_model(tmp_path: Path) -> None:
    changes: dict[str, Value] = {"federation.stop_when": "", "federation.rounds": 1, "data.validation": 0.0}
    assert raffed.run(BASE.changed(changes), tmp_path / "run").best_round is None
    with pytest.raises(UsageError, match="no best model was kept"):
        raffed.export(tmp_path / "run", tmp_path / "best.pt", best=True)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"data.validation": 0.0}, "also give --validation"),
        ({"federation.survey": 1}, "federation.survey"),
        ({"method": "fedrep"}, "has no global model; use val.personal"),
        ({"federation.stop_when": "accuracy above 0.9"}, "test data may not decide"),
    ],
    ids=str,
)
def test_a_rule_that_does_not_fit_the_run_is_refused_before_it_begins(
    changes: Mapping[str, Value], reason: str, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=reason):
        raffed.run(BASE.changed(changes), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_run_that_its_rule_ended_is_forked_and_not_extended(ended: Ended, tmp_path: Path) -> None:
    _, out = ended
    with pytest.raises(UsageError, match="raffed fork"):
        raffed.extend(out, 50)
    done = read_run(out)["rounds_done"]
    changes: dict[str, Value] = {"federation.stop_when": "", "federation.rounds": done + 1}
    assert raffed.fork(out, changes, tmp_path / "fork").state == "finished"
    assert read_run(tmp_path / "fork")["rounds_done"] == done + 1


def test_the_rounds_before_a_fork_are_not_judged_by_its_rule(ended: Ended, tmp_path: Path) -> None:
    """The loss of the first round was above the bound of the rule, and that of the shared last one is not."""
    losses = dict(values_in(ended[0].metrics, "val.loss"))
    at = min(losses, key=losses.__getitem__)
    rule = f"val.loss above {(losses[1] + losses[at]) / 2}"
    changes: dict[str, Value] = {"federation.stop_when": rule, "federation.rounds": at + 1}
    raffed.fork(ended[1], changes, tmp_path / "fork", at=at)
    assert read_run(tmp_path / "fork")["rounds_done"] == at + 1
    assert verified(tmp_path / "fork") == []


@pytest.mark.slow
def test_a_run_on_ray_ends_where_the_serial_one_does(ended: Ended, tmp_path: Path) -> None:
    again = raffed.run(replace(BASE, runtime=Runtime(execution="ray", actors=2)), tmp_path / "run")
    assert (again.hashes, again.ended_early) == (ended[0].hashes, ended[0].ended_early)


NAN = math.nan


def ends(text: str, values: list[float], every: int = 1) -> int | None:
    """The number of rounds done when the rule ends a run with these values, evaluated every few rounds."""
    rule = read_rule(text)
    assert rule is not None
    curve = ValidationCurve(rule.measure)
    for index, value in enumerate(values):
        round = (index + 1) * every
        curve.values[round] = value
        if rule.reason(curve, round):
            return round
    return None


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("val.accuracy no better for 20 rounds", StopRule("val.accuracy", "waiting", 20)),
        ("val.loss no better for 3 rounds by 1e-3", StopRule("val.loss", "waiting", 3, 0.001)),
        ("val.personal above 0.9", StopRule("val.personal", "above", 0, 0.9)),
    ],
)
def test_a_text_stands_for_a_rule(text: str, rule: StopRule) -> None:
    assert read_rule(text) == rule


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("val.accuracy", "no better for 20 rounds"),
        ("val.accuracy no better for 0 rounds", "no better for 20 rounds"),
        ("val.accuracy above 0.9 or so", "no better for 20 rounds"),
        *(
            (f"{one} no better for 2 rounds", "test data may not decide")
            for one in ("test.accuracy", "global")
        ),
    ],
)
def test_another_text_is_refused_with_an_example_and_test_data_cannot_end_a_run(text: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        read_rule(text)


@pytest.mark.parametrize(
    ("text", "values", "round"),
    [
        # The best is that of round 2; round 4 is the second round after it
        ("val.accuracy no better for 2 rounds", [0.1, 0.5, 0.4, 0.5, 0.9], 4),
        ("val.accuracy no better for 2 rounds", [0.1, 0.2, 0.3, 0.4], None),
        # An improvement by 0.05 does not count if 0.1 is asked for
        ("val.accuracy no better for 2 rounds by 0.1", [0.5, 0.55, 0.58, 0.9], 3),
        ("val.accuracy no better for 3 rounds by 0.1", [0.5, 0.55, 0.61, 0.65], None),
        ("val.loss no better for 1 round", [3.0, 2.0, 2.0], 3),
        ("val.accuracy no better for 2 rounds", [NAN, NAN, 0.1], 2),
        ("val.accuracy above 0.5", [0.5, 0.51], 2),
        ("val.loss below 0.5", [0.5, 0.49], 2),
    ],
)
def test_a_rule_ends_the_run_in_its_first_round(text: str, values: list[float], round: int | None) -> None:
    """It counts rounds and not evaluations: of those after rounds 5, 10 and 15 the last is 10 rounds after
    the best.
    """
    assert ends(text, values) == round
    assert ends("val.accuracy no better for 10 rounds", [0.5, 0.4, 0.3], every=5) == 15


@pytest.mark.parametrize(("measure", "larger"), MEASURES.items())
def test_the_best_round_is_the_earliest_of_equals(measure: str, larger: bool) -> None:
    values = [0.2, 0.7, 0.7, 0.5] if larger else [0.7, 0.2, 0.2, 0.5]
    curve = ValidationCurve(measure, enumerate(values, 1))
    assert curve.best() == (2, values[1])
