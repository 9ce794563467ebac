"""Continue a run on a branch of its own, with other settings and in a new folder (`raffed fork`)."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from raffed.config.run import RunConfig
from raffed.config.stop_rule import ValidationCurve, read_rule
from raffed.config.training import Local
from raffed.config.validation import Value
from raffed.errors import UsageError
from raffed.results.atomic import sync_tree
from raffed.results.lock import check_can_be_made, held
from raffed.results.metrics_part import write_part
from raffed.results.remote import STATE_FILE
from raffed.results.run_contents import CodeRecord, RunContents
from raffed.results.runfile import RUN_FILE, write_json
from raffed.results.tree import file_sha256
from raffed.results.writer import METRICS_FOLDER, read_metrics
from raffed.runs.best_model import values_in
from raffed.runs.checkpoint import CHECKPOINTS, check_checkpoint
from raffed.runs.code_record import trust_own
from raffed.runs.earlier import rewound, superseded
from raffed.runs.folder import check_free
from raffed.runs.going_on import RecordedRun
from raffed.runs.integrity import PARTITION, check_rows
from raffed.runs.provenance import new_run
from raffed.runtime.setup import Setup, check_new, prepare_run

SAME_IN_A_FORK = {
    "method": "another method has other states; `raffed export` its weights, and start from them with --init",
    "model": "the weights of another network are not those of the checkpoint",
    "privacy": "the privacy that was spent could no longer be stated",
}


def check_fork(run: RecordedRun, config: RunConfig, at: int, out: Path) -> None:
    """Refuse a fork that cannot be continued, before anything is computed for it.

    Args:
        run: The run that is forked.
        config: The settings with which the fork goes on.
        at: Number of rounds after which it begins.
        out: The fork's new folder.

    Raises:
        UsageError: A setting may not change, or the round is not one of the run's.
        RunFolderError: The folder is not free.
    """
    check_free(out, config)
    check_can_be_made(out)
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
    if run.config.federation.unseen_clients != config.federation.unseen_clients:
        raise UsageError(
            "a fork keeps federation.unseen_clients of its run: a client that has trained is not unseen; "
            "start a new run"
        )
    _check_rule(run, config, at)


def _check_rule(run: RecordedRun, config: RunConfig, at: int) -> None:
    """Refuse a rule by which the fork would be over before its first round of its own."""
    rule = read_rule(config.federation.stop_when)
    if rule is None:
        return
    before = (one for one in values_in(read_metrics(run.path), rule.measure) if one[0] <= at)
    if why := rule.reason(ValidationCurve(rule.measure, before), at):
        raise UsageError(
            f"federation.stop_when: this rule ends the fork after the {at} rounds that it shares with its "
            f"run, before one of its own: {why}; give another --stop-when, or an earlier round with --at"
        )


def _same_optimizer(before: Local, after: Local) -> bool:
    kept = [(one.optimizer, one.optimizer_args, one.momentum > 0) for one in (before, after)]
    return before.keep_optimizer and kept[0] == kept[1]


def forked(run: RecordedRun, config: RunConfig, at: int, out: Path) -> None:
    """Write a run into a new folder that `resume` continues under another configuration.

    Args:
        run: A run with a checkpoint after round `at`.
        config: The settings with which the fork goes on.
        at: Number of rounds that both runs have in common.
        out: The fork's new folder, checked by `check_fork`.

    Raises:
        UsageError: The settings are not possible, or do not fit the clients of the run, or the run's own data
            have changed.
    """
    source = run.path / CHECKPOINTS / f"round-{at:06d}"
    check_checkpoint(source, run.contents["files"])
    check_rows(run.path, at)
    same_data = config.data.dataset == run.config.data.dataset
    setup = prepare_run(config, data_sha256=str(run.contents.get("data_sha256", "")) if same_data else "")
    check_new(setup)
    trust_own(setup.code, config)
    if setup.partition.num_clients != run.contents["clients"]:
        raise UsageError(
            f"{config.data.split} has {setup.partition.num_clients} clients, and the run in {run.path} has "
            f"{run.contents['clients']}; a fork keeps their number, because it keeps their states"
        )
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
    if (
        "code" in contents
    ):  # of the rounds before; how it has changed since is recorded where the fork goes on
        contents["code"] = _code_before(run.contents.get("code", []), contents["code"])
    with held(out), _removed_on_failure(out):
        shutil.copytree(source, out / CHECKPOINTS / source.name)
        rows = _rows(run.path, contents, setup, at)
        part = out / METRICS_FOLDER / f"part-{1:06d}-{at:06d}.parquet"
        part.parent.mkdir()
        write_part(part, rows, _columns(contents, setup))
        setup.partition.save(out / PARTITION)
        sync_tree(out)
        names = (part, out / PARTITION, out / CHECKPOINTS / source.name / STATE_FILE)
        contents["files"] = {one.relative_to(out).as_posix(): file_sha256(one) for one in names}
        write_json(out / RUN_FILE, contents)


def _code_before(before: Sequence[CodeRecord], now: Sequence[CodeRecord]) -> list[CodeRecord]:
    """Return the records of the present code, with the files that it had in the rounds before."""
    known = {(one["role"], one["reference"]): one for one in before}
    return [known.get((one["role"], one["reference"]), one) for one in now]


@contextlib.contextmanager
def _removed_on_failure(out: Path) -> Iterator[None]:
    """Remove what was written of a fork if the block fails, as on a full disk, so that it can be repeated."""
    try:
        yield
    except BaseException:
        shutil.rmtree(out, ignore_errors=True)
        raise


def _columns(contents: RunContents, setup: Setup) -> dict[str, str | int]:
    """Return the columns that are equal in all rows of a run."""
    return {
        "run_id": contents["run_id"],
        "method": setup.config.method,
        "dataset": setup.dataset.name,
        "partition": setup.config.data.split,
        "seed": setup.config.seed,
    }


def _rows(path: Path, contents: RunContents, setup: Setup, at: int) -> pa.Table:
    """Return the rows of a run's first `at` rounds, in the name of its fork."""
    rows = read_metrics(path)
    rows = rows.filter(pc.less_equal(rows["round"], at))
    for name, value in _columns(contents, setup).items():
        index = rows.schema.get_field_index(name)
        field = rows.schema.field(index)
        column = pa.array([value] * rows.num_rows).cast(field.type)
        rows = rows.set_column(index, field, column)
    return rows


__all__ = ["check_fork", "forked"]
