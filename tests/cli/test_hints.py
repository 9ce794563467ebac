"""A thing typed in the wrong place is answered with the right one, in one line, before anything is loaded."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Cli


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("run fedavg", "fedavg is a method and not a TOML file; did you mean --method fedavg?"),
        ("compare FedMR --method map --out x", "did you mean --method fedmr?"),
        (
            "run --method fedmr --set lr=0.1",
            "--set lr: fedmr does not have this argument; local.lr is set by --lr",
        ),
        ("run --method fedmr --set local.lr=0.1", "local.lr is set by --lr"),
        ("compare --method fedavg --set rounds=3 --out x", "federation.rounds is set by --rounds"),
        (
            "run --method fedrs --alpha 0.5",
            "--alpha is not an option; alpha is an argument of fedrs: give --set alpha=VALUE",
        ),
        ("run --alpha=0.5", "--alpha is not an option; alpha is an argument of "),
        ("tune --method fedmr --mu_1 3 --out x", "fedmr has an argument mu1: give --set mu1=VALUE"),
    ],
)
def test_what_was_meant_is_said(
    words: str, said: str, cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ended = cli(*words.split())
    assert ended.code == 2
    assert ended.err.startswith("raffed: ")
    assert said in ended.err
    assert ended.err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_an_option_that_is_like_nothing_gets_the_usual_message(cli: Cli, tmp_path: Path) -> None:
    ended = cli("run", "--method", "fedavg", "--nothing-like-it", "--out", tmp_path / "a")
    assert ended.code == 2
    assert "No such option" in ended.err
