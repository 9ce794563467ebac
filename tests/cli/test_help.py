"""Listings answer at once and tell the truth about what they list; every command's help fits on a screen."""

from __future__ import annotations

import dataclasses
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import typer
from rich.cells import cell_len
from rich.console import Console
from typer.testing import CliRunner

import raffed
from raffed.cli import tables
from raffed.cli.app import app
from raffed.cli.messages import GONE
from raffed.cli.options import FLAGS, NUMBERS, PRESET
from raffed.cli.tables import show_summary
from raffed.config.run import RunConfig
from raffed.data.catalogue import DATASETS
from raffed.data.splits import SPLITS
from raffed.methods import METHODS
from raffed.models import MODELS
from tests.cli.conftest import Cli

ANSI = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")
HEAVY = ("torch", "ray", "pandas", "pyarrow", "numpy", "matplotlib", "sklearn")


@pytest.mark.parametrize(
    ("words", "listed"),
    [
        ("methods", METHODS),
        ("datasets", DATASETS),
        ("models", MODELS),
        ("splits", [s.syntax for s in SPLITS.values()]),
        ("methods fedmr", ["mu1", "0.01"]),
        ("models LeNet", ["--model lenet", MODELS["lenet"].layers]),
        ("datasets fmnist", ["--dataset fashion-mnist", "60,000", "FashionMNIST/raw"]),
    ],
)
def test_listings_name_everything_and_import_nothing_heavy(words: str, listed: list[str]) -> None:
    script = (
        f"import sys\nfrom raffed.cli import main\ntry:\n    main({words.split()!r})\n"
        f"finally:\n    print('LOADED', [m for m in {HEAVY!r} if m in sys.modules])"
    )
    wide = {**os.environ, "COLUMNS": "200"}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=wide)
    # A split is a class that divides arrays, and a kind of data stands beside its importer
    loaded = ["numpy"] if words.startswith(("splits", "datasets")) else []
    assert done.stdout.endswith(f"LOADED {loaded!r}\n")
    assert [name for name in listed if name not in done.stdout] == []


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


def every_command() -> dict[str, typer.core.TyperCommand]:
    """The name of each command that people type → the command."""
    top = typer.main.get_command(app)
    shown = {name: one for name, one in top.commands.items() if not one.hidden}
    inner = {
        f"{name} {word}": command
        for name, one in shown.items()
        for word, command in getattr(one, "commands", {}).items()
    }
    return {"": top, **shown, **inner}


@pytest.mark.parametrize("name", every_command())
def test_the_help_of_every_command_fits_a_screen_and_help_all_has_every_option(name: str) -> None:
    """A screen has 60 lines of 100 columns."""
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


@pytest.mark.parametrize("typed", GONE)
def test_what_is_gone_is_refused_with_what_to_do_instead(cli: Cli, typed: str) -> None:
    done = cli(f"run --out somewhere {typed}" if typed.startswith("--") else typed)
    assert done == (2, "", f"raffed: {typed}: {GONE[typed]}\n")


def test_runs_are_listed_with_state_rounds_and_accuracy(cli: Cli, tmp_path: Path) -> None:
    config = raffed.RunConfig(
        federation=raffed.Federation(rounds=2), runtime=raffed.Runtime(execution="serial"), seed=7
    )
    result = raffed.run(config, tmp_path / "deep" / "a")
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
