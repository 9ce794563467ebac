"""`raffed reproduce` with items that are studies, and with tables of one's own, from a file or a package."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path

import pytest
from raffed.analysis.runs.conditions import ROUNDING

import raffed
from raffed.config.run import RunConfig
from raffed.errors import UnknownNameError, UsageError
from raffed.tables.catalogue import find_item, own_item
from raffed.tables.planner import finished_otherwise, state
from tests.cli.conftest import Cli

FIGURE = "fedmr/fig2"


@pytest.mark.more
def test_a_study_leaves_rows_item_table_and_report_and_is_not_made_twice(tmp_path: Path, cli: Cli) -> None:
    done = cli("reproduce", FIGURE, "--seeds", "2", "--out", tmp_path)
    assert done.code == 0, done.err
    folder = tmp_path / "fedmr" / "fig2" / "smoke"
    about = json.loads((folder / "item.json").read_text())
    assert [(folder / name / "study.json").exists() for name in about["studies"]] == [True, True]
    assert "2 of 2 seeds" in (folder / "table.md").read_text()
    assert "45.000°" in (folder / "report" / "report.html").read_text()
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("study.json")}
    names = {f"study-averaged_classifiers-s{seed}" for seed in range(2)}
    assert {path.parent.name for path in before} == names
    assert "study for 1 seed (" in cli("reproduce", FIGURE, "--seeds", "3", "--out", tmp_path).err
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert len(list(tmp_path.rglob("study.json"))) == 3


def test_a_plan_makes_nothing_and_the_list_tells_the_state(tmp_path: Path, cli: Cli) -> None:
    planned = cli("reproduce", FIGURE, "--scale", "proxy", "--plan", "--out", tmp_path)
    assert "study for 3 seeds" in planned.err
    refused = cli("reproduce map/fig8 --cohort 2", "--out", tmp_path)
    assert "numerics.cohort = 2 has no effect on map/fig8, which is a study without runs" in refused.err
    assert not list(tmp_path.iterdir())
    assert state(find_item(FIGURE), tmp_path) == "never run"
    cli("reproduce", FIGURE, "--out", tmp_path)
    assert state(find_item(FIGURE), tmp_path) == "smoke"


METHOD = """
from raffed import Method, Term


class Pull(Term):
    mu: float

    def loss(self, f, k):
        return self.mu / 2 * (f.w - k.w0).sq_norm()


def myprox(mu: float = 0.1) -> Method:
    return Method("MyProx", terms=(Pull(mu),))
"""
ITEMS = """
import raffed
from raffed import Data, Federation, Local, Model, RunConfig

BASE = RunConfig(
    data=Data(dataset="digits", split="iid:4"),
    model=Model("mlp", {"hidden": [8]}),
    local=Local(lr=0.1, epochs=1),
    federation=Federation(rounds=2),
)
RUNS = {
    ("FedAvg", "digits"): BASE,
    ("MyProx", "digits"): BASE.changed({"method": "./mine.py:myprox", "args": {"mu": 0.2}}),
}
TABLE = raffed.table(
    "prox",
    "My method beside FedAvg",
    RUNS,
    printed={("FedAvg", "digits"): 50.0, ("MyProx", "digits"): 99.9},
    margin=100.0,
    claims=[raffed.Claim.above("MyProx is better", "MyProx", "FedAvg", "digits")],
)


def both():
    return [TABLE, raffed.table("other", "Another", {("FedAvg", "digits"): BASE})]
