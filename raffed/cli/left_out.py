"""What a reproduction leaves out: in a few words for each cell, and once with the whole reason."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from raffed.cli.numbers import counted

if TYPE_CHECKING:
    from raffed.experiments.reproduction.planner import Planned

BRIEF = 40  # characters of a reason that is shown as it is


def finished_folders(jobs: Sequence[Planned]) -> set[Path]:
    """Return the folders of the jobs that are finished. Each run.json is read once."""
    return {job.folder for job in jobs if job.done}


def kind_of(reason: str) -> str:
    """Return a short reason as it is, and of a long one what stands before its first colon."""
    if len(reason) <= BRIEF:
        return reason
    head = reason.partition(":")[0]
    return head if len(head) <= BRIEF else f"{reason[: BRIEF - 1].rstrip()}…"


def of_cell(jobs: Sequence[Planned], done: Collection[Path]) -> str:
    """Return what is left out of a cell, such as "diverged, 1 trial"."""
    from raffed.experiments.reproduction.planner import is_trial

    numbers: dict[tuple[str, str], int] = {}
    for job in _left_out(jobs, done):
        key = kind_of(job.left_out), "trial" if is_trial(job) else "run"
        numbers[key] = numbers.get(key, 0) + 1
    return "; ".join(f"{kind}, {counted(number, what)}" for (kind, what), number in numbers.items())


def whole_of_cell(jobs: Sequence[Planned], done: Collection[Path]) -> str:
    """Return the whole reasons why runs of a cell are left out."""
    return "; ".join(dict.fromkeys(job.left_out for job in _left_out(jobs, done)))


def stated(jobs: Sequence[Planned], done: Collection[Path]) -> list[str]:
    """Return a line for each kind of reason: how many jobs it concerns, and one whole reason."""
    kinds: dict[str, list[str]] = {}
    for job in _left_out(jobs, done):
        kinds.setdefault(kind_of(job.left_out), []).append(job.left_out)
    lines = []
    for kind, reasons in kinds.items():
        several = len(dict.fromkeys(reasons))
        example = reasons[0].removeprefix(f"{kind}: ")
        many = f"{kind}, for {several} reasons that --plan --json lists. The first: {example}"
        lines.append(f"{len(reasons)} left out: {reasons[0] if several == 1 else many}")
    return lines


def _left_out(jobs: Sequence[Planned], done: Collection[Path]) -> list[Planned]:
    return [job for job in jobs if job.left_out and job.folder not in done]


def as_wide_as_stderr(lines: Sequence[str]) -> str:
    """Return lines as one text. On a terminal, a line that does not fit goes on below, further inside."""
    if not sys.stderr.isatty():
        return "\n".join(lines)
    width = shutil.get_terminal_size().columns
    return "\n".join(one for line in lines for one in _folded(line, width))


def _folded(line: str, width: int) -> list[str]:
    inside = " " * (len(line) - len(line.lstrip()) + 2)
    return textwrap.wrap(line, width, subsequent_indent=inside, break_on_hyphens=False) or [line]


__all__ = ["as_wide_as_stderr", "finished_folders", "kind_of", "of_cell", "stated", "whole_of_cell"]
