"""Which own code computed which rounds of a run, from what run.json holds.

`code` holds the newest hashes. A run that went on with changed code (`--accept-changed-code`) also has the
old hash of each changed file, in the segment that began then.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

NO_FILE = "no file"  # in place of a hash

Files: TypeAlias = dict[str, str]


def files_by_role(records: Sequence[Mapping[str, Any]]) -> dict[str, Files]:
    """Return role → file → SHA-256.

    Of two different files of one name, the second one's name begins with its role.
    """
    known: Files = {}
    found: dict[str, Files] = {}
    for record in records:
        role = record["role"]
        for name, digest in record["files"].items():
            unique = f"{role}: {name}" if known.get(name, digest) != digest else name
            known[unique] = found.setdefault(role, {})[unique] = digest
    return found


def all_files(records: Sequence[Mapping[str, Any]]) -> Files:
    """Return file → SHA-256 of all roles together."""
    return {name: digest for one in files_by_role(records).values() for name, digest in one.items()}


def changed_files(old: Mapping[str, str], new: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the files that differ: name → [old hash, new hash]."""
    return {
        name: [old.get(name, NO_FILE), new.get(name, NO_FILE)]
        for name in sorted(old.keys() | new.keys())
        if old.get(name) != new.get(name)
    }


def code_before(files: Mapping[str, str], accepted: Mapping[str, Sequence[str]]) -> Files:
    """Return the files as they were before a change: `accepted` maps file → [old hash, new hash]."""
    found = {**files, **{name: old for name, (old, _) in accepted.items()}}
    return {name: digest for name, digest in found.items() if digest != NO_FILE}


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
    found: list[tuple[int, Files]] = []
    for first, files in reversed(stages):
        if not found or found[-1][1] != files:
            found.append((first, files))
    return found
