"""The server's side of a round: from the participants' uploads to the server's next state."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from raffed.config.sections import Clock
from raffed.config.validation import Json
from raffed.core import seeds
from raffed.core.aggregation.robust_means import add_noise
from raffed.core.aggregation.uploads import PartialSum, UploadAccumulator
from raffed.core.context import Received, ServerContext, Spec
from raffed.core.measures.scores import ScoreCounts
from raffed.core.messages import Broadcast, Private, ServerState, Wire, moved
from raffed.core.method import Method
from raffed.core.params import Params
from raffed.core.round import explained, joined, server_round
from raffed.core.training.network import Network
from raffed.data.partition import draw_server_holdout
from raffed.data.transforms import prepare_inputs
from raffed.errors import UsageError
from raffed.own.user_code import user_errors
from raffed.results.metric import Row
from raffed.results.metrics import CLEAN_ACCURACY
from raffed.runs.participation import RoundPlan
from raffed.runtime.api import Backend, ServerWork
from raffed.runtime.federated_data import FederatedData
from raffed.runtime.record_files import Arrays, outline, rebuild
from raffed.runtime.scoring import ModelScorer
from raffed.runtime.setup import Setup

# Where the server works with a network: on the device where clients train, which may be a GPU.
#
# The driver has no share of a GPU. Network passes over many images would take it minutes on one core, where
# a GPU needs a second. So in a run on GPUs one of the client actors does such work, while it has no client.


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
    def of(memory: Private | Wire | None) -> ServerMemoryCopy:
        arrays: Arrays = {}
        return ServerMemoryCopy(outline(memory, "own", arrays), arrays)

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
            received={slot: moved(message, device) for slot, message in k.received.items()},
            b=k.b.to(device),
            sent_b=k.sent_b.to(device),
            net=net.differentiable,
            public=None if images is None else images.to(device),
            labelled=None if labelled is None else (labelled[0].to(device), labelled[1].to(device)),
        )
        record = self.own.record(setup.method)
        memory = None if record is None else moved(record, device)
        after, w = setup.method.server.step(memory, self.w.to(device), self.mean.to(device), here)
        return ServerMemoryCopy.of(after), w.to(torch.device("cpu"))


# Data that a server's rule asks for (ServerRule.required_data), and scores without the images it has seen.


def public_images(data: FederatedData, count: int) -> Tensor | None:
    """Return `count` images of the global test set, prepared as for testing; None for 0.

    They are drawn once in a run. Their labels are not used.
    """
    if not count:
        return None
    return prepare_inputs(data.test_set()[0][_public(data, count)], data.transform, data.dataset.max_value)


def _public(data: FederatedData, count: int) -> NDArray[np.int64]:
    chosen: NDArray[np.int64] = np.sort(
        seeds.rng(data.seed, "public").permutation(len(data.test_set()[1]))[:count]
    )
    return chosen


def labelled_images(data: FederatedData, per_class: int) -> tuple[Tensor, Tensor] | None:
    """Return (images, labels) of every class that no client has, prepared as for testing; None for 0.

    See data/partition.py.
    """
    if not per_class:
        return None
    dataset = data.dataset
    chosen = draw_server_holdout(dataset.y, dataset.num_classes, per_class, data.seed)
    images = prepare_inputs(dataset.x[chosen], data.transform, dataset.max_value)
    return images, torch.from_numpy(dataset.y[chosen])


@dataclass(frozen=True)
class ModelScoring:
    """The scoring of a global model on prepared images x [n, ...] with labels y [n]."""

    whole: Broadcast
    x: Tensor
    y: Tensor

    def __call__(self, net: Network, setup: Setup) -> ScoreCounts:
        scorer = ModelScorer(setup.method.personal, net, setup.dataset.num_classes)
        state = joined(setup.method.split, self.whole, None, net)
        return scorer.of(state, net.arranged(self.x.to(net.device)), self.y.to(net.device))


class CleanScore:
    """The score of the global model on the test images that its server has not seen.

    It is the score on all test images minus that on the public ones.
    """

    def __init__(self, data: FederatedData, device: ServerDevice, images: Tensor) -> None:
        labels = data.test_set()[1][_public(data, len(images))]
        self._seen = images, torch.from_numpy(np.array(labels))
        self._device = device

    def rows(self, number: int, whole: Broadcast, test: ScoreCounts) -> list[Row]:
        """Return the row `accuracy_clean`; none if the server has seen every test image."""
        clean = test - self._device.do(ModelScoring(whole, *self._seen))
        return [CLEAN_ACCURACY.row(number, clean.accuracy, n=clean.n)] if clean.n else []


# What the server makes of uploads whose clients began with models of different ages (config/sections.py).


def completed(
    sums: tuple[Params, Params],
    server: ServerState,
    plan: RoundPlan,
    clock: Clock,
    past: Mapping[int, ServerState],
) -> tuple[Params, Params]:
    """Return the weights and statistics that take the place of the mean of a round.

    With p_i the weight of an upload, α or η and s(τ) included, they are

    FedBuff: w + Σ p_i (w_i − w^{t_i}), where t_i is the number of the model with which client i began;
    FedAsync: (1 − Σ p_i) w + Σ p_i w_i, which is also what BatchNorm's statistics become with both.

    Args:
        sums: Σ p_i w_i of the weights, and of BatchNorm's statistics.
        server: The server's state before the step, with the weights w.
        plan: The step.
        clock: The run's virtual clock.
        past: Number → the server's state of that time, for everything stale.
    """
    w, b = sums
    fresh = all(start == plan.number for start in plan.starts)
    if fresh and clock.mixing * clock.discount(0) == 1.0:  # the weights are those of a mean
        return w, b
    rest = 1.0 - math.fsum(plan.weights)
    if clock.server == "fedasync":
        return _plus(w, [(rest, server.w)]), _plus(b, [(rest, server.b)])
    shares: dict[int, list[float]] = {}
    for start, weight in zip(plan.starts, plan.weights, strict=True):
        shares.setdefault(start, []).append(weight)
    begun = [(-math.fsum(parts), (past.get(start) or server).w) for start, parts in sorted(shares.items())]
    if rest < 0.0:  # η above 1: statistics are the mean of those of the uploads, and go no further
        b, rest = b / (1.0 - rest), 0.0
    return _plus(w, [(1.0, server.w), *begun]), _plus(b, [(rest, server.b)])


def _plus(total: Params, more: list[tuple[float, Params]]) -> Params:
    """Return a sum of points, added up in float64."""
    if not len(total):
        return total
    wide = total.flat.to(torch.float64)
    for factor, point in more:
        wide = wide + factor * point.flat.to(device=wide.device, dtype=torch.float64)
    return Params.from_flat(total.layout, wide.to(total.dtype))


class RoundAggregator:
    """Aggregates the uploads of a round.

    `public` holds the unlabelled images that the server's rule asks for, and `labelled` the labelled ones.
    Both are drawn once in a run, and are None if the rule asks for none.
    """

    def __init__(self, setup: Setup, device: ServerDevice, spec: Spec) -> None:
        wanted = setup.method.server.required_data()
        self.public = public_images(setup.data, wanted.images)
        self.labelled = labelled_images(setup.data, wanted.labelled)
        self._setup, self._device, self._spec = setup, device, spec

    def next_server(
        self,
        server: ServerState,
        partial: PartialSum,
        plan: RoundPlan,
        past: Mapping[int, ServerState] = MappingProxyType({}),
    ) -> ServerState:
        """Return the server's state after a round.

        Without any upload to count, the server and its memories stay as they are.

        Args:
            server: The state before it.
            partial: The sums of the uploads.
            plan: The round.
            past: Number → the server's state of that time, if participants began with earlier models.
        """
        counted = plan.participants.counted
        if not counted:
            return server.replace(round=server.round + 1)
        accumulator = UploadAccumulator()
        accumulator.merge(partial)
        mean_w, mean_b, received = accumulator.finish(server)
        if plan.starts:
            clock = self._setup.config.clock
            mean_w, mean_b = completed((mean_w, mean_b), server, plan, clock, past)
        privacy, seed = self._setup.config.privacy, self._setup.config.seed
        if privacy.clip is not None and privacy.noise_at == "server":
            # σ times S · max p_i, the distance by which one client can move the mean
            deviation = privacy.noise * privacy.clip * max(plan.weights)
            mean_w = add_noise(mean_w, deviation, seeds.generator(seed, "privacy", server.round))
        if privacy.masks:
            _check_masked(received, len(counted), self._setup.method.name)
        samples = sum(plan.sizes[client] for client in counted)
        resources = self._device.network.differentiable, self.public, self.labelled
        k = ServerContext(self._spec, server.round, len(counted), samples, received, seed, mean_b, *resources)
        with user_errors(), explained(self._setup.method):
            method = self._setup.method
            apart = method.server.on_device and self._device.apart
            step = self._step_elsewhere if apart else None
            return server_round(method, server, mean_w, mean_b, k, step)

    def _step_elsewhere(self, memory: Any, w: Params, mean: Params, k: ServerContext) -> tuple[Any, Params]:
        """Make the step of the server's rule where clients train."""
        step = RuleStep(ServerMemoryCopy.of(memory), w, mean, replace(k, net=None))
        after, w = self._device.do(step)
        return after.record(self._setup.method), w


def _check_masked(received: Mapping[str, Received], counted: int, method: str) -> None:
    """Check that every masked message was sent by all participants.

    Masks cancel only over all participants that agreed on them. If one does not send a message, the sum
    stays masked.
    """
    few = {slot: message.count for slot, message in received.items() if message.count != counted}
    if few:
        senders = ", ".join(f"{number} of {counted} clients send {slot}" for slot, number in few.items())
        raise UsageError(
            f"privacy.masks: {method}: {senders}, but masks cancel only if all clients "
            "send it; leave masks out"
        )
