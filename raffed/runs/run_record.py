"""run.json of a run that is being executed: its state, the hashes of its files, and what computed it."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from raffed.own.carried import RunCode
from raffed.results.code_history import all_files, changed_files, code_before
from raffed.results.remote import STATE_FILE
from raffed.results.run_contents import Noted, RunContents
from raffed.results.runfile import RUN_FILE, write_json
from raffed.results.segments import difference, up_to
from raffed.runs.code_record import code_records
from raffed.runs.folder_place import Place
from raffed.runs.provenance import gpus, new_segment

# How many hashes of checkpoints' state.json run.json holds. A copy at a URL may lag some checkpoints behind.
KEPT_STATES = 100
CHANGED = (
    "{path}: resumed under other conditions: {what}; from here on its bits may differ from those of a run "
    "without a pause"
)

log = logging.getLogger(__name__)


class RunRecord:
    """The run.json in a folder that exists. Every change is written in a single step.

    `contents` is what run.json holds. With `quiet`, warnings are recorded and not logged.
    """

    def __init__(self, path: Path, contents: RunContents, *, quiet: bool = False) -> None:
        self.path, self.contents, self._quiet = path, contents, quiet
        self._place = Place(path)
        self._earlier, self._began = float(contents.get("seconds", 0.0)), time.monotonic()

    @property
    def files(self) -> dict[str, str]:
        """The hashes of the run's files, by their names below the folder."""
        return self.contents["files"]

    def check_place(self) -> None:
        """Raise a FileNotFoundError if the folder is no longer there."""
        self._place.check()

    def write(self, changes: RunContents) -> None:
        self.check_place()
        self.contents.update(changes)
        self.contents["segments"][-1]["to"] = self.contents["rounds_done"]
        self.contents["seconds"] = self._earlier + time.monotonic() - self._began
        write_json(self.path / RUN_FILE, self.contents)

    def add_files(self, hashes: Mapping[str, str]) -> None:
        """Record the hashes of files that are about to get their names.

        If the run is killed in between, run.json holds hashes of files that do not exist.
        """
        self.files.update(hashes)
        states = [name for name in self.files if name.endswith(STATE_FILE)]
        for name in sorted(states)[:-KEPT_STATES]:
            del self.files[name]
        self.write({})

    def begin_segment(self, rounds_done: int, code: RunCode) -> list[str]:
        """Add a segment for the rounds after `rounds_done`, and return the warnings about it.

        Nothing is written yet. Own code that has changed is recorded with its old and new hashes.
        """
        before = self.contents["segments"]
        self.contents["rounds_done"] = rounds_done
        kept, records = up_to(before, rounds_done), code_records(code)
        self.contents["segments"] = [*kept, new_segment(rounds_done)]
        recorded, now = all_files(self.contents.get("code", [])), all_files(records)
        old = recorded
        for lost in reversed(before[len(kept) :]):  # whose rounds, and so whose code, are in no result
            old = code_before(old, lost.get("accepted", {}))
        if now != recorded:
            self.contents["code"] = records
        if other_code := changed_files(old, now):
            self.contents["segments"][-1]["accepted"] = other_code
        other = difference(before[-1], self.contents["segments"][-1])
        return [CHANGED.format(path=self.path, what=other)] if other else []

    def note_placement(self, placement: Noted) -> None:
        """Record where the work is done, and in the present segment the GPUs."""
        if names := gpus(placement):
            *earlier, now = self.contents["segments"]
            now["hardware"]["gpu"] = names
            if earlier and (other := difference(earlier[-1], now)) and other not in " ".join(now["said"]):
                self.warn([CHANGED.format(path=self.path, what=other)])
        self.write({"placement": placement})

    def warn(self, lines: Sequence[str]) -> None:
        """Record warnings about the folder in the present segment, and log them."""
        self.contents["segments"][-1]["said"] += lines
        if not self._quiet:
            for line in lines:
                log.warning("%s", line)
