"""Estimate how long the runs of an item take, from a few steps on this machine."""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from raffed.config.run import RunConfig
from raffed.errors import UsageError
from raffed.methods.authors import without_engine
from raffed.results.runfile import RUN_FILE, read_run
from raffed.runs.record import hardware
from raffed.runtime.run_method import references_in
from raffed.tables.items import stages_of
from raffed.tables.planner import PlannedRun

# Correct the estimates of a table's runs by what its finished runs took on this machine.


SAME = ("machine", "processor", "cores")  # of the hardware, where seconds can be compared


def _kind(config: RunConfig) -> tuple[object, ...]:
    """Return what decides how far an estimate is off. Other methods take longer than FedAvg, a probe's."""
    runtime, place = config.runtime, (config.method, config.data.dataset, config.model.name)
    return *place, runtime.execution, runtime.gpu_fraction > 0, config.numerics.cohort


def corrected(jobs: Sequence[PlannedRun], whole: Callable[[PlannedRun], float]) -> list[PlannedRun]:
    """Return the jobs, the unfinished ones with the seconds that finished runs of their kind suggest.

    The estimate of a run is multiplied by the median, over the finished runs of the same method, data set and
    network, of measured over estimated seconds.

    Args:
        jobs: The runs of a table, with the estimated seconds of those that are not finished.
        whole: Returns the estimated seconds of a finished run from its beginning; 0 if nothing is known.
    """
    by_kind: dict[tuple[object, ...], list[float]] = {}
    here = hardware()
    for job in jobs:
        if not job.done:
            continue
        record, expected = read_run(job.folder), whole(job)
        seconds = record.get("seconds", 0.0)
        if expected and seconds and all(record["hardware"].get(name) == here[name] for name in SAME):
            kind = _kind(RunConfig.from_dict(record["config"]))
            by_kind.setdefault(kind, []).append(seconds / expected)
    ratio = {kind: statistics.median(ratios) for kind, ratios in by_kind.items()}
    return [replace(job, seconds=job.seconds * ratio.get(_kind(job.config), 1.0)) for job in jobs]


START_SECONDS = 12.0  # duration of a run's start, before its first round
PROBE_STEPS = 4  # per probe; the first step is slower, and a large network needs seconds for each


@dataclass(frozen=True)
class Speed:
    """Seconds that a local training step and a global evaluation take in one process on this machine."""

    step: float
    evaluation: float


def _probed_by(config: RunConfig) -> tuple[str, tuple[object, ...]]:
    """Return the split, and what else decides the speed of a step. Runs that agree in it share a probe."""
    data, gpu = config.data, config.runtime.gpu_fraction
    return data.split, (data.dataset, data.transform, repr(config.model), config.local.batch_size, gpu)


def estimated(jobs: Iterable[PlannedRun], tell: Callable[[str], None]) -> list[PlannedRun]:
    """Return the jobs with the seconds they may still take, from a probe of each data set and network.

    A job whose data are missing is marked as left out. A probe trains one client of FedAvg for a few steps,
    so methods with additional passes take longer. Where runs of the same method are finished here, their
    measured seconds correct the estimate (`corrected`).
    """
    probes = _Probes(tell)
    return corrected([probes.estimate(job) for job in jobs], probes.whole)


