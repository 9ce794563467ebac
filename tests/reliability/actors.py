"""A client actor that carries out a plan of faults of the infrastructure, each once, and leaves a mark
when it has.
"""

from __future__ import annotations

import os
import signal
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import ray

from tests.runtime.odd_actors import Plain

SECONDS = 1.0  # that a slow actor is late


class Fault(NamedTuple):
    """kind: before, in or after training, or in evaluation, the actor is killed; slow: it answers late.
    round: from 0.

        `after` is the lost upload as well: trained, vaults written, dead before the answer leaves.
    """

    kind: str
    actor: int
    round: int


class Marks:
    """What was injected, as empty files in a folder: it outlives the processes that die of it."""

    def __init__(self, folder: str) -> None:
        self.folder = Path(folder)

    def first(self, fault: Fault) -> bool:
        """Whether it has not happened yet; from now on it has."""
        try:
            os.close(os.open(self.folder / "-".join(map(str, fault)), os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return False
        return True

    def __len__(self) -> int:
        return len(list(self.folder.iterdir()))


@ray.remote
class StruckActor(Plain):
    """Actor `number` of a pool, struck by its part of the plan."""

    def __init__(
        self, setup: Any, vaults: str, home: tuple[int, ...], number: int, plan: tuple[Fault, ...], marks: str
    ) -> None:
        super().__init__(setup, vaults, home, number)
        self._plan, self._marks = [fault for fault in plan if fault.actor == number], Marks(marks)

    def _struck(self, kind: str, round: int) -> bool:
        return any(
            fault[0] == kind and fault.round == round and self._marks.first(fault) for fault in self._plan
        )

    def _killed(self, kind: str, round: int) -> None:
        if self._struck(kind, round):
            os.kill(os.getpid(), signal.SIGKILL)

    def train(self, broadcast: Any, share: Any) -> Any:
        self._killed("before", broadcast.round)
        if (
            any(fault.kind == "in" and fault.round == broadcast.round for fault in self._plan)
            and len(share.stacks) > 1
        ):
            super().train(broadcast, replace(share, stacks=share.stacks[:1]))
            self._killed("in", broadcast.round)
        answer = super().train(broadcast, share)
        self._killed("after", broadcast.round)
        if self._struck("slow", broadcast.round):
            time.sleep(SECONDS)
        return answer

    def evaluate(self, broadcast: Any, chunks: range) -> Any:
        self._killed("evaluation", broadcast.round - 1)  # the broadcast is that of the next round
        return super().evaluate(broadcast, chunks)
