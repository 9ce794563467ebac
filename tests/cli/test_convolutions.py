"""`--convolutions`: who computes convolutions, as a person asks for it on the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from raffed.core.kernels import convolution
from raffed.results.runfile import read_run
from tests.cli.conftest import Cli

needs_kernel = pytest.mark.skipif(not convolution.built, reason="raffed was installed without a C compiler")
SMALL = ("--execution", "serial", "--split", "iid:8", "--samples", "40", "--local-test", "0")
LITTLE = ("--epochs", "1", "--rounds", "1", "--participation", "0.25", "--batch-size", "4", "--lr", "0.05")


def test_the_help_names_both_choices_and_what_the_kernel_needs(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    [line] = [one for one in cli("run", "--help").out.splitlines() if "--convolutions" in one]
    assert "torch|compiled" in line
    assert "needs a C compiler at installation" in line


def test_another_value_is_refused_in_one_line_with_the_choices(cli: Cli, tmp_path: Path) -> None:
    done = cli("run", *SMALL, *LITTLE, "--convolutions", "onednn", "--out", tmp_path / "a")
    assert done.code == 2
    assert done.err == "raffed: unknown numerics.convolutions 'onednn'; known: compiled, torch\n"
    assert not (tmp_path / "a").exists()


@needs_kernel
def test_a_network_without_convolutions_is_refused_in_one_line(cli: Cli, tmp_path: Path) -> None:
    done = cli("run", *SMALL, *LITTLE, "--convolutions", "compiled", "--out", tmp_path / "a")
    assert done.code == 2
    assert "has no effect on mlp" in done.err
    assert done.err.strip().count("\n") == 0
    assert not (tmp_path / "a").exists()


@needs_kernel
def test_the_setting_is_recorded_with_the_run(cli: Cli, tmp_path: Path) -> None:
    words = ("--model", "resnet8", "--convolutions", "compiled", "--quiet", "--out", tmp_path / "a")
    assert cli("run", *SMALL, *LITTLE, *words).code == 0
    assert read_run(tmp_path / "a")["config"]["numerics"]["convolutions"] == "compiled"
