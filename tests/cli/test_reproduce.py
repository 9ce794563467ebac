"""`raffed reproduce`: says what it will do, does it cell by cell, and goes on where it stopped; with items
that are studies, and with tables of one's own, from a file or a package.
"""

from __future__ import annotations

import json
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from raffed.analysis.runs.conditions import ROUNDING

import raffed
from raffed import Claim
from raffed.api.reproducing import Asked, plan
from raffed.cli import main
from raffed.config.run import RunConfig
from raffed.errors import NumericsError, UnknownNameError, UsageError
from raffed.tables.catalogue import find_item, own_item
from raffed.tables.estimates import Speed, seconds_left, sizes_of
from raffed.tables.item_file import write_item
from raffed.tables.items import Cell, Item
from raffed.tables.planner import (
    PlannedRun,
    claims_first,
    execute_runs,
    finished_otherwise,
    planned_runs,
    state,
)
from tests.cli.conftest import Cli
from tests.own.conftest import lab

__all__ = ["lab"]
ONLY = ["famnist lenet", "fedavg,fedrs"]
TWO = [word for one in ONLY for word in ("--only", one)]


@pytest.fixture(scope="module")
def reproduced(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("reproduce") / "r"
    with pytest.raises(SystemExit) as ended:
        main(["reproduce", "map/table2", *TWO, "--out", str(folder)])
    assert not ended.value.code
    place = folder / "map" / "table2" / "smoke"
    about = json.loads((place / "item.json").read_text())
    assert {cell["row"]: len(cell["runs"]) for cell in about["cells"]} == {"FedAvg": 1, "FedRS": 1}
    assert "| FedRS | FaMnist LeNet |" in (place / "table.md").read_text()
    assert (place / "report" / "report.html").exists()
    return folder


def test_another_table_shares_the_runs_and_runs_nothing(reproduced: Path, cli: Cli) -> None:
    before = {path: path.stat().st_mtime_ns for path in (reproduced / "runs").rglob("run.json")}
    done = cli("reproduce", "map/table1", *TWO, "--out", reproduced)
    assert "0 runs, about 0:00 on this machine; 2 are finished already" in done.err
    assert {path: path.stat().st_mtime_ns for path in (reproduced / "runs").rglob("run.json")} == before


@pytest.mark.more
def test_the_released_code_s_settings_run_beside_the_table_and_the_best_is_shown(
    reproduced: Path, cli: Cli
) -> None:
    """FedRS: three settings, in another mode; FedAvg, which that code repeats, one, weighted otherwise.
    All are new.
    """
    done = cli("reproduce", "map/table2", "--released", *TWO, "--out", reproduced)
    assert done.code == 0, done.err
    assert "4 runs, about" in done.err
    folder = reproduced / "map" / "table2-released" / "smoke"
    fedavg, fedrs = json.loads((folder / "item.json").read_text())["cells"]
    assert [(one["setting"], len(one["runs"])) for one in fedrs["settings"]] == [
        (f"alpha = {a}", 1) for a in (0.9, 0.5, 0.1)
    ]
    assert [one["setting"] for one in fedavg["settings"]] == ["defaults"]
    assert (len(fedavg["runs"]), len(fedrs["runs"])) == (1, 3)
    table = (folder / "table.md").read_text()
    assert "| Best setting |" in table
    assert " | defaults |" in table


def written(key: str, scale: str, out: Path, only: list[str]) -> dict[str, Any]:
    """What item.json says of the planned runs of some of an item's columns."""
    item = find_item(key)
    return json.loads(write_item(item, scale, out, planned_runs(item, scale, out, only, seeds=1)).read_text())


def test_an_average_is_of_its_scale_s_columns_and_is_not_shown_for_a_part_of_them(tmp_path: Path) -> None:
    """VGG8-BN is too large for the proxy; claims on the average go with it, and without it are not made."""
    for scale, columns in {"proxy": 2, "full": 3}.items():
        about = written("map/table3-aggregation", scale, tmp_path, [])
        averages = [(one["column"], len(one["of"]), one["whole"]) for one in about["averages"]]
        assert averages == [("mean", columns, 3)]
        assert len(about["claims"]) == 9
    about = written("map/table3-aggregation", "proxy", tmp_path, ["famnist"])
    assert about["averages"] == about["claims"] == []


def test_tables_of_finished_runs_run_none(
    reproduced: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("raffed.tables.estimates._probed", lambda config: pytest.fail("probed"))
    done = cli("reproduce", "map/table2", "--only", "famnist lenet", "--tables", "--out", reproduced)
    assert done.code == 0, done.err
    assert "0 runs, about 0:00 on this machine; 2 are finished already" in done.err
    assert state(find_item("map/table2"), reproduced).startswith("smoke ")
    table = (reproduced / "map" / "table2" / "smoke" / "table.md").read_text()
    assert "| MAP | FaMnist LeNet |" in table
    assert "| FedRS | FaMnist LeNet |" in table


def test_runs_slower_than_estimated_end_at_the_budget(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of four is estimated at 10 s and takes 30: of 45 s, one is all that fits."""
    clock = [0.0]
    monkeypatch.setattr("raffed.tables.planner.time.monotonic", lambda: clock[0])
    found = [
        replace(job, seconds=10.0)
        for job in planned_runs(find_item("fedmr/table6"), "smoke", tmp_path, ["fmnist p5c2"], seeds=1)
    ]
    ran: list[PlannedRun] = []

    def run(job: PlannedRun) -> None:
        ran.append(job)
        clock[0] += 30.0

    after = execute_runs(found, run, 45.0)
    assert len(ran) == 1
    assert [bool(job.left_out) for job in after] == [False, True, True, True]


def test_a_diverged_run_spoils_no_table(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Per-FedAvg with the largest rate that MAP's code tries does so in some cells; the exit code tells
    of it.
    """
    run = raffed.run

    def diverging(config: RunConfig, *args: Any, **named: Any) -> Any:
        if config.method == "fedprox":
            raise NumericsError("the loss of client 3 is nan")
        return run(config, *args, **named)

    monkeypatch.setattr("raffed.runs.run.run", diverging)
    only = ["--only", "famnist lenet", "--only", "fedavg,fedprox,fedrs"]
    done = cli("reproduce map/table2", *only, "--out", tmp_path)
    assert done.code == 1
    assert "1 run diverged; the tables leave out " in done.err
    about = json.loads((tmp_path / "map" / "table2" / "smoke" / "item.json").read_text())
    runs = {cell["row"]: len(cell["runs"]) for cell in about["cells"]}
    assert runs == {"FedAvg": 1, "FedProx": 0, "FedRS": 1}
    assert about["left_out"] == ["FedProx, FaMnist LeNet: diverged: seed 0: the loss of client 3 is nan"]
    assert (tmp_path / "map" / "table2" / "smoke" / "table.md").exists()


@pytest.mark.parametrize("first", ["diverging", "lost"])
def test_a_row_stops_no_other_row_with_which_it_shares_a_probe(tmp_path: Path, first: str) -> None:
    """Neither one whose training diverges in its first steps, nor one whose own code is gone."""
    base = raffed.RunConfig(data=raffed.Data("digits", "iid:5", local_test=0.2))
    changes = {"diverging": {"local.lr": 900.0}, "lost": {"loss": "./lost.py:loss"}, "FedAvg": {}}
    rows = dict.fromkeys([first, *changes])
    item = raffed.table("t", "T", {(row, "digits"): base.changed(changes[row]) for row in rows})
    serial = raffed.Runtime(execution="serial")
    jobs = plan(Asked(item, "full", tmp_path, (), 1, serial), None, lambda text: None)
    left_out = {job.cells[0].row: job.left_out for job in jobs if isinstance(job, PlannedRun)}
    assert left_out["diverging"] == left_out["FedAvg"] == ""
    assert "lost.py: there is no such file" in left_out["lost"]
    assert len({job.seconds for job in jobs if not job.left_out}) == 1, "they share a probe"


def test_the_estimate_is_rounds_times_steps_times_seconds(tmp_path: Path) -> None:
    """FedMR's p5c2 on digits: five clients; 1,442 - 288 tested = 1,154 samples in batches of 16, two
    rounds of one epoch.
    """
    job = planned_runs(find_item("fedmr/table6"), "smoke", tmp_path, ["fmnist p5c2"], seeds=1)[0]
    found = seconds_left(job, Speed(step=0.01, evaluation=1.0), sizes_of(job.config))
    steps = found / 2 - 1.0
    assert steps == pytest.approx(0.01 * 1154 / 16, rel=0.05)


def test_an_item_of_which_nothing_can_be_run_or_is_finished_is_refused(cli: Cli, tmp_path: Path) -> None:
    """A job script would take a 0 for success; what stands in the way is said first."""
    gone, out = tmp_path / "gone", tmp_path / "out"
    words = ["reproduce map/table1", "--out", out]
    none = cli(*words, "--scale", "proxy", "--only", "FaMnist LeNet", "--data-root", gone)
    empty = cli(*words, "--tables")
    assert (none.code, empty.code) == (2, 2)
    assert "map/table1: none of its cells can be run here" in none.err
    assert str(gone) in none.err
    assert "map/table1: none of its cells is finished here" in empty.err


# A budget is filled with whole claims. The seconds of runs are made up.

SECONDS = {"fedavg": 10.0, "fedprox": 20.0, "map": 40.0}
ITEM = Item(
    "lab",
    "table",
    "A table",
    "accuracy_best",
    tuple(Cell(method, "digits", RunConfig(method), {}) for method in SECONDS),
    claims=(
        Claim.above("MAP is above FedAvg", "map", "fedavg", "digits"),
        Claim.above("FedProx is above FedAvg", "fedprox", "fedavg", "digits"),
    ),
)


@pytest.mark.parametrize(
    ("seconds", "missing", "first", "undecided"),
    [
        (140.0, "", "fedavg0 map0 fedavg1 map1 fedprox0 fedprox1", []),
        (120.0, "", "fedavg0 map0 fedavg1 map1 fedprox0", ["FedProx"]),
        (99.0, "", "fedavg0 fedprox0 fedavg1 fedprox1", ["MAP"]),
        (59.0, "", "fedavg0 fedprox0 fedavg1", ["MAP", "FedProx"]),
        # A claim whose data are missing takes no time from others
        (60.0, "map", "fedavg0 fedprox0 fedavg1 fedprox1", []),
    ],
)
def test_whole_claims_come_before_parts_of_others(
    tmp_path: Path, seconds: float, missing: str, first: str, undecided: list[str]
) -> None:
    """One run of each method takes 70 s, MAP's claim 100 s with two seeds, and FedProx's 60 s."""
    jobs = [
        replace(job, seconds=SECONDS[job.config.method], left_out=left_out)
        for job in planned_runs(ITEM, "full", tmp_path, (), 2)
        for left_out in ["missing: data" if job.config.method == missing else ""]
    ]
    kept, too_long = claims_first(ITEM, jobs, seconds)
    assert [f"{job.cells[0].row}{job.seed}" for job in kept if not job.left_out] == first.split()
    assert [claim.text.split()[0] for claim in too_long] == undecided
    assert {job.folder for job in kept} == {job.folder for job in jobs}


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
    ("MyProx", "digits"): BASE.changed({"method": "./prox.py:myprox", "args": {"mu": 0.2}}),
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
def tables(lab: Path) -> Path:
    """The user's folder, with tables of their method."""
    (lab / "items.py").write_text(ITEMS, encoding="utf-8")
    return lab


def test_a_table_of_a_file_runs_gets_verdicts_goes_on_and_refuses_changed_files(
    tables: Path, cli: Cli
) -> None:
    asked = ("reproduce", "--items", "./items.py:TABLE", *FULL)
    done = cli(*asked)
    assert done.code == 0, done.err
    folder = tables / "out" / "own" / "prox" / "full"
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
    method = (tables / "prox.py").read_text(encoding="utf-8")
    (tables / "prox.py").write_text(f"{method}# edited\n", encoding="utf-8")
    refused = cli(*asked)
    assert refused.code == 2
    assert "prox.py has changed since the run was begun with ./prox.py:myprox" in refused.err
    (tables / "prox.py").write_text(method, encoding="utf-8")
    (tables / "items.py").write_text(ITEMS.replace("99.9", "98.9"), encoding="utf-8")
    refused = cli(*asked)
    assert refused.code == 2
    assert "items.py changed since this table was begun" in refused.err
    accepted = cli(*asked, "--accept-changed-code")
    assert accepted.code == 0, accepted.err
    changed = json.loads((folder / "item.json").read_text())
    assert [one["file"] for one in changed["accepted_changes"]] == ["items.py"]


MANY = """
import raffed
from raffed import Clock, Data, Federation, Local, Model, RunConfig, Runtime

BASE = RunConfig(
    data=Data(dataset="digits", split="dirichlet:20:5", samples=400, local_test=0.2),
    model=Model("mlp", {"hidden": [8]}),
    federation=Federation(rounds=4, participation=0.25),
    runtime=Runtime(execution="serial"),
)
BUFFER = BASE.changed({"clock.speeds": "lognormal", "clock.server": "fedbuff", "clock.buffer": 3})
ASKED = {
    "fixed": {
        "federation.participation": 1.0,
        "federation.selection": "fixed",
        "federation.selection_args": {"clients": "12,13"},
    },
    "candidates": {
        "federation.selection": "power_of_choice",
        "federation.selection_args": {"candidates": 15},
    },
    "crash": {"faults.at": "drop 13@4"},
    "new": {"federation.unseen_clients": 0.05},
    "attackers": {"faults.attack": "label_flip", "faults.attackers": 0.05},
    "listed": {"faults.attack": "label_flip", "faults.attacker_list": "13"},
}
CELLS = {"buffer": BUFFER, **{row: BASE.changed(changes) for row, changes in ASKED.items()}}
TABLE = raffed.table("many", "Options", {(row, "digits"): run for row, run in CELLS.items()})
NONE = BASE.changed({"federation.unseen_clients": 0.01})
NONE = raffed.table("none", "Nobody is new", {("FedAvg", "digits"): NONE})
"""


@pytest.mark.parametrize("scale", ["smoke", "full"])
def test_options_that_number_clients_and_rounds_are_tried_and_run(lab: Path, cli: Cli, scale: str) -> None:
    """Also at smoke scale, which has other numbers of clients and rounds, and also where a server waits."""
    (lab / "items.py").write_text(MANY, encoding="utf-8")
    done = cli("reproduce", "--items", "./items.py:TABLE", *FULL, "--scale", scale)
    assert done.code == 0, done.err
    item = json.loads((lab / "out" / "own" / "many" / scale / "item.json").read_text())
    assert [len(cell["runs"]) for cell in item["cells"]] == [1] * 7


def test_a_cell_that_cannot_be_set_up_is_left_out_with_its_reason(lab: Path, cli: Cli) -> None:
    (lab / "items.py").write_text(MANY, encoding="utf-8")
    refused = cli("reproduce", "--items", "./items.py:NONE", *FULL)
    assert refused.code == 2
    assert "none of its cells can be run here" in refused.err
    assert "federation.unseen_clients = 0.01 of 20 clients is none of them" in refused.err


def test_several_tables_are_listed_and_one_is_chosen_by_its_name(tables: Path, cli: Cli) -> None:
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
def test_a_table_in_stacks_takes_runs_one_client_at_a_time_and_the_reverse(tables: Path, cli: Cli) -> None:
    asked = ("reproduce", "--items", "./items.py:TABLE", *FULL)
    first = cli(*asked, "--only", "fedavg", "--cohort", "2")
    assert first.code == 0, first.err
    (stacked,) = (tables / "out" / "runs" / "full").iterdir()
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
    assert {path.name for path in (tables / "out" / "runs" / "full").iterdir()} > {stacked.name}
    again = cli(*asked, "--cohort", "2")
    assert "0 runs" in again.err
    assert "2 are finished already" in again.err


def test_what_changes_rounding_only_counts_as_finished_and_may_be_compared() -> None:
    """A run that counts as finished is not made again, so a table that left it out would keep a hole.

    The test above takes one field after the other; a new setting of the numerics must be sorted here.
    """
    names = {field.name for field in fields(raffed.Numerics())}
    assert {f"numerics.{name}" for name in names - {"precision"}} == ROUNDING