class _Probes:
    """The speeds that were probed, and the sizes of the clients of each task."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell
        self._speeds: dict[tuple[str, tuple[object, ...]], Speed | str] = {}
        self._sizes: dict[str, list[int]] = {}

    def estimate(self, job: PlannedRun) -> PlannedRun:
        """Return a job with its seconds, or marked as left out; a finished one as it is."""
        if job.left_out or job.done:
            return job
        config = without_engine(job.config)  # an author's network is only known to the author's code
        key = _probed_by(config)
        if key not in self._speeds:
            self._tell(f"probing {config.data.dataset}, {config.data.split}, {config.model.name}")
            self._speeds[key] = _probed(config)
        speed = self._speeds[key]
        if isinstance(speed, str):
            return replace(job, left_out=speed)
        try:
            return replace(job, seconds=seconds_left(job, speed, self._sizes_of(config)))
        except UsageError as error:
            return replace(job, left_out=" ".join(str(error).split()))

    def whole(self, job: PlannedRun) -> float:
        """Return the estimated seconds of a job from its beginning; 0 if its network was not probed."""
        config = without_engine(job.config)
        key = _probed_by(config)
        like = [measured for (_, probed), measured in self._speeds.items() if probed == key[1]]
        speed = self._speeds.get(key, like[0] if like else "")
        if isinstance(speed, str):
            return 0.0
        return _seconds(config, config.federation.rounds, speed, self._sizes_of(config))

    def _sizes_of(self, config: RunConfig) -> list[int]:
        # Methods of one task share its sizes; own code is looked at before anything is executed
        share = repr((config.data, config.seed, references_in(config)))
        if share not in self._sizes:
            self._sizes[share] = sizes_of(config)
        return self._sizes[share]


def sizes_of(config: RunConfig) -> list[int]:
    """Return the training samples of every client in the first round. All stages have the same sizes."""
    from raffed.runtime.setup import prepare_run

    return prepare_run(config).data.sizes_at(0)


def seconds_left(job: PlannedRun, speed: Speed, sizes: list[int]) -> float:
    """Estimate the seconds that a run still takes.

    The estimate is T·(participants · mean steps · s per step + evaluations · s), divided by the number of
    actors, plus the time to start. A survey counts as one evaluation, because all clients' test parts
    together are about as large as the global test set.

    Args:
        job: The run.
        speed: Of its data set and network on this machine.
        sizes: Training samples of every client.
    """
    done = int(read_run(job.folder).get("rounds_done", 0)) if (job.folder / RUN_FILE).exists() else 0
    return _seconds(job.config, job.config.federation.rounds - done, speed, sizes)


def _seconds(config: RunConfig, rounds: int, speed: Speed, sizes: list[int]) -> float:
    """Return the estimated seconds of so many rounds and of the start before them."""
    federation = config.federation
    together = federation.participants(len(sizes))
    steps = sum(config.local.steps(n) for n in sizes) / len(sizes)
    evaluations = (
        -(-federation.rounds // federation.eval_every) + min(federation.survey, federation.rounds)
    ) / federation.rounds
    side_by_side = 1
    if config.runtime.execution != "serial":
        side_by_side = min(config.runtime.actors or os.cpu_count() or 1, together)
    each = (together * steps * speed.step + evaluations * speed.evaluation) / side_by_side
    return rounds * each + START_SECONDS * (config.runtime.execution != "serial")


def _probed(config: RunConfig) -> Speed | str:
    """Return the speed of a network on its data here, or why it cannot be run."""
    from raffed.runs.run import run
    from raffed.runtime.setup import prepare_run

    # FedAvg, and nothing else in which runs that share a probe may differ: own code of one of them must not
    # stop the others. At rate 0 nothing diverges.
    small = RunConfig(data=config.data, model=config.model, numerics=config.numerics, seed=config.seed)
    size, share, threads = config.local.batch_size, config.runtime.gpu_fraction, config.runtime.threads
    local = replace(small.local, lr=0.0, batch_size=size, epochs=1e-6, min_steps=PROBE_STEPS)
    runtime = replace(small.runtime, execution="serial", gpu_fraction=share, threads=threads)
    try:
        small = replace(small, local=local, runtime=runtime)
        small = small.changed({"federation.rounds": stages_of(config.data)})
        rate = 1 / prepare_run(small).partition.num_clients  # a round
        rows = run(small.changed({"federation.participation": rate})).to_pandas()
    except UsageError as error:
        return " ".join(str(error).split())
    timed = rows[rows["seconds"].notna()]
    server, client = (timed[timed["model"] == model]["seconds"].iloc[0] for model in ("global", "local"))
    return Speed(float(client) / PROBE_STEPS, max(float(server - client), 0.0))
