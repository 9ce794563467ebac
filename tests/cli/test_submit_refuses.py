"""`raffed submit` refuses to send much unasked, and anything that would give a secret away."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from raffed.runtime.ray_backend import jobs
from tests.cli.conftest import Cli
from tests.cli.planted import (
    GITHUB,
    OUT,
    NoServer,
    names,
    plant,
)


@pytest.fixture
def refusing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "JobSubmissionClient", NoServer)


def large(root: Path) -> Path:
    (root / "code").mkdir()
    for name in ("a.txt", "b.txt"):
        with open(root / "code" / name, "wb") as file:
            file.truncate(30_000_000)
    return root / "code"


@pytest.mark.usefixtures("refusing")
def test_more_than_50_mb_are_listed_and_not_sent_without_yes(cli: Cli, tmp_path: Path) -> None:
    done = cli("submit", "--working-dir", large(tmp_path), "run", *OUT)
    assert done.code == 2
    assert "60.0 MB would be sent, more than 50 MB" in done.err
    assert "--yes" in done.err
    assert "30,000,000 bytes  a.txt" in done.err


def test_more_than_50_mb_are_sent_with_yes(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[dict[str, Any]] = []

    class Server:
        def __init__(self, address: str | None) -> None: ...

        def get_address(self) -> str:
            return "http://x"

        def submit_job(self, **given: Any) -> str:
            sent.append({"names": names(Path(given["runtime_env"]["working_dir"]))})
            return "job"

    monkeypatch.setattr(jobs, "JobSubmissionClient", Server)
    done = cli("submit", "--yes", "--no-wait", "--working-dir", large(tmp_path), "run", *OUT)
    assert done.code == 0, done.err
    assert sent == [{"names": ["a.txt", "b.txt"]}]


Refused = Callable[[Path], list[object]]
REFUSALS: dict[str, tuple[Refused, str]] = {
    "an experiment that is ignored": (
        lambda root: ["--working-dir", root, "run", root / "ignored" / "exp.toml"],
        r"named in .gitignore",
    ),
    "an experiment with a secret": (
        lambda root: ["--working-dir", root, "run", root / "leak.toml"],
        "token of GitHub",
    ),
    "a secret experiment alone": (lambda root: ["run", root / "leak.toml"], "token of GitHub"),
    "a secret variable": (lambda root: ["--env", f"X={GITHUB}", "run"], "--env X"),
    "a variable with a secret's name": (
        lambda root: ["--env", "HF_TOKEN=0123456789ab", "run"],
        "--env HF_TOKEN",
    ),
    "a secret word": (lambda root: ["run", "--data-root", GITHUB], "a word of the command"),
    "a folder of logins": (lambda root: ["--working-dir", root / ".aws", "run"], "logins"),
}


@pytest.mark.usefixtures("refusing")
@pytest.mark.parametrize("case", REFUSALS)
def test_what_would_give_a_secret_away_is_refused_without_repeating_it(
    cli: Cli, planted: Path, case: str
) -> None:
    plant(planted, {"ignored/exp.toml": 'method = "map"\n', "leak.toml": f'method = "map"  # {GITHUB}\n'})
    typed, said = REFUSALS[case]
    done = cli("submit", *typed(planted), *OUT)
    assert done.code == 2
    assert said in done.err
    assert GITHUB not in done.out + done.err
    assert "0123456789ab" not in done.out + done.err
