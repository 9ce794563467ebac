"""Verify a run's folder: check the hashes of its files, and execute rounds again and compare every bit."""

from __future__ import annotations

import contextlib
import itertools
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.compute as pc

from raffed.config.portable import PORTABLE, check_set
from raffed.config.run import RunConfig
from raffed.errors import RaffedError, UsageError
from raffed.methods.authors import is_authors, without_engine
from raffed.results.files import check_tree
from raffed.results.origin import DECIDE, difference
from raffed.results.runfile import RUN_FILE, RunContents, read_run, versions
from raffed.results.writer import read_metrics, rows_sha256, without_client_losses
from raffed.runs.author_run import author_events
from raffed.runs.checkpoint import CHECKPOINTS, RunState, checkpoint_state, checkpoints, client_states_sha256
from raffed.runs.code_record import accepted, changes, check_code, check_revision, engine_of, engine_record
from raffed.runs.federation import RoundLoop
from raffed.runs.folder import RunFolder, run_config
from raffed.runs.record import hardware
from raffed.runs.verify_files import (
    Certificate,
    VerificationCheck,
    check_files,
    check_recipe,
    check_validation,
    client_state_hashes,
    or_unreadable,
    round_of,
)
from raffed.runtime.api import Backend
from raffed.runtime.record_files import UNREADABLE, digest, link
from raffed.runtime.run_method import method_of
from raffed.runtime.setup import Setup, prepare_run
from raffed.runtime.worker import SerialBackend
from raffed.scratch import scratch_folder

if TYPE_CHECKING:
    import pyarrow as pa

# Which metrics differ between the rows that a run has recorded and the same rounds executed again.


def row_difference(recorded: pa.Table, again: pa.Table) -> str:
    """The difference between the rows of one round and the same rows made again; empty if equal."""
    had, has = _by_metric(recorded), _by_metric(again)
    parts = {
        "other values of": [name for name in had if name in has and had[name] != has[name]],
        "the folder has no rows of": [name for name in has if name not in had],
        "only the folder has rows of": [name for name in had if name not in has],
    }
    return "; ".join(f"{what} {', '.join(names)}" for what, names in parts.items() if names)


def difference_notes(differences: Mapping[int, str]) -> tuple[str, ...]:
    """One line for each difference, with the rounds that have it. differences: round → difference.

    >>> difference_notes({1: "other values of loss", 2: "other values of loss"})
    ('metric rows of round 1, 2: other values of loss',)
    """
    rounds: dict[str, list[int]] = {}
    for number, text in differences.items():
        if text:
            rounds.setdefault(text, []).append(number)
    return tuple(
        f"metric rows of round {', '.join(map(str, numbers))}: {text}" for text, numbers in rounds.items()
    )


def _by_metric(rows: pa.Table) -> dict[str, str]:
    """Metric → SHA-256 of its rows, by name."""
    names = sorted(set(rows["metric"].to_pylist()))
    return {name: rows_sha256(rows.filter(pc.equal(rows["metric"].cast("string"), name))) for name in names}


