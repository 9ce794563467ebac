"""Where a run comes from: its command line, its commit, and what computed which of its rounds."""

from __future__ import annotations

import logging
import os
import shlex
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeAlias

from raffed.results.runfile import RunContents, Segment
from raffed.results.text import visible, without_secrets

# The command that a process works for, so that run.json can name it.
#
# It is kept in the environment. Processes that a command starts, such as those of seeds, inherit it, and
# record what the user typed. Workers of Ray are told it.


VARIABLE = "RAFFED_COMMAND"


@contextmanager
def commanded(words: Sequence[str]) -> Iterator[None]:
    """Note the words of a command line while the block runs, without secrets.

    A process that another command has started keeps that command.
    """
    if VARIABLE in os.environ:
        yield
        return
    os.environ[VARIABLE] = visible(without_secrets(shlex.join(["raffed", *words])))
    try:
        yield
    finally:
        os.environ.pop(VARIABLE, None)


def work_for(command: str) -> None:
    """Note in a worker of Ray's for which command it works.

    The Ray may be older than the command, and then the worker has not inherited it.

    Args:
        command: What `command_line` returns in the process that asks for the work.
    """
    os.environ.pop(VARIABLE, None)
    if command:
        os.environ[VARIABLE] = command


def command_line() -> str:
    """Return the command that this process works for; empty if it is none of raffed's."""
    return os.environ.get(VARIABLE, "")


# The commit of the source code that runs: of a checkout, or the one from which a wheel was built.


RECORDED: Final = "_commit.txt"  # beside raffed/__init__.py in a wheel (.ci/build_backend.py)
_PACKAGE = Path(__file__).resolve().parents[1]


def commit(package: Path = _PACKAGE) -> str | None:
    """Return the commit of the source tree, with a + if it was changed.

    Args:
        package: The folder of the package raffed.

    Returns:
        The commit; of an installed wheel the one that it was built from. None if nothing records it.
    """
    if (package.parent / ".git").exists():
        return _of_checkout(package.parent)
    try:
        return (package / RECORDED).read_text(encoding="ascii").strip() or None
    except (OSError, ValueError):
        return None


def _of_checkout(where: Path) -> str | None:
    try:
        git = ["git", "-C", str(where)]
        head, dirty = (  # a file's name may contain any bytes
            subprocess.run(
                [*git, *words],
                capture_output=True,
                encoding="utf-8",
                errors="replace",
                check=True,
                timeout=10,
            )
            for words in (["rev-parse", "HEAD"], ["status", "--porcelain"])
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return head.stdout.strip() + ("+" if dirty.stdout.strip() else "")


# Which own code computed which rounds of a run, from what run.json holds.
#
# `code` holds the newest hashes. A run that went on with changed code (`--accept-changed-code`) also has
# the old hash of each changed file, in the segment that began then.


NO_FILE = "no file"  # in place of a hash

Files: TypeAlias = dict[str, str]


def files_by_role(records: Sequence[Mapping[str, Any]]) -> dict[str, Files]:
    """Return role → file → SHA-256.

    Of two different files of one name, the second one's name begins with its role.
    """
    known: Files = {}
    by_role: dict[str, Files] = {}
    for record in records:
        role = record["role"]
        for name, digest in record["files"].items():
            unique = f"{role}: {name}" if known.get(name, digest) != digest else name
            known[unique] = by_role.setdefault(role, {})[unique] = digest
    return by_role


def all_files(records: Sequence[Mapping[str, Any]]) -> Files:
    """Return file → SHA-256 of all roles together."""
    return {name: digest for files in files_by_role(records).values() for name, digest in files.items()}


def changed_files(old: Mapping[str, str], new: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the files that differ: name → [old hash, new hash]."""
    return {
        name: [old.get(name, NO_FILE), new.get(name, NO_FILE)]
        for name in sorted(old.keys() | new.keys())
        if old.get(name) != new.get(name)
    }


def code_before(files: Mapping[str, str], accepted: Mapping[str, Sequence[str]]) -> Files:
    """Return the files as they were before a change: `accepted` maps file → [old hash, new hash]."""
    earlier = {**files, **{name: old for name, (old, _) in accepted.items()}}
    return {name: digest for name, digest in earlier.items() if digest != NO_FILE}


def code_stages(about: Mapping[str, Any]) -> list[tuple[int, Files]]:
    """Return the own code of a run in the order of its rounds.

    Args:
        about: What its run.json holds.

    Returns:
        (first round, file → SHA-256), one entry for each change. A run without own code has no files.
    """
    files = newest = all_files(about.get("code", []))
    stages: list[tuple[int, Files]] = []
    for segment in reversed(about.get("segments", [])):
        if segment["from"] <= segment["to"]:
            stages.append((segment["from"], files))
        files = code_before(files, segment.get("accepted", {}))
    if not stages:  # no round is done
        return [(1, newest)]
    changes: list[tuple[int, Files]] = []
    for first, files in reversed(stages):
        if not changes or changes[-1][1] != files:
            changes.append((first, files))
    return changes


# The segments of a run in run.json: one for each time that the run was begun or resumed. A segment says what
# computed its rounds.


log = logging.getLogger(__name__)
# The parts of the hardware that may change bits
DECIDE = ("machine", "processor", "vectors", "linear", "gpu")


def up_to(segments: Sequence[Segment], done: int) -> list[Segment]:
    """Return the segments of a run's first `done` rounds. Rounds after that will be computed again.

    Rounds later than the end of the last segment belong to it: the run was killed before it could record
    them.
    """
    *earlier, last = segments
    whole = [*earlier, _ending(last, max(last["to"], done))]
    return [_ending(part, min(part["to"], done)) for part in whole if part["from"] <= min(part["to"], done)]


def _ending(segment: Segment, to: int) -> Segment:
    """Return a copy of a segment with another last round."""
    changed = segment.copy()
    changed["to"] = to
    return changed


def difference(before: Segment, after: Segment) -> str:
    """Return what differs between two segments and may change bits, such as `torch 2.14.1 → 2.15.0, …`.

    What one of them does not record counts as equal.
    """
    pairs = {
        **{name: (before["versions"].get(name), new) for name, new in after["versions"].items()},
        **{name: (before["hardware"].get(name), after["hardware"].get(name)) for name in DECIDE},
        **{name: (old[:8], new[:8]) for name, (old, new) in after.get("accepted", {}).items()},
    }
    return ", ".join(
        f"{name} {old} → {new}" for name, (old, new) in pairs.items() if old and new and old != new
    )


def said_in(about: RunContents) -> list[tuple[str, str]]:
    """Return the warnings about a run's folder from each time that the run was resumed: when, and
    the line.
    """
    return [(segment["started"], text) for segment in about["segments"] for text in segment["said"]]


def warn_anew(about: RunContents, told: list[tuple[str, str]]) -> None:
    """Log the warnings about the folder that are not in `told` yet, and add them there."""
    for warning in said_in(about):
        if warning not in told:
            log.warning("%s", warning[1])
            told.append(warning)
