"""Steps of training that a GPU records once and then repeats.

A step of a small network is a hundred kernels of a few microseconds each. To start them from Python takes ten
times as long as to compute them. A GPU can record the kernels of a step as a CUDA graph and start all of them
at once. The kernels and their order are those of the step itself, so the bits are the same.

A recording repeats addresses and plain numbers. So only steps that are made of the same operations on the
same tensors are recorded (`ClientTask.repeats`): the batch is copied into the tensors that the recording
reads, and weights and moments are changed in place anyway. A step with another batch size or another learning
rate is another recording. A phase whose steps read nothing else than the network, moments and batch keeps its
recordings for the clients that come next (`KeptPhases`). What cannot be recorded, because it reads a number
from the GPU in the middle of a step, is trained step by step as without recordings.
"""

from __future__ import annotations

import contextlib
import gc
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

Inputs = tuple[pytree.PyTree, ...]  # of tensors, lists and dictionaries of them
Step = Callable[..., Tensor]  # from the inputs to the loss, detached
Repeat = Callable[[], None]
FEWEST = 6  # steps of one kind; below, a recording costs more than it saves
PATIENCE = 2  # steps of one kind that are made by themselves before one is kept for all clients
KINDS = 64  # that a kept phase remembers; a rate that changes in each round makes new ones


class StepRecorder(Protocol):
    """Something that can record what a function does on a device.

    Attributes:
        refused: Names of what could not be recorded, each with the reason.
    """

    refused: dict[str, str]

    def record(self, step: Callable[[], Tensor]) -> tuple[Tensor, Repeat]:
        """Do what `step` does, once, and record it.

        Returns:
            The tensor that `step` returned, and a function that does the same again, which overwrites this
            tensor.

        Raises:
            RuntimeError: The step cannot be recorded. Nothing has been done then.
        """
        ...


class GraphRecorder:
    """Records CUDA graphs. All of them share one pool of memory, because only one is repeated at a time."""

    def __init__(self, device: torch.device) -> None:
        self.refused: dict[str, str] = {}
        self._device = device
        self._stream: torch.cuda.Stream | None = None
        self._pool: Any = None  # typed differently from one version of torch to the next
        self._first: torch.cuda.CUDAGraph | None = None

    def record(self, step: Callable[[], Tensor]) -> tuple[Tensor, Repeat]:
        if self._first is None:
            self._stream = torch.cuda.Stream(self._device)  # type: ignore[no-untyped-call]
            self._pool = torch.cuda.graph_pool_handle()
            # A pool ends with its last graph, and those of a phase end with it, so this one stays
            _, self._first = self._recorded(lambda: torch.zeros(1, device=self._device))
        loss, graph = self._recorded(step)
        graph.replay()
        return loss, graph.replay

    def _recorded(self, step: Callable[[], Tensor]) -> tuple[Tensor, torch.cuda.CUDAGraph]:
        graph, now, stream = torch.cuda.CUDAGraph(), torch.cuda.current_stream(self._device), self._stream
        assert stream is not None
        stream.wait_stream(now)
        # `torch.cuda.graph` would empty the cache of memory and collect garbage, for every client
        with _without_collection(), torch.cuda.stream(stream):
            graph.capture_begin(pool=self._pool, capture_error_mode="thread_local")
            try:
                loss = step()
            except BaseException:
                self._give_up(graph)
                raise
            graph.capture_end()
        now.wait_stream(stream)
        return loss, graph

    def _give_up(self, graph: torch.cuda.CUDAGraph) -> None:
        """End a recording that failed. Later ones get another pool, because this one may not take them."""
        with contextlib.suppress(RuntimeError):  # it says again that the recording failed
            graph.capture_end()
        with contextlib.suppress(RuntimeError):  # torch leaves this out if the line above fails
            torch._C._cuda_endAllocateToPool(torch.cuda.current_device(), self._pool)
        self._first = None


@contextlib.contextmanager
def _without_collection() -> Iterator[None]:
    """In the body, collect no garbage: freeing an older graph would spoil the recording."""
    before = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if before:
            gc.enable()


@dataclass(frozen=True)
class _Recording:
    inputs: list[Tensor]  # what a repetition reads
    loss: Tensor  # what it writes
    repeat: Repeat


