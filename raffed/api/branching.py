"""`raffed.extend` and `raffed.fork`: continue a run to more rounds, or on a branch with other settings."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from raffed.api.running import one_ray
from raffed.config.run import RunConfig
from raffed.config.sections import Runtime
from raffed.config.validation import Value
from raffed.errors import RunFolderError
from raffed.own.user_code import user_errors
from raffed.results.storage import fetched, is_url, local_folder, mirrored
from raffed.scratch import scratch_folder

if TYPE_CHECKING:
    from torch import Tensor

    from raffed.runs.branching import RecordedRun
    from raffed.runs.run import Begun, RoundWatcher, RunResult, Stop
    from raffed.runtime.setup import Setup
    from raffed.testing.federation import TinyFederation

log = logging.getLogger(__name__)


def extend(
    run: Path | str,
    rounds: int,
    *,
    watch: RoundWatcher | None = None,
    stop: Stop | None = None,
    runtime: Runtime | None = None,
    begun: Begun | None = None,
    accept_changed_code: bool = False,
) -> RunResult:
    """Continue a run in its folder to more rounds than it was begun with.

    The result has the bits of a run that had all these rounds from the start. The run goes on from the newest
    checkpoint up to which nothing belongs to the end of a run: measurements after the last round, and what a
    method does in the last round only, are made again where the longer run ends.

    Args:
        run: Folder or URL of the run; finished, stopped or failed.
        rounds: Number of rounds in the end, more than the run has.
        watch: As in `raffed.run`.
        stop: As in `raffed.run`.
        begun: As in `raffed.run`.
        runtime: Where the rounds are computed. With None, as in the run's configuration.
        accept_changed_code: As in `raffed.resume`.

    Returns:
        The result of the whole run.

    Raises:
        UsageError: The run has as many rounds already, or what it computed depends on the total number of
            rounds, as the terms of FedProc and the schedules that end with the run do.
        RunFolderError: The folder is damaged, was edited, or is in use.

    Example:
        >>> raffed.extend("runs/fedmr", 200)  # doctest: +SKIP
    """
    from raffed.runs.branching import RecordedRun, lengthened
    from raffed.runs.run import resume

    with mirrored(run) as folder:
        place = folder.absolute()
        recorded = RecordedRun.opened(place, accept_changed_code)
        config = recorded.config.changed({"federation.rounds": rounds})
        config = replace(config, runtime=runtime or config.runtime)
        rewind = lengthened(recorded, config, horizon_of)
        with one_ray(config, place, recorded.binding(config)):
            rewind()
            return resume(
                place if is_url(run) else folder,
                watch=watch,
                stop=stop,
                runtime=runtime,
                begun=begun,
                accept_changed_code=accept_changed_code,
            )


def fork(
    run: Path | str,
    changes: Mapping[str, Value] | RunConfig,
    out: Path | str,
    *,
    at: int | None = None,
    watch: RoundWatcher | None = None,
    stop: Stop | None = None,
    begun: Begun | None = None,
    accept_changed_code: bool = False,
) -> RunResult:
    """Continue a run from one of its rounds, with other settings and in a new folder.

    The fork has the rows of the rounds that it shares with the run, and its run.json records where it came
    from. With the same settings it has the bits of the run.

    Args:
        run: Folder or URL of the run. Nothing in it is changed.
        changes: Settings that differ, such as {"local.lr": 0.01, "federation.rounds": 80}, or the whole
            configuration of the fork. Method, network and privacy stay, and so does the number of clients.
        out: A new folder or URL for the fork.
        at: Number of rounds that both have in common. With None, all that the run has done. If no checkpoint
            of that round was kept, the rounds since the one before are computed again.
        watch: As in `raffed.run`.
        stop: As in `raffed.run`.
        begun: As in `raffed.run`.
        accept_changed_code: As in `raffed.resume`.

    Returns:
        The result of the fork, including the rounds that it shares.

    Raises:
        UsageError: A setting may not change, or the run does not have that round.
        RunFolderError: A folder is damaged, in use or not free.

    Example:
        >>> raffed.fork("runs/map", {"local.lr": 0.01}, "runs/slow", at=40)  # doctest: +SKIP
    """
    from raffed.runs.branching import RecordedRun, check_fork, forked
    from raffed.runs.run import resume

    with fetched(run, whole=True) as source, local_folder(out) as new:
        target = new.absolute()
        recorded = RecordedRun.opened(source.absolute(), accept_changed_code)
        config = changes if isinstance(changes, RunConfig) else recorded.config.changed(changes)
        config = config.changed({"federation.forked_at": 0, "federation.fork_sha256": ""})
        shared = recorded.contents["rounds_done"] if at is None else at
        setup = check_fork(recorded, config, shared, target)
        with one_ray(config, target, recorded.binding(config)):
            before = recorded.config.runtime  # the shared rounds are the run's, with its threads and device
            runtime = replace(config.runtime, threads=before.threads, gpu_fraction=before.gpu_fraction)
            with _with_checkpoint(recorded, shared, runtime, accept_changed_code) as ready:
                forked(ready, setup, shared, target)
            return resume(new, watch=watch, stop=stop, begun=begun, accept_changed_code=accept_changed_code)


@contextlib.contextmanager
def _with_checkpoint(
    run: RecordedRun, at: int, runtime: Runtime, accept_changed_code: bool
) -> Iterator[RecordedRun]:
    """Yield the run, or a temporary copy of it, with a checkpoint after round `at`."""
    from raffed.runs.branching import RecordedRun, rewound_copy, round_hash
    from raffed.runs.run import resume

    start = run.newest(at)
    if start == at:
        yield run
        return
    wanted = round_hash(run, at)
    log.warning(
        "%s: round %d has no checkpoint and is computed again from round %d on", run.path, at, start + 1
    )
    with scratch_folder() as scratch:
        copy = scratch / "run"
        rewound_copy(run, start, copy)
        seen = {start}
        every = replace(runtime, checkpoint_every=at, keep_checkpoints=max(at, 2))
        resume(
            copy,
            watch=lambda event: seen.add(event.round),
            stop=lambda: at in seen,
            runtime=every,
            accept_changed_code=accept_changed_code,
        )
        again = RecordedRun.opened(copy, accept_changed_code)
        if round_hash(again, at) != wanted:
            raise RunFolderError(
                f"{run.path}: round {at} computed again has other weights than those recorded; `raffed "
                f"verify {run.path}` says where they part. Fork at a round of a checkpoint"
            )
        yield again


# Whether a method's rounds depend on how many rounds the whole run has.


ROUNDS = 6  # enough for a method that does something in every second or third round


@user_errors()
def horizon_of(setup: Setup) -> tuple[bool, bool]:
    """Try how a method depends on the total number of rounds, which `Spec` states.

    A federation of 4 clients is executed twice for 6 rounds. It is told once that these are all, and once
    that there are twice as many. Every tensor of the server, of the clients' states and of what the clients
    trained is compared, bit for bit.

    Args:
        setup: The run.

    Returns:
        Whether a round before the last one depends on the total, and whether the last one does.
    """
    from raffed.testing.federation import TinyFederation

    both = [TinyFederation(setup.method, visits=n, rounds=n) for n in (ROUNDS, 2 * ROUNDS)]
    for done in range(ROUNDS):
        for federation in both:
            federation.step(range(len(federation.data)))
        if not _same(*both):
            return done < ROUNDS - 1, True
    return False, False


def _same(federation: TinyFederation, other: TinyFederation) -> bool:
    """Return whether two federations hold the same tensors, bit for bit."""
    import torch

    left, right = _tensors(federation), _tensors(other)
    return len(left) == len(right) and all(
        a.shape == b.shape and torch.equal(a.nan_to_num(), b.nan_to_num())
        for a, b in zip(left, right, strict=True)
    )


def _tensors(tiny: TinyFederation) -> list[Tensor]:
    """Return the tensors of the server, of the clients' states, and of every client's models and upload."""
    from raffed.testing.federation import leaves

    tensors = tiny.everything()
    for _, client in sorted(tiny.last.items()):
        for part in (client.trained, client.personal_state(tiny.method), client.upload):
            tensors += leaves(part)
    return tensors
