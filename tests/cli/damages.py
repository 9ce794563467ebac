"""Damages to the folder of a run, and runs to be damaged."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Outcome
from tests.forging import edited

Damage = Callable[[Path], object]


def in_short(names: Iterable[str], step: int) -> list[Any]:
    """All names; of those of the slow tests every `step`-th is a fast one."""
    return [
        name if at % step == 0 else pytest.param(name, marks=pytest.mark.slow)
        for at, name in enumerate(names)
    ]


def says(**changes: Any) -> Damage:
    """run.json says something else."""
    return lambda run: edited(run / "run.json", lambda about: about.update(changes))


def lacks(*names: str) -> Damage:
    return lambda run: edited(run / "run.json", lambda about: [about.pop(name) for name in names])


def misspelt(name: str, wrong: str) -> Damage:
    return lambda run: edited(run / "run.json", lambda about: about.update({wrong: about.pop(name)}))


def text(change: Callable[[str], str]) -> Damage:
    return lambda run: (run / "run.json").write_text(change((run / "run.json").read_text()))


def instead(make: Callable[[Path], object], name: str = "run.json") -> Damage:
    """Something else lies where a file or folder was."""

    def damage(run: Path) -> None:
        path = run / name
        path.rename(run.parent / "away")
        make(path)

    return damage


def config(section: str, **changes: Any) -> Damage:
    return lambda run: edited(run / "run.json", lambda about: about["config"][section].update(changes))


def first_segment(**changes: Any) -> Damage:
    return lambda run: edited(run / "run.json", lambda about: about["segments"][0].update(changes))


def told_once(done: Outcome, name: str) -> bool:
    """Whether a command was refused with one line that names a file, beside those that say what it is
    about to do.
    """
    lines = [line for line in done.err.splitlines() if name in line and line.startswith("raffed: ")]
    return (
        done.code == 2
        and len(lines) == 1
        and "Traceback" not in done.err + done.out
        and "VERIFIED" not in done.out
    )
