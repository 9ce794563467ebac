"""Going on with a run that is over: more rounds in its folder, or another configuration in a new one."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow.compute as pc

from raffed.config.federation import ValidationCurve, read_rule
from raffed.config.run import RunConfig
from raffed.config.training import Local
from raffed.config.validation import Value
from raffed.core.training.rates import same_rates
from raffed.data.partition_file import Partition
from raffed.errors import RunFolderError, UsageError
from raffed.methods.authors import refuse_authors
from raffed.results.files import check_tree, file_sha256, removed_on_failure, sync_tree
from raffed.results.lock import LOCK_FILE, check_unused, held
from raffed.results.remote import STATE_FILE
from raffed.results.runfile import RUN_FILE, RunContents, read_run, write_json
from raffed.results.writer import MetricsWriter, read_metrics, with_values, write_part
from raffed.runs.checkpoint import (
    CHECKPOINTS,
    CLIENT_STATES,
    check_checkpoint,
    checkpoint_state,
    checkpoints,
    values_in,
)
from raffed.runs.code_record import check_code, check_revision, trust_own
from raffed.runs.folder import FINAL, check_free, check_identity, check_unedited, run_config
from raffed.runs.integrity import PARTITION, EarlierRounds, check_rows, rewound, superseded
from raffed.runs.record import new_run
from raffed.runs.round_schedule import Timeline
from raffed.runtime.setup import Setup, check_new, prepare_run

# Continue a run under another configuration: to more rounds (`extend`), or on a branch of its own (`fork`).
#
# Both rewind a run to one of its checkpoints, record in run.json what the run was until then, and leave the
# rest to `resume`.


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
        check_tree(path)
        contents, config = read_run(path), run_config(path)
        refuse_authors(config.method)
        check_unedited(path)
        check_unused(path)
        check_revision(path, contents["method_revision"], config.method)
        check_code(path, contents, config, accept_changed_code)
        return RecordedRun(path, contents, config)

    def binding(self, config: RunConfig) -> RunContents:
        """Return what says which data a configuration must have to go on with the run; nothing for other
        data.
        """
        return self.contents if config.data.dataset == self.config.data.dataset else {}

    def newest(self, until: int) -> int:
        """Return the newest whole checkpoint of at most `until` rounds; 0 if there is none."""
        for checkpoint in reversed(checkpoints(self.path)):
            done = int(checkpoint.name.removeprefix("round-"))
            if done <= until:
                check_checkpoint(checkpoint, self.contents["files"])
                return done
        return 0


def lengthened(run: RecordedRun, config: RunConfig, horizon: Horizon) -> Callable[[], None]:
    """Check that a run can go on to more rounds.

    Args:
        run: The run.
        config: Its configuration with these rounds. They may be computed elsewhere.
        horizon: Says how the method depends on the total number of rounds.

    Returns:
        A function that rewinds the run in its folder, so that `resume` continues it.

    Raises:
        UsageError: The run has as many rounds, or what it computed depends on the total number of rounds.
        RunFolderError: Elsewhere the rounds would have other bits.
    """
    before, rounds = run.config.federation.rounds, config.federation.rounds
    if rounds <= before:
        raise UsageError(f"rounds = {rounds}: the run in {run.path} has {before}; give a larger number")
    if "ended_early" in run.contents:
        raise UsageError(
            f"{run.path} ended after round {run.contents['rounds_done']} by its rule, and would end "
            "there in a longer run, too; `raffed fork` continues it with another --stop-when"
        )
    kept = replace(config, runtime=run.config.runtime)
    check_identity(run.path, kept.identity(), config.identity())
    setup = prepare_run(config, recorded=run.binding(config))
    sizes = [len(setup.partition.train[client]) for client in setup.data.trainable]
    every, last = horizon(setup)
    bound = f"{config.method}: its rounds depend" if every else ""
    if not same_rates(config.local, before, rounds, {min(sizes), max(sizes)}):
        bound = f"local.schedule = {config.local.schedule!r} depends"
    if bound:
        raise UsageError(
            f"{bound} on the total number of rounds, so the {before} rounds in {run.path} are not the first "
            f"of {rounds}; start a new run with --rounds {rounds}"
        )
    done = run.newest(same_rounds(run.config, last))
    _check_stages(run, setup, done)
    contents = rewound(run.contents, done)
    contents["earlier"] = superseded(run.contents, done)
    contents["config"], contents["identity"] = kept.as_dict(), kept.identity()

    def rewind() -> None:
        with held(run.path):
            write_json(run.path / RUN_FILE, contents)
            for checkpoint in checkpoints(run.path):
                if int(checkpoint.name.removeprefix("round-")) > done:
                    shutil.rmtree(checkpoint)

    return rewind


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
        if before.data.stage(round) != setup.data.stage(round):
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
        saved = checkpoints(run.path)
        hashes = checkpoint_state(saved[-1])["round_hashes"] if saved else []
    if len(hashes) < at:
        raise RunFolderError(f"{run.path}: no hash of round {at} is recorded; fork at an earlier round")
    return hashes[at - 1]


# Continue a run on a branch of its own, with other settings and in a new folder (`raffed fork`).


SAME_IN_A_FORK = {
    "method": "another method has other states; `raffed export` its weights, and start from them with --init",
    "model": "the weights of another network are not those of the checkpoint",
    "privacy": "the privacy that was spent could no longer be stated",
}


def check_fork(run: RecordedRun, config: RunConfig, at: int, out: Path) -> Setup:
    """Prepare a fork, and refuse one that cannot be continued, before anything is computed for it.

    Args:
        run: The run that is forked.
        config: The settings with which the fork goes on.
        at: Number of rounds after which it begins.
        out: The fork's new folder.

    Raises:
        UsageError: A setting may not change, is not possible, or does not fit the clients of the run; the
            run's own data have changed; or the round is not one of the run's.
        RunFolderError: The folder is not free.
    """
    check_free(out, config.identity())
    done = run.contents["rounds_done"]
    if not max(run.config.federation.forked_at, 1) <= at <= done:
        first = max(run.config.federation.forked_at, 1)
        raise UsageError(f"at = {at}: the run in {run.path} can be forked after rounds {first} to {done}")
    if config.federation.rounds <= at:
        raise UsageError(
            f"federation.rounds = {config.federation.rounds}: a fork after round {at} needs more; "
            "give --rounds"
        )
    if config.local.keep_optimizer and not _same_optimizer(run.config.local, config.local):
        raise UsageError(
            "local.keep_optimizer: the checkpoint holds no state of this optimiser, because the run had "
            "another one or reset it; fork with --reset-optimizer, or with the optimiser of the run"
        )
    before, after = run.config.as_dict(), config.as_dict()
    for name, why in SAME_IN_A_FORK.items():
        if before[name] != after[name]:
            raise UsageError(f"a fork keeps {name} of its run: {why}")
    _check_rule(run, config, at)
    setup = prepare_run(config, recorded=run.binding(config))
    check_new(config.federation, config.faults, config.runtime, setup.data)
    if setup.partition.num_clients != run.contents["clients"]:
        raise UsageError(
            f"{config.data.split} has {setup.partition.num_clients} clients, and the run in {run.path} has "
            f"{run.contents['clients']}; a fork keeps their number, because it keeps their states"
        )
    if replace(setup, config=run.config).data.unseen != setup.data.unseen:
        raise UsageError(
            "a fork keeps the unseen clients of its run (federation.unseen_clients, drawn by the seed), "
            "because one that has trained is not unseen; leave both settings, or start a new run"
        )
    _check_history(run, setup, at)
    return setup


def _check_history(run: RecordedRun, setup: Setup, at: int) -> None:
    """Refuse a fork that would find other participants, or another virtual time, in the rounds before it."""
    same = setup.partition.sha256() == run.contents["partition_sha256"]
    waits = not (run.config.clock.asynchronous or setup.config.clock.asynchronous)
    if same and waits:
        return
    kept = "the clock, the participation, the local steps, the data and the seed, as its server does not wait"
    if waits:
        kept = "the data and the seed, as its selection or its clock looks at the clients' numbers of samples"
    held = setup.partition if same else Partition.load(run.path / PARTITION)
    before = replace(setup, config=run.config, partition=held)
    executed = Timeline(before, EarlierRounds(run.contents.get("earlier", ())))
    assumed = Timeline(setup, EarlierRounds(superseded(run.contents, at)))
    for number in range(at):
        if executed.step(number) != assumed.step(number):
            raise UsageError(
                f"with the settings of the fork, round {number + 1} of {run.path} would have had other "
                f"participants or another virtual time; leave {kept}, or start a new run"
            )


def _check_rule(run: RecordedRun, config: RunConfig, at: int) -> None:
    """Refuse a rule by which the fork would be over before its first round of its own."""
    rule = read_rule(config.federation.stop_when)
    if rule is None:
        return
    before = (point for point in values_in(read_metrics(run.path), rule.measure) if point[0] <= at)
    if why := rule.reason(ValidationCurve(rule.measure, before), at):
        raise UsageError(
            f"federation.stop_when: this rule ends the fork after the {at} rounds that it shares with its "
            f"run, before one of its own: {why}; give another --stop-when, or an earlier round with --at"
        )


def _same_optimizer(before: Local, after: Local) -> bool:
    kept = [(section.optimizer, section.optimizer_args, section.momentum > 0) for section in (before, after)]
    return before.keep_optimizer and kept[0] == kept[1]


def forked(run: RecordedRun, setup: Setup, at: int, out: Path) -> None:
    """Write a run into a new folder that `resume` continues under another configuration.

    Args:
        run: A run with a checkpoint after round `at`.
        setup: What `check_fork` has prepared.
        at: Number of rounds that both runs have in common.
        out: The fork's new folder.
    """
    config = setup.config
    source = run.path / CHECKPOINTS / f"round-{at:06d}"
    check_checkpoint(source, run.contents["files"])
    check_rows(run.path, at)
    trust_own(setup.code, config.data.dataset)
    origin: dict[str, Value] = {
        "federation.forked_at": at,
        "federation.fork_sha256": file_sha256(source / STATE_FILE),
    }
    setup = replace(setup, config=config.changed(origin))
    contents = new_run(setup)
    earlier = rewound(run.contents, at)
    contents["segments"], contents["state"], contents["rounds_done"] = earlier["segments"], "stopped", at
    contents["seconds"], contents["error"] = 0.0, None
    contents["earlier"] = superseded(run.contents, at)
    if "code" in contents:  # of the rounds before; how it has changed is recorded where the fork goes on
        known = {(code["role"], code["reference"]): code for code in run.contents.get("code", [])}
        contents["code"] = [known.get((code["role"], code["reference"]), code) for code in contents["code"]]
    with held(out), removed_on_failure(out):
        shutil.copytree(source, out / CHECKPOINTS / source.name)
        rows = read_metrics(run.path)
        about = contents["run_id"], config.method, setup.dataset.name, config.data.split, config.seed
        writer = MetricsWriter(out, *about)
        rows = with_values(rows.filter(pc.less_equal(rows["round"], at)), writer.columns)
        part = writer.folder / f"part-{1:06d}-{at:06d}.parquet"
        write_part(part, rows, writer.columns)
        setup.partition.save(out / PARTITION)
        sync_tree(out)
        names = (part, out / PARTITION, out / CHECKPOINTS / source.name / STATE_FILE)
        contents["files"] = {file.relative_to(out).as_posix(): file_sha256(file) for file in names}
        write_json(out / RUN_FILE, contents)
