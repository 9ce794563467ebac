"""What a terminal, a log, a program and a page that loads itself show of runs, a machine and data of one's
own. Listings answer at once and tell the truth; every command's help fits on a screen.
"""

from __future__ import annotations

import dataclasses
import functools
import io
import json
import logging
import os
import re
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import typer.core
from PIL import Image
from rich.cells import cell_len
from rich.console import Console
from typer.testing import CliRunner

import raffed
from raffed.api.running import Run
from raffed.cli import checking, tables
from raffed.cli.app import app
from raffed.cli.messages import GONE, count_warning, repeated_warnings
from raffed.cli.options import FLAGS, NUMBERS, PRESET
from raffed.cli.screen import BarScreen, LineScreen, Overall, Screen, make_screen
from raffed.cli.tables import show_summary
from raffed.config.run import RunConfig
from raffed.data.catalogue import DATASETS
from raffed.data.datasets import load_dataset
from raffed.data.splits import SPLITS
from raffed.methods import METHODS
from raffed.models import MODELS
from tests.cli.conftest import Cli, command_tree
from tests.docs.code_blocks import ROOT
from tests.tiny import digits
from tests.warm import python

BEGIN = {"event": "begin", "title": "a run", "rounds": 2000}
ROUND = {
    **{"event": "round", "round": 1234, "rounds": 2000, "loss": 2.3014, "accuracy": 0.1234},
    **{"personal": 0.5678, "participants": 10, "seconds": 0.5},
}
ERROR = "raffed: fedavg, seed 1: the loss is nan"


def two_runs_are_shown(screen: Screen) -> None:
    """The first finishes, the second fails."""
    several = [
        Run(f"fedavg, seed {k}", RunConfig(seed=k), Path(f"out/seed-{k}"), {"method": "fedavg", "seed": k})
        for k in range(2)
    ]
    for run in several:
        screen.show({**BEGIN, "title": run.title}, run=run)
        screen.show({**ROUND, "round": 500, **run.about}, run=run)
    finished = {"folder": "out/seed-0", "accuracy": 0.5, "personalization": None}
    screen.show({"event": "finished", **several[0].about, **finished}, run=several[0])
    screen.show({"event": "failed", **several[1].about, "message": "the loss is nan"}, run=several[1])


@pytest.mark.parametrize("kind", [LineScreen, BarScreen])
def test_several_runs_end_in_a_line_each(kind: type[LineScreen], capsys: pytest.CaptureFixture[str]) -> None:
    screen = kind()
    screen.overall = Overall(61)
    two_runs_are_shown(screen)
    screen.close()
    told = capsys.readouterr()
    assert "fedavg, seed 0: done  aggregation 50.0 %  personalization –" in told.out
    assert ERROR in told.out + told.err
    assert ("fedavg, seed 0: round 500/2000  loss 2.301" in told.out) == (kind is LineScreen)
    assert re.fullmatch(r"run 2 of 61, about [\d:]+ left", screen.overall.text)


def test_a_program_gets_every_event_and_a_quiet_person_folders(capsys: pytest.CaptureFixture[str]) -> None:
    with make_screen(as_json=True) as screen:
        two_runs_are_shown(screen)
        print("a library's notice")
    told = capsys.readouterr()
    events = [json.loads(line) for line in told.out.splitlines()]
    assert [(event["event"], event["method"], event["seed"]) for event in events] == [
        ("round", "fedavg", 0),
        ("round", "fedavg", 1),
        ("finished", "fedavg", 0),
        ("failed", "fedavg", 1),
    ]
    assert told.err.splitlines() == [ERROR, "a library's notice"]
    two_runs_are_shown(make_screen(as_json=False, quiet=True))
    assert capsys.readouterr() == ("out/seed-0\n", f"{ERROR}\n")


