"""What a run was before it was extended or forked, as its run.json records it under `earlier`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from raffed.config.run import RunConfig
from raffed.errors import RunFolderError, UsageError
from raffed.results.run_contents import EarlierConfig, RunContents
from raffed.results.runfile import RUN_FILE
from raffed.results.segments import up_to


@dataclass(frozen=True)
class EarlierRounds:
    """The configurations under which a run's first rounds were computed, oldest first.

    It is empty for a run that was neither extended nor forked.
    """

    entries: Sequence[EarlierConfig] = ()

    @staticmethod
    def of(contents: RunContents) -> EarlierRounds:
        """Return what a run.json records."""
        return EarlierRounds(tuple(contents.get("earlier", ())))

    def accepts(self, identity: str, rounds: int) -> bool:
        """Return whether a checkpoint of `rounds` rounds with this identity belongs to the run."""
        return any(one["identity"] == identity and rounds <= one["until"] for one in self.entries)

    def knows(self, identity: str) -> bool:
        """Return whether the run once had this identity."""
        return any(one["identity"] == identity for one in self.entries)

    def config_at(self, round: int, present: RunConfig) -> RunConfig:
        """Return the configuration that was in force in a round, counted from 0."""
        for one in self.entries:
            if round < one["until"]:
                return RunConfig.from_dict(one["config"])
        return present

    def check(self, path: Path) -> None:
        """Raise a RunFolderError if an entry holds no configuration, or not the one that it names."""
        for one in self.entries:
            try:
                found = RunConfig.from_dict(one["config"]).identity()
            except UsageError as error:
                raise RunFolderError(
                    f"{path / RUN_FILE}: an earlier configuration cannot be read: {error}; put back a copy"
                ) from error
            if found != one["identity"]:
                raise RunFolderError(
                    f"{path / RUN_FILE}: an earlier configuration was edited; put back a copy of the file"
                )


def rewound(contents: RunContents, rounds: int) -> RunContents:
    """Return the run.json of a run as if it had been stopped after `rounds` rounds.

    Hashes of files stay, so that what was written before can still be checked.
    """
    kept = contents.copy()
    for name in ("hashes", "round_hashes", "best", "ended_early"):
        kept.pop(name, None)  # type: ignore[misc]
    kept["state"], kept["error"], kept["rounds_done"] = "stopped", None, rounds
    segments = contents["segments"]
    begun = segments[0].copy()
    begun["to"] = 0
    kept["segments"] = up_to(segments, rounds) or [begun]
    return kept


def superseded(contents: RunContents, rounds: int) -> list[EarlierConfig]:
    """Return the entries for a run that goes on after `rounds` rounds under another configuration."""
    before: list[EarlierConfig] = [
        {"run_id": one["run_id"], "identity": one["identity"], "until": rounds, "config": one["config"]}
        if one["until"] > rounds
        else one
        for one in contents.get("earlier", [])
    ]
    present: EarlierConfig = {
        "run_id": contents["run_id"],
        "identity": contents["identity"],
        "until": rounds,
        "config": contents["config"],
    }
    return [*before, present]


__all__ = ["EarlierRounds", "rewound", "superseded"]
