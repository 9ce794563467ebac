"""From Tune's callbacks to whoever watches a sweep."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from ray import tune

Listener = Callable[[str, Any], None]  # state, Tune's trial
_listeners: list[Listener] = []


class Progress(tune.Callback):
    """Passes on what happens to trials. Tune pickles its callbacks, so this one holds nothing."""

    def on_trial_start(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        _tell("running", trial)

    def on_trial_result(self, iteration: int, trials: list[Any], trial: Any, result: dict[str, Any], **info: Any) -> None:
        _tell("running", trial)

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        _tell("done", trial)

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        _tell("failed", trial)


class listening:  # noqa: N801  # a context manager, read as a verb
    """While the block runs, `heard` is called for every event; `seconds` is how long it ran."""

    def __init__(self, heard: Listener) -> None:
        self._heard, self.seconds = heard, 0.0

    def __enter__(self) -> listening:
        self._began = time.monotonic()
        _listeners.append(self._heard)
        return self

    def __exit__(self, *raised: object) -> None:
        _listeners.remove(self._heard)
        self.seconds = time.monotonic() - self._began


def _tell(state: str, trial: Any) -> None:
    for heard in _listeners:
        heard(state, trial)