class RecordedSteps:
    """The steps of one training phase, or of one stack of them.

    Args:
        recorder: What records, or None to make every step by itself.
        name: Name of what is trained here, which is kept if it cannot be recorded.
        kinds: The kinds of steps that are recorded, or None for all.
        alone: How many steps of a kind are made by themselves before one is recorded.
        most: How many kinds are remembered, the last used ones, or None for all.
    """

    def __init__(
        self,
        recorder: StepRecorder | None = None,
        name: str = "",
        kinds: Collection[Hashable] | None = None,
        *,
        alone: int = 1,
        most: int | None = None,
    ) -> None:
        self._recorder, self._name, self._kinds = recorder, name, kinds
        self._alone, self._most = alone, most
        # Kind → its recording, or how many steps were made by themselves; the last used ones at the end
        self._known: dict[Hashable, _Recording | int] = {}

    def make(self, kind: Hashable, inputs: Inputs, step: Step) -> Tensor:
        """Make a step, and return its loss.

        The first step of a kind is made by itself: torch and the libraries below it do their one-time work.
        The second one is recorded (later, if `alone` is above 1), and all others repeat it.

        Args:
            kind: What steps that repeat have in common, such as batch size and learning rate.
            inputs: The tensors that differ from step to step, on the device of the network.
            step: Function from these to the loss, detached.
        """
        if self._recorder is None or (self._kinds is not None and kind not in self._kinds):
            return step(*inputs)
        recording = self._known.pop(kind, 0)
        self._known[kind] = recording
        if isinstance(recording, int) and recording < self._alone:
            self._known[kind] = recording + 1
            if self._most is not None and len(self._known) > self._most:
                del self._known[next(iter(self._known))]
            return step(*inputs)
        if isinstance(recording, int):
            copies: Inputs = pytree.tree_map_only(Tensor, torch.clone, inputs)
            try:
                loss, repeat = self._recorder.record(lambda: step(*copies))
            except RuntimeError as error:
                self._recorder.refused[self._name] = str(error)
                self._recorder = None
                return step(*inputs)
            self._known[kind] = recording = _Recording(_tensors(copies), loss, repeat)
        else:
            for into, tensor in zip(recording.inputs, _tensors(inputs), strict=True):
                into.copy_(tensor)
            recording.repeat()
        return recording.loss.clone()


def _tensors(inputs: Inputs) -> list[Tensor]:
    return [leaf for leaf in pytree.tree_leaves(inputs) if isinstance(leaf, Tensor)]


NEVER = RecordedSteps()


@dataclass(frozen=True)
class KeptPhase:
    """What the phases of one kind share from client to client.

    Attributes:
        moments: The optimiser's moments, by name, in memory that stays where it is.
        steps: The recordings of their steps.
    """

    moments: Mapping[str, list[Tensor]]
    steps: RecordedSteps


class KeptPhases:
    """The phases of a network whose recordings serve for all clients.

    Their steps read and write the network, the moments and the batch, and nothing that belongs to a client:
    they minimise the cross-entropy and are not corrected. The network's memory stays the same for all
    clients. That of the moments does so here.
    """

    def __init__(self) -> None:
        self._known: dict[Hashable, KeptPhase] = {}

    def of(
        self,
        recorder: StepRecorder | None,
        name: str,
        kind: Hashable,
        begin: Callable[[], Mapping[str, list[Tensor]]],
        *,
        counted: bool = False,
    ) -> KeptPhase | None:
        """Return a phase with moments of zero, or None if its steps are not recorded.

        Args:
            recorder: The network's, or None.
            name: Name of what is trained, or "" if its steps do not repeat.
            kind: What phases have in common that share recordings, such as the part that is trained.
            begin: Function that returns the moments before the first step.
            counted: Whether a step depends on its number (`Optimizer.counts`).
        """
        if recorder is None or not name or name in recorder.refused or counted:
            return None
        kept = self._known.get((name, kind))
        if kept is None:
            steps = RecordedSteps(recorder, name, alone=PATIENCE, most=KINDS)
            kept = self._known[name, kind] = KeptPhase(begin(), steps)
            return kept
        for tensors in kept.moments.values():
            torch._foreach_zero_(tensors)
        return kept


def recorded_steps(
    recorder: StepRecorder | None,
    name: str,
    kinds: Callable[[], Iterable[Hashable]],
    *,
    counted: bool = False,
) -> RecordedSteps:
    """Return how the steps of a phase are made: by themselves, or recorded where that is possible and pays.

    Args:
        recorder: The network's, or None.
        name: Name of what is trained, or "" if its steps do not repeat.
        kinds: Function that returns the kind of every step (`RecordedSteps.make`). Only kinds of at least
            FEWEST steps are recorded. The short last batch of an epoch is often of a kind with fewer.
        counted: Whether a step depends on its number (`Optimizer.counts`).
    """
    if recorder is None or not name or name in recorder.refused or counted:
        return NEVER
    often = {kind for kind, steps in Counter(kinds()).items() if steps >= FEWEST}
    return RecordedSteps(recorder, name, often) if often else NEVER
