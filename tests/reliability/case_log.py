"""The log of the suite: one JSON line a case.

A run of the suite that was interrupted goes on with the cases that its log lacks.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

GOOD = ("equal", "unchanged", "refused", "noticed", "done")
# The process had ended before the strike, or the system lacks what the case needs
UNCOUNTED = ("too late", "impossible here")


@dataclass(frozen=True)
class Case:
    """One case and what came of it."""

    key: str  # the same for the same seed
    kind: str  # kill or damage
    target: str  # the process that was struck, or the file that was damaged
    execution: str  # how the run was executed, or the command that read the damaged folder
    method: str
    outcome: str  # one of GOOD or UNCOUNTED, or the fault that was found
    signal: str = ""  # of a kill, or the kind of a damage
    # Seconds from the start of the process, and the round that was shown
    moment: dict[str, float] = field(default_factory=dict)
    # What else helps to understand it: exit code, last line, seconds
    details: dict[str, str | float | None] = field(default_factory=dict)
    revision: str = ""  # the commit of the code; with a + if files differed from it


class CaseLog:
    """The cases of a log file, and those that are added to it, marked with the revision of the code."""

    def __init__(self, path: Path, revision: str = "") -> None:
        self.path, self.cases, self._revision = path, list[Case](), revision
        if path.exists():
            *lines, begun = path.read_text(encoding="utf-8").split("\n")
            self.cases = [Case(**json.loads(line)) for line in lines]
            if begun:  # an interrupted suite left a part of a line
                path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        self._keys = {one.key for one in self.cases}

    def has(self, key: str) -> bool:
        return key in self._keys

    def add(self, case: Case) -> None:
        case = replace(case, revision=self._revision)
        self.cases.append(case)
        self._keys.add(case.key)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(case), ensure_ascii=False) + "\n")

    def counted(self, kind: str) -> list[Case]:
        return [one for one in self.cases if one.kind == kind and one.outcome not in UNCOUNTED]

    def faults(self) -> list[Case]:
        return [one for one in self.cases if one.outcome not in (*GOOD, *UNCOUNTED)]