# Execute some rounds of a run again, and compare weights, states and metric rows with those recorded.


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
        with scratch_folder() as scratch:
            place = scratch / "run"
            if start is not None:  # its files are only read, so links do
                shutil.copytree(start, place / CHECKPOINTS / start.name, copy_function=link)
                shutil.copy2(self._path / RUN_FILE, place / RUN_FILE)
            folder = RunFolder(place, self._setup, resume=start is not None, verifies=True)
            numbers = range(first + 1, first + count + 1)
            # The rounds go up to the one after which a rule is recorded to have ended the run. Whether the
            # rule ends it there is a check of its own
            ends = len(self._recorded) if self._ended_early else 0
            with closing(SerialBackend(self._setup, folder.states_folder)) as backend:
                yield from self._rounds(RoundLoop(self._setup, backend, folder, ends), backend, numbers)
            yield from self._rows(read_metrics(place), numbers)

    def _rounds(self, loop: RoundLoop, backend: Backend, numbers: range) -> Iterator[VerificationCheck]:
        """Execute rounds and compare their weights, and the states wherever a checkpoint was kept."""
        for number in numbers:
            loop.step()
            yield VerificationCheck("weights", self._recorded[number - 1], loop.now.round_hashes[-1], number)
            kept = self._path / CHECKPOINTS / f"round-{number:06d}"
            if kept.exists():
                server = or_unreadable(lambda: checkpoint_state(kept)["server_sha256"])  # noqa: B023
                yield VerificationCheck("server", server, digest(loop.now.server), number)
                states = or_unreadable(lambda: client_states_sha256(client_state_hashes(kept)))  # noqa: B023
                repeated = client_states_sha256(backend.client_state_digests(loop.now.versions))
                yield VerificationCheck("vaults", states, repeated, number)
        now = loop.now
        loop.folder.checkpoint(RunState(now.server, now.round_hashes, now.versions))  # this writes the rows

    def _rows(self, again: pa.Table, numbers: range) -> Iterator[VerificationCheck]:
        """Compare the metric rows of rounds with those made again."""
        try:
            recorded = read_metrics(self._path)
        except RaffedError:
            recorded = None
        if "kept" in read_run(self._path).get("hashes", {}):
            again = without_client_losses(again)
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


class EngineRepetition(Repetition):
    """The first rounds of a run of an author's engine, which is executed again in a temporary folder.

    Args:
        config: The run, with the interpreter of the engine.
        about: What its run.json holds.
        setup: Its data.
        path: The run's folder.
        recorded: The hash of the whole state after every recorded round.
    """

    def __init__(
        self, config: RunConfig, about: RunContents, setup: Setup, path: Path, recorded: list[str]
    ) -> None:
        super().__init__(setup, path, recorded)
        self._config, self._engine = config, engine_of(about, config.method)

    def checks(
        self, starts: Mapping[int, Path | None], count: int, watch: Callable[[int, int], None] | None
    ) -> Iterator[VerificationCheck]:
        """Execute `count` rounds from the first on, and compare the states and the metric rows."""
        total = min(count, len(self._recorded))
        if not total:
            return
        with scratch_folder() as scratch:
            place = scratch / "run"
            stop = lambda: len(self.done) >= total  # noqa: E731
            for event in author_events(self._config, place, False, stop, None, self._engine):
                self.done.append(event.round)
                if watch is not None:
                    watch(len(self.done), total)
            for number, state in zip(self.done, recorded_hashes(place, read_run(place)), strict=True):
                yield VerificationCheck("state", self._recorded[number - 1], state, number)
            yield from self._rows(read_metrics(place), range(1 - self._engine.ahead, total + 1))


PORTABLE_BITS = (
    "these bits hold on every x86-64 processor with AVX2, with the same versions of torch, NumPy and the C "
    "library"
)
FORKED = (
    "rounds 1 to {until} come from the run that was forked; their files are checked here, and verifying that "
    "run executes them again"
)