def test_warnings_of_all_processes_are_repeated_at_the_end(capsys: pytest.CaptureFixture[str]) -> None:
    log = logging.getLogger("raffed.runs.run")
    with repeated_warnings(["compare"]):
        log.warning("only %d", 1)
        log.info("no warning")
        log.error("an error is shown by itself")
        count_warning("only 1")
        count_warning("of another process")
    last = capsys.readouterr().err.splitlines()[-3:]
    assert last == ["raffed: 3 warnings:", "  only 1 (2 times)", "  of another process"]


def test_the_page_is_written_again_and_loads_itself_until_ctrl_c(
    cli: Cli, finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs, page = tmp_path / "runs", tmp_path / "out" / "report.html"
    seen: list[str] = []
    steps = iter(
        [
            lambda: seen.append("a page" if page.exists() else "no page yet"),
            lambda: shutil.copytree(finished, runs / "a"),
            lambda: seen.append(page.read_text(encoding="utf-8")),
            lambda: shutil.copytree(finished, runs / "b"),
            lambda: seen.append(page.read_text(encoding="utf-8")),
            lambda: os.kill(os.getpid(), signal.SIGINT),
        ]
    )
    monkeypatch.setattr(checking, "nap", lambda _: next(steps)())
    done = cli("report", runs, "--out", tmp_path / "out", "--watch")
    assert done.code == 0, "Ctrl-C is how it ends"
    assert "Traceback" not in done.err
    assert seen[0] == "no page yet"
    assert 'data-reload="5.0"' in seen[1]
    assert "<b>1</b> run<" in seen[1]
    assert "<b>2</b> runs<" in seen[2]
    assert page.read_text(encoding="utf-8") == seen[2].replace(' data-reload="5.0"', "", 1)
    left = sorted(path.name for path in page.parent.iterdir())
    assert left == ["curves.png", "report.html", "summary.csv", "summary.md"], "nothing half-written stays"


@pytest.mark.parametrize("width", [24, 80, 120])
def test_a_narrow_terminal_keeps_the_number_of_the_round(
    width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    screen, shown = BarScreen(), io.StringIO()
    screen.show(BEGIN)
    screen.show(ROUND)
    assert screen.bar is not None
    Console(file=shown, width=width).print(screen.bar.get_renderable())
    screen.close()
    [line] = shown.getvalue().splitlines()
    assert len(line) <= width
    assert " 1234/2000 loss" in line
    assert ("━" in line, "20 clients/s" in line) == (width >= 100, width >= 80)


def test_a_machine_that_runs_these_tests_is_healthy(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAFFED_DATA", raising=False)
    done = cli("doctor")
    assert (done.code, "raffed can run here" in done.out) == (0, True)
    assert "digits          usable, 1,442 train, 355 test" in done.out
    assert "set RAFFED_DATA" in done.out


def test_json_has_a_finding_a_line_and_one_for_every_data_set(cli: Cli, tmp_path: Path) -> None:
    events = cli("doctor", "--data-root", tmp_path, "--json").events
    found = {event["what"]: event["state"] for event in events}
    assert {name: found[name] for name in DATASETS} == {
        name: "ok" if name == "digits" else "absent" for name in DATASETS
    }
    assert all(event["advice"] for event in events if event["state"] in ("note", "broken"))


def test_a_cluster_that_is_named_is_tried() -> None:
    done = python(["-m", "raffed", "doctor", "--address", "127.0.0.1:1"])
    assert (done.returncode, "nothing answers there" in done.stdout) == (2, True)


def test_with_a_run_it_measures_a_client_and_says_how_to_place_it(cli: Cli) -> None:
    done = cli("doctor", "--split", "iid:20", "--batch-size", "16", "--epochs", "1", "--json")
    assert done.code == 0
    found = {event["what"]: event for event in done.events}
    assert "1.00 of one by one" in found["one by one"]["found"]
    assert "of one by one" in found["stacks of 8"]["found"]
    # 1,442 training samples, 72 a client, batches of 16
    assert found["a client"]["found"].startswith("5 steps")
    assert found["fastest here"]["advice"].startswith("--execution serial")
    assert kinds(measured_on_the_page()) == kinds(list(found)[list(found).index("one by one") :])


def measured_on_the_page() -> list[str]:
    """What stands before the findings in the output that docs/running.md shows."""
    page = (ROOT / "docs" / "running.md").read_text(encoding="utf-8")
    shown = page.partition("$ raffed doctor")[2].partition("```")[0]
    return re.findall(r"^✓ (\S.*?)\s{2,}", shown, re.MULTILINE)


def kinds(names: list[str]) -> list[str]:
    return list(dict.fromkeys(re.sub(r"\d+", "N", name) for name in names))


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RAFFED_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def every(here: None) -> dict[str, str]:
    """Rows of 2 classes as every kind of data that `--dataset` takes, with clients."""
    draws = np.random.RandomState(0)
    for part, label, number in np.ndindex(3, 2, 6):
        folder = Path("pictures") / ("Training", "val", "Testing")[part] / ("cat", "dog")[label]
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(draws.randint(0, 256, (8, 8, 3)).astype(np.uint8)).save(folder / f"{number}.png")
    rows = [f"{n / 4},{('red', 'blue')[n % 3 > 0]},{'xy'[n % 2]},{'ab'[n % 3 > 1]}" for n in range(12)]
    Path("t.csv").write_text("size,tint,y,site\n" + "\n".join(rows) + "\n")
    x, y, site = np.arange(24.0).reshape(12, 2), np.arange(12) % 2, (np.arange(12) % 3 > 1).astype(int)
    np.savez("a.npz", x=x, y=y, clients=site)
    for part in ("train", "test"):
        (Path("pfl") / part).mkdir(parents=True)
        for client in range(2):
            np.savez(f"pfl/{part}/{client}.npz", data=np.array({"x": x, "y": y}, dtype=object))
    Path("mine.py").write_text(
        "import numpy as np\nimport raffed\n\n\ndef load() -> raffed.Dataset:\n"
        "    y = np.arange(12) % 2\n"
        "    return raffed.Dataset.from_arrays(np.arange(24.0).reshape(12, 2), y, clients=y, test=0.25)\n"
    )
    return {
        "csv": "csv:t.csv?label=y&client=site",
        "npz": "npz:a.npz",
        "folder": "folder:pictures",
        "pfllib": "pfllib:pfl",
        "function": "./mine.py:load",
    }


@pytest.mark.parametrize(
    ("kind", "said"),
    {
        "csv": ["training part 10 rows", "test part 2 rows", "2, in column site", "red", "numbers (value - "],
        "npz": ["training part 10 samples", "one input 2 numbers (float32), 0 to 23", "clients 2"],
        "folder": ["training part 12 images", "one input 3x8x8 pixels", "cat", "not used: val (12)"],
        "pfllib": ["training part 24 samples", "test part 24 samples", "clients 2"],
        "function": ["training part 8 samples", "test part 4 samples", "clients 2"],
    }.items(),
)
def test_every_kind_of_own_data_is_shown(cli: Cli, every: dict[str, str], kind: str, said: list[str]) -> None:
    shown = cli("datasets", every[kind])
    assert shown.code == 0, shown.err
    words = " ".join(shown.out.split())
    assert [one for one in said if one not in words] == []
    assert f"training part {len(load_dataset(every[kind]).x)} " in words
    assert "a dataset" in cli("check", every[kind]).out


ANSI = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")
HEAVY = ("torch", "ray", "pandas", "pyarrow", "numpy", "matplotlib", "sklearn")


@pytest.mark.parametrize(
    ("loaded", "listed"),
    [
        (
            [],
            {
                "methods": METHODS,
                "models": MODELS,
                "methods fedmr": ["mu1", "0.01"],
                "models LeNet": ["--model lenet", MODELS["lenet"].layers],
            },
        ),
        # A split is a class that divides arrays, and a kind of data stands beside its importer
        (
            ["numpy"],
            {
                "splits": [s.syntax for s in SPLITS.values()],
                "datasets": DATASETS,
                "datasets fmnist": ["--dataset fashion-mnist", "60,000", "FashionMNIST/raw"],
            },
        ),
    ],
    ids=["methods and models", "splits and data sets"],
)
def test_listings_name_all_and_import_nothing_heavy(loaded: list[str], listed: dict[str, list[str]]) -> None:
    script = (
        "import contextlib, sys\nfrom raffed.cli import main\n"
        f"for words in {list(listed)!r}:\n    print('LISTING')\n"
        "    with contextlib.suppress(SystemExit):\n        main(words.split())\n"
        f"print('LOADED', [m for m in {HEAVY!r} if m in sys.modules])"
    )
    wide = {**os.environ, "COLUMNS": "200"}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=wide)
    assert done.stdout.endswith(f"LOADED {loaded!r}\n")
    _, *shown = done.stdout.split("LISTING\n")
    assert len(shown) == len(listed)
    for text, names in zip(shown, listed.values(), strict=True):
        assert [name for name in names if name not in text] == []


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("run --split p1", "p10c2"),
        ("compare --method fedavg --method fedprox --set m", "mu="),
        ("methods fedm", "fedmmd fedmr"),
        ("reproduce fedmr/table1", "fedmr/table1"),
    ],
)
def test_the_shell_completes_names(typed: str, offered: str) -> None:
    """As bash asks, with the number of the word that is being typed."""
    asked = {"COMP_WORDS": f"raffed {typed}", "COMP_CWORD": str(len(typed.split()))}
    done = CliRunner().invoke(app, [], env={"_RAFFED_COMPLETE": "complete_bash", **asked}, prog_name="raffed")
    assert done.stdout.split() == offered.split()


