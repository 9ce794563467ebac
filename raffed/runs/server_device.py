"""Where the server works with a network: on the device where clients train, which may be a GPU.

The driver has no share of a GPU. Network passes over many images would take it minutes on one core, where a
GPU needs a second. So in a run on GPUs one of the client actors does such work, while it has no client.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, TypeVar

import torch

from raffed.config.validation import Json
from raffed.core.context import ServerContext
from raffed.core.messages import Private, Wire, moved
from raffed.core.method import Method
from raffed.core.params import Params
from raffed.core.training.network import Network
from raffed.runtime.api import Backend, ServerWork
from raffed.runtime.record_codec import Arrays, outline, rebuild
from raffed.runtime.setup import Setup

T = TypeVar("T")


class ServerDevice:
    """Does the server's work with a network.

    Args:
        setup: The run.
        network: The driver's network, on the CPU.
        runtime: What trains the clients.
    """

    def __init__(self, setup: Setup, network: Network, runtime: Backend) -> None:
        self._setup, self._runtime, self.network = setup, runtime, network

    @property
    def apart(self) -> bool:
        """Whether the work is done on another device than the CPU."""
        return self._runtime.apart

    def do(self, work: ServerWork[T]) -> T:
        """Do work where clients train: by one of the actors if they have GPUs, and here otherwise."""
        return self._runtime.server_work(work) if self.apart else work(self.network, self._setup)


@dataclass(frozen=True)
class ServerMemoryCopy:
    """The memory of a server's rule on its way to an actor and back, as in a checkpoint's outline and arrays.

    A `Private` record cannot be pickled, so that no client's state leaves its actor by mistake. The server's
    memory is meant to travel here, between two processes that both belong to the server.
    """

    shape: dict[str, Json]
    arrays: Arrays

    @staticmethod
    def of(own: Private | Wire | None) -> ServerMemoryCopy:
        arrays: Arrays = {}
        return ServerMemoryCopy(outline(own, "own", arrays), arrays)

    def record(self, method: Method) -> Any:
        """Return the memory, on the CPU. `method` is the run's."""
        return rebuild(self.shape, "own", self.arrays, method.records)


@dataclass(frozen=True)
class RuleStep:
    """The step of the run's server rule, made on the network's device (`ServerRule.on_device`).

    Attributes:
        own: The rule's memory.
        w: The server's weights w^t.
        mean: The mean of the uploaded weights.
        k: What the server knows, without a network.
    """

    own: ServerMemoryCopy
    w: Params
    mean: Params
    k: ServerContext

    def __call__(self, net: Network, setup: Setup) -> tuple[ServerMemoryCopy, Params]:
        device, k = net.device, self.k
        images, labelled = k.public, k.labelled
        here = replace(
            k,
            received={slot: moved(one, device) for slot, one in k.received.items()},
            b=k.b.to(device),
            net=net.differentiable,
            public=None if images is None else images.to(device),
            labelled=None if labelled is None else (labelled[0].to(device), labelled[1].to(device)),
        )
        own = self.own.record(setup.method)
        memory = None if own is None else moved(own, device)
        after, w = setup.method.server.step(memory, self.w.to(device), self.mean.to(device), here)
        return ServerMemoryCopy.of(after), w.to(torch.device("cpu"))
