"""Execute some rounds of a run again, and compare weights, states and metric rows with those recorded."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.compute as pc

from raffed.errors import RaffedError
from raffed.results.runfile import RUN_FILE
from raffed.results.writer import read_metrics, rows_sha256
from raffed.runs.certificate import VerificationCheck
from raffed.runs.checkpoint import CHECKPOINTS, checkpoint_state
from raffed.runs.federation import RoundLoop
from raffed.runs.folder import RunFolder
from raffed.runs.hashes import client_states_sha256
from raffed.runs.row_differences import row_difference
from raffed.runs.run_state import RunState
from raffed.runs.verify_files import client_state_hashes, or_unreadable
from raffed.runtime.api import Backend
from raffed.runtime.record_codec import digest
from raffed.runtime.saved_client_states import UNREADABLE, link
from raffed.runtime.serial import SerialBackend
from raffed.runtime.setup import Setup
from raffed.scratch import scratch_folder

if TYPE_CHECKING:
    import pyarrow as pa


def sampled(starts: Sequence[int], done: int, count: int) -> dict[int, int]:
    """Return how many rounds to execute from each start.

    The starts are ascending and begin with 0. The rounds add up to `count`, are spread evenly, and each is
    executed at most once.

    >>> sampled([0, 10, 20], 25, 4)
    {0: 2, 10: 1, 20: 1}
    """
    ends = [*starts[1:], done]
    room = {start: end - start for start, end in zip(starts, ends, strict=True) if end > start}
    plan = dict.fromkeys(room, 0)
    left = min(count, sum(room.values()))
    while left:
        for start in plan:
            if left and plan[start] < room[start]:
                plan[start] += 1
                left -= 1
    return _joined({start: n for start, n in plan.items() if n}, room)


def _joined(plan: dict[int, int], room: dict[int, int]) -> dict[int, int]:
    """Join pieces that reach the next start into one, so that execution checks that checkpoint too."""
    joined: dict[int, int] = {}
    last = -1
    for start, count in plan.items():
        if last in joined and last + joined[last] == start:
            joined[last] += count
        else:
            joined[start], last = count, start
    return joined


class Repetition:
    """Rounds of a run that are executed again, serially and in temporary folders.

    Args:
        setup: The run.
        path: The run's folder.
        recorded: The hash of the weights after every recorded round.
        ended_early: Whether a rule ended the run before its last round.

    Attributes:
        done: The rounds executed so far.
        differences: Round → what differs between the recorded metric rows and those made again.
    """

    def __init__(self, setup: Setup, path: Path, recorded: list[str], ended_early: bool = False) -> None:
        self._setup, self._path, self._recorded = setup, path, recorded
        self._ended_early = ended_early
        self.done: list[int] = []
        self.differences: dict[int, str] = {}

    def checks(
        self, starts: Mapping[int, Path | None], count: int, watch: Callable[[int, int], None] | None
    ) -> Iterator[VerificationCheck]:
        """Execute `count` rounds again and compare weights, states and metric rows.

        Args:
            starts: Rounds done → the checkpoint from which the rounds after it can be executed; None for 0.
            count: The number of rounds.
            watch: Called with (done, total) after each round.
        """
        plan = sampled(sorted(starts), len(self._recorded), count)
        for first, rounds in plan.items():
            for check in self._piece(starts[first], first, rounds):
                yield check
                if check.round is not None and check.round not in self.done:
                    self.done.append(check.round)
                    if watch is not None:
                        watch(len(self.done), sum(plan.values()))

    def _piece(self, start: Path | None, first: int, count: int) -> Iterator[VerificationCheck]:
        """Execute `count` rounds after round `first`, from a checkpoint or from the beginning."""
        with scratch_folder() as made:
            place = made / "run"
            if start is not None:  # its files are only read, so links do
                shutil.copytree(start, place / CHECKPOINTS / start.name, copy_function=link)
                shutil.copy2(self._path / RUN_FILE, place / RUN_FILE)
            folder = RunFolder(place, self._setup, resume=start is not None, verifies=True)
            numbers = range(first + 1, first + count + 1)
            with closing(SerialBackend(self._setup, folder.states_folder)) as backend:
                yield from self._rounds(self._loop(backend, folder), backend, numbers)
            yield from self._rows(read_metrics(place), numbers)

    def _loop(self, backend: Backend, folder: RunFolder) -> RoundLoop:
        """Return the rounds as they were executed, up to the one with which a rule is recorded to have ended
        the run. Whether the rule ends it there is a check of its own.
        """
        early = len(self._recorded) if self._ended_early else 0
        return RoundLoop(self._setup, backend, folder, ends=early)

    def _rounds(self, loop: RoundLoop, backend: Backend, numbers: range) -> Iterator[VerificationCheck]:
        """Execute rounds and compare their weights, and the states wherever a checkpoint was kept."""
        for number in numbers:
            loop.step()
            yield VerificationCheck("weights", self._recorded[number - 1], loop.round_hashes[-1], number)
            kept = self._path / CHECKPOINTS / f"round-{number:06d}"
            if kept.exists():
                server = or_unreadable(lambda: str(checkpoint_state(kept)["server_sha256"]))  # noqa: B023
                yield VerificationCheck("server", server, digest(loop.server), number)
                states = or_unreadable(lambda: client_states_sha256(client_state_hashes(kept)))  # noqa: B023
                found = client_states_sha256(backend.client_state_digests(loop.versions))
                yield VerificationCheck("vaults", states, found, number)
        loop.folder.checkpoint(
            RunState(loop.server, loop.round_hashes, loop.versions)
        )  # this writes the rows

    def _rows(self, again: pa.Table, numbers: range) -> Iterator[VerificationCheck]:
        """Compare the metric rows of rounds with those made again."""
        recorded = _or_none(self._path)
        for number in numbers:
            now = _of_round(again, number)
            was = None if recorded is None else _of_round(recorded, number)
            old = UNREADABLE if was is None else rows_sha256(was)
            check = VerificationCheck("metric rows", old, rows_sha256(now), number)
            if was is not None and not check.ok:
                self.differences[number] = row_difference(was, now)
            yield check


def _of_round(rows: pa.Table, number: int) -> pa.Table:
    return rows.filter(pc.equal(rows["round"], number))


def _or_none(path: Path) -> pa.Table | None:
    try:
        return read_metrics(path)
    except RaffedError:
        return None
