"""A client actor that answers late in every other round, for the test of arrival order."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import ray


@ray.remote
class SlowActor:
    def __init__(self, setup: Any, vaults: str, home: tuple[int, ...], number: int) -> None:
        from raffed.runtime.host import Host

        self._host, self._number = Host(setup, Path(vaults), home=frozenset(home)), number

    def ready(self) -> dict[str, Any]:
        return {"pid": 0}

    def train(self, broadcast: Any, share: Any) -> Any:
        answer = self._host.train(broadcast, share)
        time.sleep(1.0 if broadcast.round % 2 == self._number else 0.0)
        return answer

    def evaluate(self, broadcast: Any, chunks: range) -> Any:
        return self._host.evaluate(broadcast, chunks)

    def digests(self, versions: dict[int, int]) -> dict[int, str]:
        return self._host.store.digests(versions)
