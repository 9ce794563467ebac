"""`--numerics` where it cannot be had: one line with the remedy, and nothing written."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import QUICK, Cli


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--numerics", "portable"], "call raffed.portable() first"),  # this process has loaded torch
        (["--numerics", "portable", "--precision", "bf16"], "numerics.precision = 'bf16'"),
        (["--numerics", "portable", "--threads", "2"], "runtime.threads = 2"),
    ],
)
def test_a_run_whose_bits_cannot_be_portable_is_refused_in_one_line(
    cli: Cli, tmp_path: Path, words: list[str], why: str
) -> None:
    done = cli("run", *QUICK, *words, "--out", tmp_path / "a")
    assert done.code == 2
    assert why in done.err
    assert done.err.count("\n") == 1
    assert not (tmp_path / "a").exists()


def test_other_bits_are_refused_with_the_choices(cli: Cli) -> None:
    done = cli("run", "--numerics", "same")
    assert done.code == 2
    assert "machine" in done.err
    assert "portable" in done.err
