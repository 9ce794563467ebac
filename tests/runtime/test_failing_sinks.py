"""A run depends on no tracker: one that is not there is an error before work starts, one that fails later
is dropped.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import raffed
from raffed.errors import UsageError
from raffed.runs.events import RoundEvent
from raffed.trackers import Guarded
from tests.cli.conftest import QUICK, Cli, cli  # noqa: F401
from tests.runtime.conftest import small, together


class Failing:
    """A sink that raises, or hangs, at one of its calls: of round number `at`, or at "close"."""

    def __init__(self, at: int | str, fail: Callable[[], None]) -> None:
        self.at, self._fail, self.calls = at, fail, list[int | str]()

    def __call__(self, event: RoundEvent) -> None:
        self._called(event.round)

    def close(self) -> None:
        self._called("close")

    def _called(self, at: int | str) -> None:
        self.calls.append(at)
        if at == self.at:
            self._fail()


def refused(*_: object) -> None:
    raise ConnectionError("http://me:hidden@host:5000/api?token=hidden: refused\nafter 2 tries")


def hung() -> None:
    threading.Event().wait(20)


@pytest.mark.parametrize(
    ("fail", "at", "calls", "lost"),
    [
        (refused, 2, [1, 2], "refused after 2 tries.*the rounds from 2 on are missing there"),
        (hung, 1, [1], "no answer within 0.3 s.*the rounds from 1 on are missing there"),
        (hung, "close", [1, 2, 3, "close"], "what was shown last may be missing there"),
    ],
)
def test_a_sink_that_fails_is_dropped_with_one_warning_and_the_run_goes_on(
    fail: Callable[[], None],
    at: int | str,
    calls: list[int | str],
    lost: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    sink, seen = Failing(at, fail), list[RoundEvent]()
    guarded = Guarded("Board at http://me:hidden@host", lambda: sink, patience=0.3)
    result = raffed.run(small("fedavg", rounds=3), watch=together([guarded, seen.append]))
    guarded.close()
    assert result.hashes == raffed.run(small("fedavg", rounds=3)).hashes
    assert [event.round for event in seen] == [1, 2, 3]  # the watchers after it are still told
    assert sink.calls == calls  # neither tried again nor closed
    warnings = [one for one in caplog.records if one.levelno >= logging.WARNING]
    assert len(warnings) == 1
    assert re.match(rf"Board at http://…@host failed \(.*{lost}", warnings[0].getMessage())
    assert "hidden" not in warnings[0].getMessage()


@pytest.mark.parametrize("make", [refused, hung])
def test_a_sink_that_cannot_be_opened_is_an_error(make: Callable[[], Any]) -> None:
    with pytest.raises(UsageError, match=r"Board at http://…@host cannot be opened") as told:
        Guarded("Board at http://me:hidden@host", make, patience=0.3)
    assert "hidden" not in str(told.value)


def test_a_tracking_server_that_is_not_there_is_an_error_before_work_starts(
    cli: Cli,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("raffed.cli.running.MLflow", refused)
    tracked = ["--mlflow", "http://me:hidden@host:5000"]
    done = cli("run", *QUICK, "--rounds", "1", *tracked, "--out", tmp_path / "run")
    assert done.code == 2
    assert "MLflow at http://…@host:5000 cannot be opened (ConnectionError" in done.err
    assert "hidden" not in done.out + done.err
    assert not (tmp_path / "run").exists()
