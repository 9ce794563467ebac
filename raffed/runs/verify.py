"""Verify a run's folder: check the hashes of its files, and execute rounds again and compare every bit."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from raffed.config.portable import PORTABLE, check_set
from raffed.config.run import RunConfig
from raffed.errors import RaffedError, UsageError
from raffed.results.run_contents import RunContents
from raffed.results.runfile import read_run, versions
from raffed.results.segments import difference
from raffed.results.tree import check_run_tree
from raffed.runs.certificate import Certificate, VerificationCheck
from raffed.runs.checkpoint import checkpoint_state, checkpoints
from raffed.runs.code_record import accepted, check_code
from raffed.runs.folder import run_config
from raffed.runs.method_revision import check_revision
from raffed.runs.row_differences import difference_notes
from raffed.runs.verify_best import check_validation
from raffed.runs.verify_files import check_files, check_recipe, round_of
from raffed.runs.verify_rounds import Repetition
from raffed.runtime.run_method import method_of
from raffed.runtime.setup import Setup, prepare_run

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
    check_run_tree(path)
    about, config = read_run(path), run_config(path)
    check_set(config.numerics.bits)
    check_revision(path, about["method_revision"], config.method)
    check_code(path, about, config, accept_changed_code)
    method = method_of(config)
    recorded = recorded_hashes(path, about)
    identity = VerificationCheck("configuration", str(about.get("identity")), config.identity())
    checks = [identity, *check_files(path, about, recorded, method)]
    setup = _setup(config, str(about.get("data_sha256", "")))
    drawn = setup.partition.sha256()
    split = VerificationCheck("split drawn again", str(about.get("partition_sha256")), drawn)
    checks += [*check_recipe(path, setup.partition), split]
    checks += check_validation(path, about, config, recorded, method)
    again = Repetition(setup, path, recorded, "ended_early" in about)
    if identity.ok and split.ok:
        sound = {round_of(one): one for one in checkpoints(path) if _sound(one, checks)}
        first = config.federation.forked_at  # the rounds before were computed under other settings
        beginning = {} if first else {0: None}
        starts = {**beginning, **{done: one for done, one in sound.items() if done >= first}}
        checks += again.checks(starts, rounds, watch) if starts else ()
    return Certificate(
        path,
        str(about.get("run_id")),
        str(about.get("state")),
        len(recorded),
        tuple(again.done),
        tuple(checks),
        _differs(about),
        time.monotonic() - began,
        _segments(about),
        (
            *((FORKED.format(until=forked),) if (forked := config.federation.forked_at) else ()),
            *(f"own code changed: {name}" for name in accepted(about, setup.code)),
            *((PORTABLE_BITS,) if config.numerics.bits == PORTABLE else ()),
            *difference_notes(again.differences),
        ),
    )


def _setup(config: RunConfig, data_sha256: str) -> Setup:
    """Return the setup of a run that is executed again, serially.

    A folder may come from anybody, so nothing is downloaded or written for it. The one exception are arrays
    of one's own that left the cache: they go there again if their hash is `data_sha256`.
    """
    data, runtime = replace(config.data, download=False), replace(config.runtime, execution="serial")
    return prepare_run(replace(config, data=data, runtime=runtime), data_sha256=data_sha256)


def _sound(checkpoint: Path, checks: list[VerificationCheck]) -> bool:
    return all(check.ok for check in checks if check.what.startswith(checkpoint.name))


def recorded_hashes(path: Path, about: RunContents) -> list[str]:
    """Return the hash of the weights after every recorded round.

    They are in run.json once the run is finished, and in the last checkpoint before that.
    """
    if "round_hashes" in about:
        return list(about["round_hashes"])
    for one in reversed(checkpoints(path)):
        with contextlib.suppress(RaffedError):  # a damaged checkpoint is reported by its own check
            return list(checkpoint_state(one).get("round_hashes", []))
    return []


def _segments(about: RunContents) -> tuple[str, ...]:
    """Return what computed each part of a run that was resumed."""
    found = [one for one in about["segments"] if one["from"] <= one["to"]]
    if len(found) < 2:
        return ()
    said = [f"rounds {one['from']}-{one['to']} ({one['started']})" for one in found]
    first = ", ".join(f"{name} {version}" for name, version in found[0]["versions"].items())
    changes = [difference(before, after) or "the same" for before, after in itertools.pairwise(found)]
    return tuple(f"{where}: {what}" for where, what in zip(said, [first, *changes], strict=True))


def _differs(about: RunContents) -> tuple[str, ...]:
    """Return what may explain differing bits.

    Floating-point results are equal only with the same torch on the same kind of processor.
    """
    here, there = versions(), about.get("versions", {})
    return tuple(
        f"{name} {there.get(name)} → {version}"
        for name, version in here.items()
        if there.get(name) != version
    )
