"""Listings answer at once, tell the truth about what they list, and fit on a terminal of 80 columns."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
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
from raffed.cli.options import FLAGS, NUMBERS, PRESET, WHERE
from raffed.cli.tables import fitted, show_item, show_summary
from raffed.config.run import RunConfig
from raffed.data.catalogue import DATASETS
from raffed.data.splits import SPLITS
from raffed.methods import METHODS
from raffed.models import MODELS
from tests.cli.conftest import Cli, shell

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
        ("--help", ["run", "compare", "resume", "verify", "report", "doctor"]),
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
        ("run --split dir", "dirichlet: dirichlet-client:"),
        ("run --split p1", "p10c2"),
        ("run --method fedmr --set mu", "mu1= mu2="),
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


def test_a_network_of_one_s_own_is_shown_with_what_to_type(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text = "from torch import nn\n\n\ndef wide(num_classes: int, width: int = 8) -> nn.Module: ...\n"
    Path("net.py").write_text(text, encoding="utf-8")
    out = cli("models", "./net.py:wide").out
    assert "width" in out
    assert "raffed run --model ./net.py:wide" in out


def test_version_is_the_packages_with_its_commit(cli: Cli) -> None:
    import raffed
    from raffed.results.origin import commit

    assert cli("--version").out == f"raffed {raffed.__version__} ({commit() or 'commit unknown'})\n"


def test_every_field_of_a_run_has_one_flag() -> None:
    default = RunConfig()
    fields = []
    for one in dataclasses.fields(RunConfig):
        part = getattr(default, one.name)
        # A file
        inner = dataclasses.fields(part) if dataclasses.is_dataclass(part) and one.name != "faults" else ()
        fields += [f"{one.name}.{each.name}" for each in inner] or [one.name]
    fields.remove("model.init_sha256")  # filled in from the file of --init
    fields.remove("clock.trace_sha256")  # filled in from the file of --trace
    for name in ("forked_at", "fork_sha256"):  # filled in by `raffed fork`
        fields.remove(f"federation.{name}")
    # The other fields of a plan of faults are given by its file
    fields += [f"faults.{name}" for name in ("attack", "attackers", "attacker_list", "attack_strength")]
    assert len(fields) > 25
    assert sorted(flag.field for flag in FLAGS) == sorted(fields)


@pytest.mark.parametrize("command", ["run", "compare"])
def test_help_shows_every_flag_with_its_default_and_all_its_choices(command: str) -> None:
    text = shell(command, "--help-all").stdout
    missing = [flag.flag for flag in (*FLAGS, PRESET) if flag.flag.split("/")[0] not in text]
    assert missing == []
    assert "(0.03)" in text  # the learning rate of Local
    words = [(flag.flag, one) for flag in (*FLAGS, PRESET) for one in flag.declared.choices if one]
    assert len(words) > 15
    assert [(flag, word) for flag, word in words if word not in text] == []


def every_command() -> dict[str, typer.core.TyperCommand]:
    """The name of each command that people type → the command."""
    top = typer.main.get_command(app)
    below = [
        (name, one, getattr(one, "commands", {})) for name, one in top.commands.items() if not one.hidden
    ]
    inner = {f"{name} {word}": command for name, _, inner in below for word, command in inner.items()}
    return {"": top, **{name: command for name, command, _ in below}, **inner}


@pytest.mark.parametrize("name", every_command())
def test_the_help_of_every_command_fits_a_screen_and_help_all_has_every_option(name: str) -> None:
    """A screen has 60 lines of 100 columns."""
    lines = CliRunner().invoke(app, [*name.split(), "--help"], env={"COLUMNS": "100"}).output.splitlines()
    assert 5 < len(lines) <= 60
    assert max(cell_len(ANSI.sub("", line)) for line in lines) <= 100
    command = every_command()[name]
    asked = "--help-all" if any(one.opts == ["--help-all"] for one in command.params) else "--help"
    text = CliRunner().invoke(app, [*name.split(), asked], env={"COLUMNS": "240"}).output
    assert [one.opts[0] for one in command.params if one.opts[0][0] == "-" and one.opts[0] not in text] == []


def test_every_option_and_argument_of_every_command_says_what_it_does() -> None:
    commands = typer.main.get_command(app).commands
    assert len(commands) > 20
    asked = [(name, one) for name, command in commands.items() for one in command.params]
    assert [f"raffed {name} {one.opts[0]}" for name, one in asked if not one.help] == []


def test_only_options_that_change_no_bit_are_said_to_change_none() -> None:
    """The identity of a run is that of its bits."""
    usual = RunConfig()
    other = {
        "execution": "serial",
        "address": "auto",
        "gpu_fraction": 1.0,
        "threads": 2,
        "author_python": "python",
    }
    changing = set()
    for flag in [one for one in FLAGS if one.field.startswith("runtime.")]:
        name = flag.field.partition(".")[2]
        value = other.get(name, getattr(usual.runtime, name) or 1)
        run = replace(usual, runtime=replace(usual.runtime, **{name: value}))
        changing |= {flag.field} if run.identity() != usual.identity() else set()
        assert (flag.panel == NUMBERS) == (flag.field in changing)
    assert changing == {"runtime.threads", "runtime.gpu_fraction"}
    assert "changes no bit" in WHERE


def test_a_split_is_shown_saved_and_drawn(cli: Cli, tmp_path) -> None:
    saved, drawn = tmp_path / "in" / "p.npz", tmp_path / "p.png"
    first = cli("splits", "p10c2", "--save", saved, "--draw", drawn)
    again = cli("splits", f"file:{saved}")
    assert first.code == again.code == 0
    assert drawn.read_bytes().startswith(b"\x89PNG")
    hashes = [line.split()[-1] for line in first.out.splitlines() if line.startswith("sha256")]
    assert [len(sha256) for sha256 in hashes] == [64, 64]  # of the partition, and of the training lists alone
    assert all(sha256 in again.out for sha256 in hashes)


def test_a_picture_needs_a_split_and_a_known_ending(cli: Cli, tmp_path) -> None:
    assert cli("splits", "--draw", "out.png").code == 2
    assert cli("splits", "p10c2", "--draw", tmp_path / "out.docx").code == 2


LISTINGS = ("methods", "datasets", "splits", "models", "metrics", "reproduce --list", "doctor")
DETAILS = ("methods fedmr", "models mlp", "datasets digits", "metrics accuracy", "splits dirichlet:10:0.5")


@pytest.fixture
def titles(monkeypatch: pytest.MonkeyPatch) -> list[Sequence[str]]:
    """The headers of every table that is shown on a terminal of 80 columns."""
    seen: list[Sequence[str]] = []

    def noted(
        names: Sequence[str], rows: Sequence[Sequence[str]], width: int, numbers: Sequence[str]
    ) -> list[list[tuple[int, int]]]:
        seen.append(names)
        return fitted(names, rows, width, numbers)

    monkeypatch.setattr(tables, "fitted", noted)
    monkeypatch.setattr(tables, "console", lambda: Console(width=80, highlight=False))
    return seen


def check(out: str, titles: Sequence[Sequence[str]]) -> None:
    lines = [ANSI.sub("", line).rstrip() for line in out.splitlines()]
    known = {word for names in titles for name in names for word in name.split()}
    rules = [at for at, line in enumerate(lines) if set(line.strip()) == {"─"}]
    assert len(rules) >= len(titles)
    for at in rules:
        assert cell_len(lines[at]) <= 80
        above = at - 1
        while above >= 0 and lines[above] and not lines[above].endswith("."):
            assert set(lines[above].split()) <= known, lines[above]
            above -= 1


@pytest.mark.more
@pytest.mark.parametrize("words", [*LISTINGS, *DETAILS])
def test_no_listing_breaks_a_word_of_its_header(
    cli: Cli, titles: list[Sequence[str]], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAFFED_CACHE", str(tmp_path))
    done = cli(*words.split())
    assert done.code in (0, 1), done.err  # doctor may find something
    check(done.out, titles)


@pytest.mark.parametrize("typed", GONE)
def test_what_is_gone_is_refused_with_what_to_do_instead(cli: Cli, typed: str) -> None:
    done = cli(f"run --out somewhere {typed}" if typed.startswith("--") else typed)
    assert (done.code, done.out) == (2, "")
    assert done.err == f"raffed: {typed}: {GONE[typed]}\n"


def said(*words: str) -> str:
    found = CliRunner().invoke(app, list(words), catch_exceptions=False)
    assert found.exit_code == 0, found.output
    return found.output


def test_runs_are_listed_with_state_rounds_and_accuracy(tmp_path: Path) -> None:
    config = raffed.RunConfig(
        federation=raffed.Federation(rounds=2), runtime=raffed.Runtime(execution="serial"), seed=7
    )
    result = raffed.run(config, tmp_path / "deep" / "a")
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "run.json").write_text("{")
    text = said("runs", "list", str(tmp_path))
    row = next(line for line in text.splitlines() if "deep/a" in line)
    cells = ["deep/a", "fedavg", "digits", "p10c2", "7", "finished", "2/2"]
    assert row.split() == [*cells, f"{100 * result.accuracy:.1f}", "%"]
    assert "unreadable" in text
    assert "2 runs in" in text
    lines = [json.loads(line) for line in said("runs", "list", str(tmp_path), "--json").splitlines()]
    assert [line["state"] for line in lines] == ["unreadable", "finished"]
    assert lines[1]["accuracy"] == pytest.approx(result.accuracy)


def test_a_split_comes_back_from_pfllib_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAFFED_CACHE", str(tmp_path / "cache"))
    place = tmp_path / "out"
    text = said("splits", "p10c2", "--local-test", "0.2", "--export", f"pfllib:{place}")
    assert f"exported: {place}" in text.replace("\n", "")
    again = said("splits", "natural", "--dataset", f"pfllib:{place}")
    rows = [
        [line.split()[:3] for line in one.splitlines() if line.strip()[:1].isdigit()] for one in (text, again)
    ]
    assert rows[0] == rows[1]
    assert len(rows[0]) == 10


ROW = {
    **{"Data set": "digits", "Partition": "iid:4", "Seeds": "1", "Rounds": "2", "State": "finished"},
    "Aggregation, last %": "90.00",
}


def test_reasons_against_a_comparison_stand_below_a_narrow_table(
    titles: list[Sequence[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    """They made a row taller than a screen. A reason that several rows have is printed once."""
    why = "not comparable: the network differs (lenet / mlp); the second value is that of ditto name=mlp"
    note = "yes; local.lr differs (0.11 / 0.21): it was chosen for each method by the sweep"
    said = [("a", "yes"), ("b", why), ("b", why), ("c", note)]
    runs = [{"Method": name, **ROW, "Comparable": text} for name, text in said]
    show_summary("report.html", runs)
    out = capsys.readouterr().out
    check(out, titles)
    assert out.count("the network differs") == 1
    above, _, below = out.partition("agg:")
    assert [line.split() for line in above.splitlines() if line.split()[:1] == ["b"]] == [
        ["b", "90.00", "not", "comparable"]
    ] * 2
    assert f"b: {why}" in below
    assert f"c: {note}" in below
    assert ["c", "90.00", "yes,", "with", "a", "note"] in [line.split() for line in above.splitlines()]


def test_reasons_of_a_reproduction_stand_below_its_table_each_once(
    titles: list[Sequence[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    why = "not comparable: local.lr differs (0.02 / 0.03); the second value is that of FedAvg"
    rows = [
        {"Method": method, "Column": column, "Ours": "–", "Verdict": verdict, "Runs left out": said}
        for method, column, verdict, said in [
            ("FedAvg", "iid", "not run", "–"),
            ("FedProx", "iid", "not comparable", why),
            ("FedProx", "p8c3", "not comparable", why),
        ]
    ]
    show_item("own/table", rows, {"Method", "Column", "Verdict", "Runs left out"})
    out = capsys.readouterr().out
    check(out, titles)
    assert out.count("local.lr differs") == 1
    assert f"FedProx · iid, FedProx · p8c3: {why}" in out
    assert "not comparable   not comparable" in out