def test_every_field_of_a_run_has_one_flag() -> None:
    default = RunConfig()
    fields = []
    for one in dataclasses.fields(RunConfig):
        part = getattr(default, one.name)
        # A plan of faults is a file
        inner = dataclasses.fields(part) if dataclasses.is_dataclass(part) and one.name != "faults" else ()
        fields += [f"{one.name}.{each.name}" for each in inner] or [one.name]
    filled_in = ("model.init_sha256", "clock.trace_sha256", "federation.forked_at", "federation.fork_sha256")
    of_attacks = [f"faults.{name}" for name in ("attack", "attackers", "attacker_list", "attack_strength")]
    assert sorted(flag.field for flag in FLAGS) == sorted({*fields, *of_attacks} - {*filled_in})


@functools.cache
def every_command() -> dict[str, typer.core.TyperCommand]:
    """The name of each command that people type → the command."""
    top = command_tree(app)
    shown = {name: one for name, one in top.commands.items() if not one.hidden}
    inner = {
        f"{name} {word}": command
        for name, one in shown.items()
        for word, command in getattr(one, "commands", {}).items()
    }
    return {"": top, **shown, **inner}


@pytest.mark.parametrize("name", every_command())
def test_the_help_of_every_command_fits_a_screen_and_help_all_has_every_option(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A screen has 60 lines of 100 columns."""
    monkeypatch.setattr("typer.testing._get_command", command_tree)
    lines = CliRunner().invoke(app, [*name.split(), "--help"], env={"COLUMNS": "100"}).output.splitlines()
    assert 5 < len(lines) <= 60
    assert max(cell_len(ANSI.sub("", line)) for line in lines) <= 100
    params = every_command()[name].params
    asked = "--help-all" if any(one.opts == ["--help-all"] for one in params) else "--help"
    text = CliRunner().invoke(app, [*name.split(), asked], env={"COLUMNS": "240"}).output
    assert [one.opts[0] for one in params if one.opts[0][0] == "-" and one.opts[0] not in text] == []
    assert [one.opts[0] for one in params if not one.help and name] == []
    choices = [one for flag in (*FLAGS, PRESET) for one in flag.declared.choices if name == "run" and one]
    assert [one for one in choices if one not in text] == []


def test_only_options_that_change_no_bit_are_said_to_change_none() -> None:
    """The identity of a run is that of its bits."""
    usual = RunConfig()
    texts = {"execution": "serial", "address": "auto", "author_python": "python"}
    changing = set()
    for flag in [one for one in FLAGS if one.field.startswith("runtime.")]:
        name = flag.field.partition(".")[2]
        value = texts[name] if name in texts else (getattr(usual.runtime, name) or 0) + 1
        run = replace(usual, runtime=replace(usual.runtime, **{name: value}))
        changing |= {flag.field} if run.identity() != usual.identity() else set()
        assert (flag.panel == NUMBERS) == (flag.field in changing)
    assert changing == {"runtime.threads", "runtime.gpu_fraction"}


def test_a_split_is_shown_saved_and_drawn(cli: Cli, tmp_path: Path) -> None:
    saved, drawn = tmp_path / "in" / "p.npz", tmp_path / "p.png"
    first = cli("splits", "p10c2", "--save", saved, "--draw", drawn)
    again = cli("splits", f"file:{saved}")
    assert first.code == again.code == 0
    assert drawn.read_bytes().startswith(b"\x89PNG")
    hashes = [line.split()[-1] for line in first.out.splitlines() if line.startswith("sha256")]
    assert [len(sha256) for sha256 in hashes] == [64, 64]  # of the partition, and of the training lists alone
    assert all(sha256 in again.out for sha256 in hashes)
    assert "samples reused" not in first.out
    twice = cli("splits", "p5c2:duplicates").out  # each of the 1,442 training samples is listed twice
    assert re.search(r"samples reused +1,442 times", twice)


@pytest.mark.parametrize("typed", GONE)
def test_what_is_gone_is_refused_with_what_to_do_instead(cli: Cli, typed: str) -> None:
    done = cli(f"run --out somewhere {typed}" if typed.startswith("--") else typed)
    assert done == (2, "", f"raffed: {typed}: {GONE[typed]}\n")


def test_runs_are_listed_with_state_rounds_and_accuracy(cli: Cli, tmp_path: Path) -> None:
    result = raffed.run(digits("p10c2").changed({"seed": 7}), tmp_path / "deep" / "a")
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "run.json").write_text("{")
    lines = cli("runs list", tmp_path).out.splitlines()
    row = next(line for line in lines if "deep/a" in line)
    cells = ["deep/a", "fedavg", "digits", "p10c2", "7", "finished", "2/2"]
    assert row.split() == [*cells, f"{100 * result.accuracy:.1f}", "%"]
    events = cli("runs list", tmp_path, "--json").events
    assert [event["state"] for event in events] == ["unreadable", "finished"]
    assert events[1]["accuracy"] == pytest.approx(result.accuracy)


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal of 80 columns."""
    monkeypatch.setattr(tables, "console", lambda: Console(width=80, highlight=False))


@pytest.mark.usefixtures("narrow")
def test_reasons_against_a_comparison_stand_below_a_narrow_table(capsys: pytest.CaptureFixture[str]) -> None:
    """They made a row taller than a screen. A reason that several rows have is printed once."""
    why = "not comparable: the network differs (lenet / mlp); the second value is that of ditto name=mlp"
    note = "yes; local.lr differs (0.11 / 0.21): it was chosen for each method by the sweep"
    cells = {"Data set": "digits", "Partition": "iid:4", "Seeds": "1", "Rounds": "2", "State": "finished"}
    cells["Aggregation, last %"] = "90.00"
    said = [("a", "yes"), ("b", why), ("b", why), ("c", note)]
    show_summary("report.html", [{"Method": name, **cells, "Comparable": text} for name, text in said])
    above, _, below = capsys.readouterr().out.partition("agg:")
    rows = [" ".join(line.split()) for line in above.splitlines()]
    assert rows.count("b 90.00 not comparable") == 2
    assert "c 90.00 yes, with a note" in rows
    assert below.count(f"b: {why}") == below.count(f"c: {note}") == 1
    assert max(cell_len(line.rstrip()) for line in above.splitlines()) <= 80
