"""The outcome of a verification: what was recorded, what was found, and where the two differ."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True)
class VerificationCheck:
    """A recorded value and the value that was found.

    `round` is the number of rounds done, for rounds that were executed again.
    """

    what: str
    recorded: str
    found: str
    round: int | None = None

    @property
    def ok(self) -> bool:
        return self.recorded == self.found


@dataclass(frozen=True)
class Certificate:
    """The outcome of a verification.

    `rounds` counts the rounds executed again, of `rounds_done`. `differs` lists versions as recorded → here.
    `segments` has a line for each part of a resumed run. `notes` says what could not be checked, and in which
    metrics rows differ.
    """

    folder: Path
    run_id: str
    state: str
    rounds_done: int
    rounds: tuple[int, ...]
    checks: tuple[VerificationCheck, ...]
    differs: tuple[str, ...]
    seconds: float
    segments: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        return all(check.ok for check in self.checks)

    def as_dict(self) -> dict[str, object]:
        checks = [{**asdict(check), "ok": check.ok} for check in self.checks]
        return {**asdict(self), "folder": str(self.folder), "ok": self.ok, "checks": checks}
