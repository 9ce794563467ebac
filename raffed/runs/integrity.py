"""Check that a run's folder holds what the run wrote there, also before it was extended or forked.

The hashes in run.json decide. A command checks before it relies on the files.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from raffed.config.run import RunConfig
from raffed.data.partition_file import Partition
from raffed.data.splits import parse_split
from raffed.errors import RunFolderError, UsageError
from raffed.results.files import file_sha256
from raffed.results.origin import up_to
from raffed.results.runfile import RUN_FILE, EarlierConfig, RunContents
from raffed.results.writer import read_metrics, rows_sha256, rows_until

log = logging.getLogger(__name__)

# What a run was before it was extended or forked, as its run.json records it under `earlier`.


@dataclass(frozen=True)
class EarlierRounds:
    """The configurations under which a run's first rounds were computed, oldest first.

    It is empty for a run that was neither extended nor forked.
    """

    entries: Sequence[EarlierConfig] = ()

    def accepts(self, identity: str, rounds: int) -> bool:
        """Return whether a checkpoint of `rounds` rounds with this identity belongs to the run."""
        return any(entry["identity"] == identity and rounds <= entry["until"] for entry in self.entries)

    def knows(self, identity: str) -> bool:
        """Return whether the run once had this identity."""
        return any(entry["identity"] == identity for entry in self.entries)

    def config_at(self, round: int, present: RunConfig) -> RunConfig:
        """Return the configuration that was in force in a round, counted from 0."""
        for entry in self.entries:
            if round < entry["until"]:
                return RunConfig.from_dict(entry["config"])
        return present

    def check(self, path: Path) -> None:
        """Raise a RunFolderError if an entry holds no configuration, or not the one that it names."""
        for entry in self.entries:
            try:
                identity = RunConfig.from_dict(entry["config"]).identity()
            except UsageError as error:
                raise RunFolderError(
                    f"{path / RUN_FILE}: an earlier configuration cannot be read: {error}; put back a copy"
                ) from error
            if identity != entry["identity"]:
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
        {"run_id": entry["run_id"], "identity": entry["identity"], "until": rounds, "config": entry["config"]}
        if entry["until"] > rounds
        else entry
        for entry in contents.get("earlier", [])
    ]
    present: EarlierConfig = {
        "run_id": contents["run_id"],
        "identity": contents["identity"],
        "until": rounds,
        "config": contents["config"],
    }
    return [*before, present]


PARTITION = "partition.npz"


def check_file(path: Path, name: str, files: Mapping[str, str], advice: str) -> None:
    """Raise a RunFolderError unless a file below a run's folder has the hash in run.json.

    `files` holds these hashes.
    """
    try:
        actual = file_sha256(path / name)
    except OSError as error:
        raise RunFolderError(f"{path / name}: cannot be read ({error.strerror}); {advice}") from error
    if name not in files:
        raise RunFolderError(
            f"{path / name}: this run did not write it, because {RUN_FILE} does not list it; {advice}"
        )
    if files[name] != actual:
        raise RunFolderError(
            f"{path / name}: it is damaged or was replaced ({RUN_FILE} has another hash); {advice}"
        )


def check_partition(path: Path, about: RunContents) -> list[str]:
    """Check the partition's file of a run that has begun, if run.json lists it.

    Args:
        path: The run's folder.
        about: The contents of its run.json.

    Returns:
        Warnings: that the file is missing, although run.json lists it. An unpacked record or bundle may have
        none.

    Raises:
        RunFolderError: The file is damaged.
    """
    if PARTITION not in about["files"]:
        return []
    if not (path / PARTITION).exists():
        again = "the data and the seed give the same split, and it is written again"
        then = "put back a copy" if about["state"] == "finished" else again
        return [f"{path / PARTITION}: is missing; {then}"] if about["rounds_done"] else []
    advice = f"put it back, or delete it: `raffed resume {path}` then writes it again"
    check_file(path, PARTITION, about["files"], advice)
    return []


def check_drawn(path: Path, about: RunContents, drawn: Partition, config: RunConfig) -> None:
    """Raise a RunFolderError unless the data and the seed give the partition that the run began with.

    The message says whether the data have changed or the split has drawn something else from the same labels.
    """
    recorded, actual = about.get("partition_sha256"), drawn.sha256()
    if recorded == actual:
        return
    split = parse_split(config.data.split, config.data.split_args)
    why = "the data have changed"
    if drawn.recipe.get("labels_sha256") == _labels_of(path / PARTITION):
        advice = "use the versions of raffed and NumPy that it began with"
        why = (
            f"the labels are the same, so the split has drawn other lists from them; "
            f"{split.seed_rule if split.is_own else advice}"
        )
    raise RunFolderError(
        f"{path}: its partition has the hash {str(recorded)[:12]}…, but the split {split.text} now gives "
        f"{actual[:12]}…: {why}"
    )


def _labels_of(path: Path) -> object:
    """Return the hash of the labels that a partition's file records; None if it cannot be read."""
    try:
        return Partition.load(path).recipe.get("labels_sha256")
    except UsageError:
        return None


def check_rows(path: Path, rounds: int) -> None:
    """Raise a RunFolderError unless each of a run's first `rounds` rounds has readable metric rows."""
    until, why = rows_until(path)
    if until < rounds:
        raise RunFolderError(why)


def check_finished(path: Path, about: RunContents) -> None:
    """Raise a RunFolderError unless a finished run still has the metric rows that it finished with."""
    check_rows(path, about["rounds_done"])
    hashes = about["hashes"]
    if rows_sha256(read_metrics(path)) != hashes.get("kept", hashes["metrics"]):
        raise RunFolderError(
            f"{path / 'metrics'}: the rows do not have the hash in {RUN_FILE}; they, or the hash, were "
            f"changed: put back a copy"
        )
    for text in check_partition(path, about):
        log.warning("%s", text)