"""
FULL = ("--scale", "full", "--seeds", "1", "--execution", "serial", "--out", "out")


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    known = set(sys.modules)
    (tmp_path / "mine.py").write_text(METHOD, encoding="utf-8")
    (tmp_path / "items.py").write_text(ITEMS, encoding="utf-8")
    yield tmp_path
    for name in set(sys.modules) - known:
        if name.startswith("raffed_file_"):
            del sys.modules[name]


def test_a_table_of_a_file_runs_gets_verdicts_goes_on_and_refuses_changed_files(lab: Path, cli: Cli) -> None:
    asked = ("reproduce", "--items", "./items.py:TABLE", *FULL)
    done = cli(*asked)
    assert done.code == 0, done.err
    folder = lab / "out" / "own" / "prox" / "full"
    about = json.loads((folder / "item.json").read_text())
    assert list(about["source"]["files"]) == ["items.py"]
    assert about["source"]["reference"] == "./items.py:TABLE"
    table = (folder / "table.md").read_text()
    assert "| FedAvg | digits | 50.00 |" in table
    assert "| MyProx | digits | 99.90 |" in table
    assert table.count("| too few seeds |") == 3  # one seed is never a verdict
    verdicts = json.loads((folder / "verdicts.json").read_text())
    assert [row["kind"] for row in verdicts] == ["cell", "cell", "claim"]
    shown = cli(*asked, "--tables", "--json")
    assert [event for event in shown.events if event.pop("event") == "verdict"] == verdicts
    assert "MyProx is better" in table
    assert (folder / "report" / "report.html").exists()
    again = cli(*asked)
    assert "2 are finished already" in again.err
    (lab / "mine.py").write_text(METHOD + "# edited\n", encoding="utf-8")
    refused = cli(*asked)
    assert refused.code == 2
    assert "mine.py has changed since the run was begun with ./mine.py:myprox" in refused.err
    (lab / "mine.py").write_text(METHOD, encoding="utf-8")
    (lab / "items.py").write_text(ITEMS.replace("99.9", "98.9"), encoding="utf-8")
    refused = cli(*asked)
    assert refused.code == 2
    assert "items.py changed since this table was begun" in refused.err
    accepted = cli(*asked, "--accept-changed-code")
    assert accepted.code == 0, accepted.err
    changed = json.loads((folder / "item.json").read_text())
    assert [one["file"] for one in changed["accepted_changes"]] == ["items.py"]


def test_several_tables_are_listed_and_one_is_chosen_by_its_name(lab: Path, cli: Cli) -> None:
    listed = cli("reproduce", "--items", "./items.py:both", "--list")
    assert "own/prox" in listed.out
    assert "own/other" in listed.out
    planned = cli("reproduce", "other", "--items", "./items.py:both", "--plan", *FULL)
    assert planned.code == 0, planned.err
    assert "own/other (Another), full" in planned.err
    for name, error, said in (
        (None, UsageError, "has 2 tables"),
        ("prix", UnknownNameError, "nearest: prox"),
    ):
        with pytest.raises(error, match=said):
            own_item("./items.py:both", name)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": "My Table"}, "use small letters"),
        ({"paper": "fedmr"}, "is a paper of raffed's own"),
        ({"runs": {"FedAvg": RunConfig()}}, "is not a pair of texts"),
        ({"printed": {("FedAvg", "y"): 1.0}}, r"cell of table t: a printed number '\(FedAvg, y\)'"),
        ({"claims": [raffed.Claim.above("c", "A", "B", "x")]}, "the claim 'c'"),
    ],
)
def test_a_table_that_does_not_fit_is_refused_in_one_line(changes: dict, message: str) -> None:
    given = {"name": "t", "title": "T", "runs": {("FedAvg", "x"): RunConfig()}, **changes}
    with pytest.raises(UsageError, match=message):
        raffed.table(**given)


@pytest.mark.more
def test_a_table_in_stacks_takes_runs_one_client_at_a_time_and_the_reverse(lab: Path, cli: Cli) -> None:
    asked = ("reproduce", "--items", "./items.py:TABLE", *FULL)
    first = cli(*asked, "--only", "fedavg", "--cohort", "2")
    assert first.code == 0, first.err
    (stacked,) = (lab / "out" / "runs" / "full").iterdir()
    config = RunConfig.from_dict(json.loads((stacked / "run.json").read_text())["config"])
    assert config.numerics.cohort == 2
    for other in ({}, {"cohort": 3}, {"bits": "portable"}, {"convolutions": "compiled"}):
        again = replace(config, numerics=raffed.Numerics(**other))
        assert finished_otherwise(again, [stacked]) == stacked
    bf16 = replace(config, numerics=raffed.Numerics(precision="bf16"))
    assert finished_otherwise(bf16, [stacked]) is None
    whole = cli(*asked)
    assert "1 run" in whole.err
    assert "1 are finished already" in whole.err
    assert "or with other threads, bits or convolutions): 1 finished run" in whole.err
    assert {path.name for path in (lab / "out" / "runs" / "full").iterdir()} > {stacked.name}
    again = cli(*asked, "--cohort", "2")
    assert "0 runs" in again.err
    assert "2 are finished already" in again.err


def test_what_changes_rounding_only_counts_as_finished_and_may_be_compared() -> None:
    """A run that counts as finished is not made again, so a table that left it out would keep a hole.

    The test above takes one field after the other; a new setting of the numerics must be sorted here.
    """
    names = {field.name for field in fields(raffed.Numerics())}
    assert {f"numerics.{name}" for name in names - {"precision"}} == ROUNDING