def verify(
    path: Path,
    rounds: int = 3,
    watch: Callable[[int, int], None] | None = None,
    accept_changed_code: bool = False,
    author_python: str = "",
) -> Certificate:
    """Check every hash in a run's folder, and execute some of its rounds again.

    The rounds are executed serially in a temporary folder. They follow round 0 and each checkpoint that was
    kept, evenly. Nothing in `path` is changed, and nothing is downloaded.

    Args:
        path: The run's folder.
        rounds: Number of rounds to execute. If it is at least the number of rounds done, all are executed.
        watch: Called with (done, total) after each round.
        accept_changed_code: Whether own code, such as that of the run's method, may have changed since. The
            certificate then says what has.
        author_python: Interpreter that executes an author's engine; without it: this one.

    Returns:
        All checks with their outcomes.

    Raises:
        RunFolderError: No run can be read there, its method has another meaning today, or its own code is
            missing or has changed.
        UsageError: The run cannot be set up here, because its data or a GPU is missing.
    """
    began = time.monotonic()
    if rounds < 0:
        raise UsageError(f"rounds = {rounds} is below 0")
    check_tree(path)
    about, config = read_run(path), run_config(path)
    check_set(config.numerics.bits)
    check_revision(path, about["method_revision"], config.method)
    check_code(path, about, config, accept_changed_code)
    authors = is_authors(config.method)
    method = None if authors else method_of(config)
    recorded = recorded_hashes(path, about)
    identity = VerificationCheck("configuration", about["identity"], config.identity())
    checks = [identity, *check_files(path, about, recorded, method)]
    setup = _setup(without_engine(config), about)
    drawn = setup.partition.sha256()
    split = VerificationCheck("split drawn again", about["partition_sha256"], drawn)
    checks += [*check_recipe(path, setup.partition), split]
    checks += check_validation(path, about, config, recorded, method)
    again = Repetition(setup, path, recorded, "ended_early" in about)
    if authors:
        config = config.changed({"runtime.author_python": author_python})
        again = EngineRepetition(config, about, setup, path, recorded)
    if identity.ok and split.ok:
        bad = [check.what.partition(",")[0] for check in checks if not check.ok]
        sound = {round_of(saved): saved for saved in checkpoints(path) if saved.name not in bad}
        first = config.federation.forked_at  # the rounds before were computed under other settings
        beginning = {} if first else {0: None}
        starts = {**beginning, **{done: saved for done, saved in sound.items() if done >= first}}
        checks += again.checks(starts, rounds, watch) if starts else ()
    return Certificate(
        path,
        about["run_id"],
        about["state"],
        len(recorded),
        tuple(again.done),
        tuple(checks),
        _differs(about),
        time.monotonic() - began,
        _segments(about),
        (
            *((FORKED.format(until=forked),) if (forked := config.federation.forked_at) else ()),
            *(f"own code changed: {name}" for name in _changed_code(about, setup, authors)),
            *((PORTABLE_BITS,) if config.numerics.bits == PORTABLE else ()),
            *difference_notes(again.differences),
        ),
    )


def _changed_code(about: RunContents, setup: Setup, authors: bool) -> Mapping[str, list[str]]:
    if authors:
        return changes(about["code"], [engine_record(engine_of(about, about["config"]["method"]))])
    return accepted(about, setup.code)


def _setup(config: RunConfig, about: RunContents) -> Setup:
    """Return the setup of a run that is executed again, serially.

    A folder may come from anybody, so nothing is downloaded or written for it. The one exception are arrays
    of one's own that left the cache: they go there again if their hash is the recorded one.
    """
    data, runtime = replace(config.data, download=False), replace(config.runtime, execution="serial")
    return prepare_run(replace(config, data=data, runtime=runtime), recorded=about)


def recorded_hashes(path: Path, about: RunContents) -> list[str]:
    """Return the hash of the weights after every recorded round.

    They are in run.json once the run is finished, and in the last checkpoint before that.
    """
    if "round_hashes" in about:
        return list(about["round_hashes"])
    if "engine" in about:
        return list(about["engine"].get("round_hashes", []))
    for checkpoint in reversed(checkpoints(path)):
        with contextlib.suppress(RaffedError):  # a damaged checkpoint is reported by its own check
            return checkpoint_state(checkpoint)["round_hashes"]
    return []


def _segments(about: RunContents) -> tuple[str, ...]:
    """Return what computed each part of a run that was resumed."""
    segments = [segment for segment in about["segments"] if segment["from"] <= segment["to"]]
    if len(segments) < 2:
        return ()
    said = [f"rounds {segment['from']}-{segment['to']} ({segment['started']})" for segment in segments]
    first = ", ".join(f"{name} {version}" for name, version in segments[0]["versions"].items())
    changes = [difference(before, after) or "the same" for before, after in itertools.pairwise(segments)]
    return tuple(f"{where}: {what}" for where, what in zip(said, [first, *changes], strict=True))


def _differs(about: RunContents) -> tuple[str, ...]:
    """Return what may explain differing bits.

    Floating-point results are equal only with the same torch on the same kind of processor, with the same
    vector instructions and libraries.
    """
    here = {**versions(), **{name: value for name, value in hardware().items() if name in DECIDE}}
    there = {**about["hardware"], **about["versions"]}
    return tuple(
        f"{name} {there.get(name)} → {version}"
        for name, version in here.items()
        if there.get(name) != version
    )
