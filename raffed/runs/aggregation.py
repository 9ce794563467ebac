"""The server's side of a round: from the participants' uploads to the server's next state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from raffed.core import seeds
from raffed.core.aggregation.exact_sums import PartialSum, UploadAccumulator
from raffed.core.aggregation.robust_means import add_noise
from raffed.core.context import Received, ServerContext, Spec
from raffed.core.messages import ServerState
from raffed.core.params import Params
from raffed.core.round import explained, server_round
from raffed.errors import UsageError
from raffed.own.user_code import user_errors
from raffed.runs.participation import RoundPlan
from raffed.runs.server_data import labelled_images, public_images
from raffed.runs.server_device import RuleStep, ServerDevice, ServerMemoryCopy
from raffed.runs.stale_updates import completed
from raffed.runtime.setup import Setup


class RoundAggregator:
    """Aggregates the uploads of a round.

    `public` holds the unlabelled images that the server's rule asks for, and `labelled` the labelled ones.
    Both are drawn once in a run, and are None if the rule asks for none.
    """

    def __init__(self, setup: Setup, device: ServerDevice, spec: Spec) -> None:
        wanted = setup.method.server.required_data()
        self.public = public_images(setup, wanted.images)
        self.labelled = labelled_images(setup, wanted.labelled)
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
        mean_w = self._noisy(server.round, mean_w, max(plan.weights))
        self._check_masked(received, len(counted))
        samples, seed = sum(plan.sizes[client] for client in counted), self._setup.config.seed
        own = self._device.network.differentiable, self.public, self.labelled
        k = ServerContext(self._spec, server.round, len(counted), samples, received, seed, mean_b, *own)
        with user_errors(), explained(self._setup.method):
            method = self._setup.method
            apart = method.server.on_device and self._device.apart
            step = self._step_elsewhere if apart else None
            return server_round(method, server, mean_w, mean_b, k, step)

    def _step_elsewhere(self, own: Any, w: Params, mean: Params, k: ServerContext) -> tuple[Any, Params]:
        """Make the step of the server's rule where clients train."""
        step = RuleStep(ServerMemoryCopy.of(own), w, mean, replace(k, net=None))
        after, w = self._device.do(step)
        return after.record(self._setup.method), w

    def _noisy(self, round: int, mean: Params, largest_weight: float) -> Params:
        """Add the server's noise to the mean, if the run asks for it.

        Its standard deviation is σ times S · max p_i, the distance by which one client can move the mean.
        """
        privacy = self._setup.config.privacy
        if privacy.clip is None or privacy.noise_at != "server":
            return mean
        stream = seeds.generator(self._setup.config.seed, "privacy", round)
        return add_noise(mean, privacy.noise * privacy.clip * largest_weight, stream)

    def _check_masked(self, received: Mapping[str, Received], counted: int) -> None:
        """Check that every masked message was sent by all participants.

        Masks cancel only over all participants that agreed on them. If one does not send a message, the sum
        stays masked.
        """
        few = {slot: got.count for slot, got in received.items() if got.count != counted}
        if few and self._setup.config.privacy.masks:
            senders = ", ".join(f"{number} of {counted} clients send {slot}" for slot, number in few.items())
            raise UsageError(
                f"privacy.masks: {self._setup.method.name}: {senders}, but masks cancel only if all clients "
                "send it; leave masks out"
            )
