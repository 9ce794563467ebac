"""What a client's seconds are of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

import raffed
from raffed.config.sections import Numerics
from raffed.runtime import worker
from tests.runtime.conftest import small


class Clock:
    """A stand-in for the module `time`: it goes on only when told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def perf_counter(self) -> float:
        return self.now

    def after(self, function: Callable[..., Any], seconds: float) -> Callable[..., Any]:
        """The function, which also lets time pass."""

        def call(*args: Any, **kwargs: Any) -> Any:
            self.now += seconds
            return function(*args, **kwargs)

        return call


@pytest.mark.parametrize("cohort", [0, 5])
def test_a_client_s_seconds_are_those_of_its_local_round_alone(
    cohort: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fig. 4 of FedMR: training takes 8 s, everything before and after it more; five clients in one stack
    have 8/5 s each.
    """
    clock = Clock()
    monkeypatch.setattr(worker, "time", clock)
    monkeypatch.setattr(worker, "client_rounds", clock.after(worker.client_rounds, 8.0))
    for owner, name in (
        (worker.ClientWorker, "_participant"),
        (worker.ClientWorker, "_scores"),
        (worker.ClientStateStore, "put"),
        (worker.UploadPipeline, "send"),
    ):
        monkeypatch.setattr(owner, name, clock.after(getattr(owner, name), 100.0))
    rows = raffed.run(replace(small("moon", rounds=1), numerics=Numerics(cohort=cohort))).to_pandas()
    own = rows[(rows["metric"] == "loss") & rows["client"].notna()]
    assert own["seconds"].tolist() == [pytest.approx(8.0 / max(cohort, 1))] * 5
    assert clock.now > 1000.0  # the others have run
