"""Continue a run under another configuration: to more rounds (`extend`), or on a branch of its own (`fork`).

Both rewind a run to one of its checkpoints, record in run.json what the run was until then, and leave the
rest to `resume`.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from pathlib import Path

from raffed.config.run import RunConfig
from raffed.config.training import Local
from raffed.core.training.rates import same_rates
from raffed.errors import RunFolderError, UsageError
from raffed.results.lock import LOCK_FILE, check_unused, held
from raffed.results.run_contents import RunContents
from raffed.results.runfile import RUN_FILE, read_run, write_json
from raffed.results.tree import check_run_tree
from raffed.runs.checkpoint import (
    CHECKPOINTS,
    CLIENT_STATES,
    check_checkpoint,
    checkpoint_state,
    checkpoints,
)
from raffed.runs.code_record import check_code
from raffed.runs.earlier import rewound, superseded
from raffed.runs.folder import FINAL, check_unedited, run_config
from raffed.runs.method_revision import check_revision
from raffed.runtime.setup import Setup, prepare_run

# Whether a method's rounds depend on the total number of rounds: all of them, or the last one only
Horizon = Callable[[Setup], tuple[bool, bool]]


@dataclass(frozen=True)
class RecordedRun:
    """A run in a folder, checked, with the configuration with which it is to go on."""

    path: Path
    contents: RunContents
    config: RunConfig

    @staticmethod
    def opened(path: Path, accept_changed_code: bool) -> RecordedRun:
        """Read and check the run in a folder. Own code is compared before any of it is executed.

        Raises:
            RunFolderError: The folder is damaged, edited or in use, or the run's code has changed.
        """
        check_run_tree(path)
        contents, config = read_run(path), run_config(path)
        check_unedited(path)
        check_unused(path)
        if "files" not in contents:
            raise RunFolderError(
                f"{path}: begun by a version of raffed that wrote down no hashes of its files; `raffed "
                "resume` that run once, or begin a new one"
            )
        check_revision(path, contents["method_revision"], config.method)
        check_code(path, contents, config, accept_changed_code)
        return RecordedRun(path, contents, config)

    def newest(self, until: int) -> int:
        """Return the newest whole checkpoint of at most `until` rounds; 0 if there is none."""
        for one in reversed(checkpoints(self.path)):
            done = int(one.name.removeprefix("round-"))
            if done <= until:
                check_checkpoint(one, self.contents["files"])
                return done
        return 0


def lengthened(run: RecordedRun, rounds: int, horizon: Horizon) -> None:
    """Rewind a run in its folder, so that `resume` continues it to `rounds` rounds.

    Args:
        run: The run.
        rounds: Number of rounds in the end, more than the run has.
        horizon: Says how the method depends on the total number of rounds.

    Raises:
        UsageError: The run has as many rounds, or what it computed depends on the total number of rounds.
    """
    before = run.config.federation.rounds
    if rounds <= before:
        raise UsageError(f"rounds = {rounds}: the run in {run.path} has {before}; give a larger number")
    if "ended_early" in run.contents:
        raise UsageError(
            f"{run.path} ended after round {run.contents['rounds_done']} by its rule, and would end "
            "there in a longer run, too; `raffed fork` continues it with another --stop-when"
        )
    config = run.config.changed({"federation.rounds": rounds})
    _check_rates(run, config.local, rounds)
    data_sha256 = str(run.contents.get("data_sha256", ""))
    setup = prepare_run(config, data_sha256=data_sha256)
    sizes = [len(setup.partition.train[client]) for client in setup.trainable]
    _check_rates(run, config.local, rounds, {min(sizes), max(sizes)})
    every, last = horizon(setup)
    done = run.newest(same_rounds(run.config, last))
    if every:
        raise UsageError(
            f"{config.method}: its rounds depend on the total number of rounds, so the {before} rounds in "
            f"{run.path} are not the first of {rounds}; start a new run with --rounds {rounds}"
        )
    _check_stages(run, setup, done)
    contents = rewound(run.contents, done)
    contents["earlier"] = superseded(run.contents, done)
    contents["config"], contents["identity"] = config.as_dict(), config.identity()
    with held(run.path):
        write_json(run.path / RUN_FILE, contents)
        for one in checkpoints(run.path):
            if int(one.name.removeprefix("round-")) > done:
                shutil.rmtree(one)


def _check_rates(run: RecordedRun, local: Local, rounds: int, sizes: Collection[int] = ()) -> None:
    """Refuse a schedule by which the rounds that are done depend on the total, for clients of these sizes."""
    before = run.config.federation.rounds
    if not same_rates(local, before, rounds, sizes):
        raise UsageError(
            f"local.schedule = {local.schedule!r} depends on the total number of rounds, so the "
            f"{before} rounds in {run.path} are not the first of {rounds}; start a new run with "
            f"--rounds {rounds}"
        )


def same_rounds(config: RunConfig, last: bool) -> int:
    """Return how many rounds of a run have the rows that they have in a longer run.

    Measurements after the last round, and of the rounds before it, belong to the end of a run. They are made
    where the longer run ends.

    Args:
        config: The run.
        last: Whether the method does something else in the last round.
    """
    federation = config.federation
    scored = federation.rounds % federation.eval_every == 0
    at_the_end = federation.measures or federation.survey or federation.unseen_clients or last
    if scored and not at_the_end:
        return federation.rounds
    return max(federation.rounds - max(federation.survey, 1), 0)


def _check_stages(run: RecordedRun, setup: Setup, done: int) -> None:
    before = replace(setup, config=run.config)
    for round in range(done):
        if before.stage(round) != setup.stage(round):
            raise UsageError(
                f"{run.config.data.split}: its stages divide the total number of rounds, so round "
                f"{round + 1} belongs to another stage in a run of {setup.config.federation.rounds}; start a "
                "new run"
            )


def rewound_copy(run: RecordedRun, done: int, copy: Path) -> None:
    """Copy a run into a new folder, as if it had been stopped after `done` rounds."""
    kept = f"round-{done:06d}"

    def left_out(folder: str, names: list[str]) -> set[str]:
        if Path(folder) == run.path:
            return {CLIENT_STATES, LOCK_FILE, FINAL} & set(names)
        return {name for name in names if Path(folder) == run.path / CHECKPOINTS and name != kept}

    shutil.copytree(run.path, copy, ignore=left_out)
    write_json(copy / RUN_FILE, rewound(run.contents, done))


def round_hash(run: RecordedRun, at: int) -> str:
    """Return the recorded hash of the weights after round `at` of a run."""
    hashes = run.contents.get("round_hashes")
    if hashes is None:
        found = checkpoints(run.path)
        hashes = checkpoint_state(found[-1])["round_hashes"] if found else []
    if len(hashes) < at:
        raise RunFolderError(f"{run.path}: no hash of round {at} is recorded; fork at an earlier round")
    return hashes[at - 1]


__all__ = [
    "Horizon",
    "RecordedRun",
    "lengthened",
    "rewound_copy",
    "round_hash",
    "same_rounds",
]
