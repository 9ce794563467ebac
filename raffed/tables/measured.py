"""Correct the estimates of a table's runs by what its finished runs took on this machine."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from raffed.config.run import RunConfig
from raffed.config.validation import Value
from raffed.results.runfile import read_run
from raffed.runs.provenance import hardware
from raffed.tables.planner import PlannedRun

SAME = ("machine", "processor", "cores")  # of the hardware, where seconds can be compared


class _Kind(NamedTuple):
    """What decides how far an estimate is off. A probe trains FedAvg, and other methods take longer."""

    method: str
    dataset: str
    model: str
    execution: str
    gpu: bool
    cohort: int

    @staticmethod
    def of(config: RunConfig) -> _Kind:
        runtime, cohort = config.runtime, config.numerics.cohort
        place = config.method, config.data.dataset, config.model.name
        return _Kind(*place, runtime.execution, runtime.gpu_fraction > 0, cohort)


def corrected(jobs: Sequence[PlannedRun], whole: Callable[[PlannedRun], float]) -> list[PlannedRun]:
    """Return the jobs, the unfinished ones with the seconds that finished runs of their kind suggest.

    The estimate of a run is multiplied by the median, over the finished runs of the same method, data set and
    network, of measured over estimated seconds.

    Args:
        jobs: The runs of a table, with the estimated seconds of those that are not finished.
        whole: Returns the estimated seconds of a finished run from its beginning; 0 if nothing is known.
    """
    found: dict[_Kind, list[float]] = {}
    for job in jobs:
        if not job.done:
            continue
        record, expected = read_run(job.folder), whole(job)
        seconds = record.get("seconds", 0.0)
        if expected and seconds and _same_machine(record.get("hardware", {})):
            kind = _Kind.of(RunConfig.from_dict(record["config"]))
            found.setdefault(kind, []).append(seconds / expected)
    ratio = {kind: statistics.median(ratios) for kind, ratios in found.items()}
    return [replace(job, seconds=job.seconds * ratio.get(_Kind.of(job.config), 1.0)) for job in jobs]


def _same_machine(recorded: Mapping[str, Value]) -> bool:
    here = hardware()
    return all(recorded.get(name) == here[name] for name in SAME)
