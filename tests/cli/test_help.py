"""Listings answer at once, and tell the truth about what they list."""

from __future__ import annotations

import dataclasses
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import typer

from raffed.cli.app import app
from raffed.cli.options import FLAGS, NUMBERS, PRESET, WHERE, help_text, shown_default
from raffed.config.run import RunConfig
from raffed.config.source import described
from raffed.config.validation import Declaration
from raffed.data.catalogue import DATASETS
from raffed.data.splits import SPLITS
from raffed.methods import METHODS
from raffed.models import MODELS
from tests.cli.conftest import Cli, shell

HEAVY = ("torch", "ray", "pandas", "pyarrow", "numpy", "matplotlib", "sklearn")


@pytest.mark.parametrize(
    ("argv", "listed"),
    [
        (["methods"], METHODS),
        (["datasets"], DATASETS),
        (["models"], MODELS),
        (["splits"], [s.syntax for s in SPLITS.values()]),
        (["methods", "fedmr"], ["mu1", "0.01"]),
        (["models", "LeNet"], ["--model lenet", MODELS["lenet"].layers]),
        (["datasets", "fmnist"], ["--dataset fashion-mnist", "60,000", "FashionMNIST/raw"]),
        (["--help"], ["run", "compare", "resume", "verify", "report", "doctor"]),
    ],
)
def test_listings_name_everything_and_import_nothing_heavy(argv: list[str], listed: list[str]) -> None:
    script = (
        "import sys\nfrom raffed.cli import main\n"
        f"try:\n    main({argv!r})\nfinally:\n    print('LOADED', [m for m in {HEAVY!r} if m in sys.modules])"
    )
    done = _python(script)
    # A split is a class that divides arrays, and a kind of data stands beside its importer
    loaded = ["numpy"] if argv[0] in ("splits", "datasets") else []
    assert done.endswith(f"LOADED {loaded!r}\n")
    assert len(listed) > 1
    assert [name for name in listed if name not in done] == []


def _python(script: str) -> str:
    import os
    import subprocess

    environment = {**os.environ, "COLUMNS": "200"}
    return subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, env=environment
    ).stdout


def test_version_is_the_packages_with_its_commit(cli: Cli) -> None:
    import raffed
    from raffed.results.origin import commit

    assert cli("--version").out == f"raffed {raffed.__version__} ({commit() or 'commit unknown'})\n"


def test_the_commit_of_an_installed_package_is_the_one_that_its_wheel_recorded(tmp_path: Path) -> None:
    from raffed.results.origin import commit

    package = tmp_path / "raffed"
    package.mkdir()
    assert commit(package) is None
    (package / "_commit.txt").write_text("0123abcd+")
    assert commit(package) == "0123abcd+"


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


def test_the_help_of_an_option_holds_its_meaning_its_range_and_its_default() -> None:
    for flag in (*FLAGS, PRESET):
        declared, text = flag.declared, help_text(flag.declared, flag.flag).replace("\\[", "[")
        assert text.startswith(declared.doc[:10])
        assert str(declared.range or "") in text
        assert f"[dim]({shown_default(declared, flag.flag)})[/dim]" in text
        assert shown_default(declared, flag.flag)
        if declared.default and declared.kind in ("int", "float"):
            assert f"({declared.default})" in text


@pytest.mark.parametrize("command", ["run", "compare"])
def test_help_shows_every_flag_with_its_default_and_all_its_choices(command: str) -> None:
    text = shell(command, "--help").stdout
    missing = [flag.flag for flag in (*FLAGS, PRESET) if flag.flag.split("/")[0] not in text]
    assert missing == []
    assert "(0.03)" in text  # the learning rate of Local
    words = [(flag.flag, one) for flag in (*FLAGS, PRESET) for one in flag.declared.choices if one]
    assert len(words) > 15
    assert [(flag, word) for flag, word in words if word not in text] == []


def test_every_option_and_argument_of_every_command_says_what_it_does() -> None:
    commands = typer.main.get_command(app).commands
    assert len(commands) > 20
    asked = [(name, one) for name, command in commands.items() for one in command.params]
    assert [f"raffed {name} {one.opts[0]}" for name, one in asked if not one.help] == []


def test_only_options_that_change_no_bit_are_said_to_change_none() -> None:
    """The identity of a run is that of its bits."""
    usual = RunConfig()
    other = {"execution": "serial", "address": "auto", "gpu_fraction": 1.0}
    changing = set()
    for flag in FLAGS:
        section, _, name = flag.field.partition(".")
        if section == "runtime":
            runtime = replace(usual.runtime, **{name: other.get(name, getattr(usual.runtime, name) or 1)})
            runtime = replace(runtime, threads=2) if name == "threads" else runtime
            changing |= (
                {flag.field} if replace(usual, runtime=runtime).identity() != usual.identity() else set()
            )
            assert (flag.panel == NUMBERS) == (flag.field in changing)
    assert changing == {"runtime.threads", "runtime.gpu_fraction"}
    assert "changes no bit" in WHERE


def test_resume_takes_only_what_changes_no_bit() -> None:
    text = shell("resume", "--help").stdout
    assert "--execution" in text
    assert "--lr" not in text
    assert "--preset" not in text


def test_an_annotation_that_is_no_choice_is_shown_as_it_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine_here.py").write_text(
        "from .other import Choice\n\n\ndef mine(c: Choice = 'a', n: int = 1): ...\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert described("mine_here", "mine").arguments == [
        Declaration("c", "Choice", "'a'"),
        Declaration("n", "int", "1"),
    ]


@pytest.mark.parametrize(
    ("kind", "typed", "near"),
    [("methods", "fedmx", "fedmr"), ("models", "lenett", "lenet"), ("datasets", "femnits", "femnist")],
)
def test_an_unknown_name_gets_the_nearest_ones(cli: Cli, kind: str, typed: str, near: str) -> None:
    done = cli(kind, typed)
    assert (done.code, done.out) == (2, "")
    assert near in done.err


def test_one_that_is_named_is_shown_without_the_others(cli: Cli) -> None:
    assert "resnet8" not in cli("models", "lenet").out
    assert "cifar10" not in cli("datasets", "FEMNIST").out


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


def test_a_split_in_stages_says_how_many_how_large_and_in_which_order(cli: Cli) -> None:
    """Three stages of four clients."""
    text = cli("splits", "stages:4:3:3:if4:outer").out
    (line,) = [line for line in text.splitlines() if line.startswith("stages ")]
    assert "3 of " in line
    assert "outer order" in line
    assert "stages " not in cli("splits", "p10c2").out
