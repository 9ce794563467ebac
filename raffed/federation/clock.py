"""Checks of the virtual clock of a run against its method, its data and its other options."""

from __future__ import annotations

from collections.abc import Sequence

from raffed.config.run import RunConfig
from raffed.config.selection import UNIFORM
from raffed.core.method import Method
from raffed.errors import UsageError
from raffed.federation.selection import needs_losses


def check_clock(
    config: RunConfig, method: Method, clients: int, trainable: Sequence[int], *, in_stages: bool
) -> None:
    """Check the virtual clock of a run.

    Args:
        config: The run's configuration.
        method: Its method, with the mean that the run asks for.
        clients: Number N of all clients.
        trainable: The clients that may train.
        in_stages: Whether the data come in stages.

    Raises:
        UsageError: It does not fit the rest of the run.
    """
    clock = config.clock
    clock.check_together()
    if clock.speeds == "trace":
        clock.traced(clients)
    if clock.speeds and needs_losses(config):
        raise UsageError(
            f"clock.speeds = {clock.speeds!r}: the clock must know all participants beforehand, and "
            f"federation.selection = {config.federation.selection!r} chooses them by their losses; leave one "
            "of the two out"
        )
    if not clock.asynchronous:
        return
    at_once = config.federation.participants(len(trainable))
    if clock.buffer > at_once:
        raise UsageError(
            f"clock.buffer = {clock.buffer} is more than the {at_once} clients that train at a time; lower "
            "--buffer, or raise --participation"
        )
    if why := _why_not(config, method, in_stages):
        raise UsageError(f"clock.server = {clock.server!r}: {why}")


def _why_not(config: RunConfig, method: Method, in_stages: bool) -> str:
    """Return why the server of a run must wait for all participants, or ""."""
    if method.split.personal == "all":
        return f"the clients of {method.name} upload no weights; leave it out"
    if method.keeps_uploads or method.mean.reweighting is not None or method.mean.fixed:
        return (
            f"{method.name} needs the uploads of a whole round or the weights of their mean, so its server "
            "must wait; leave it out, or use another method"
        )
    refused = {
        "another selection than uniform": config.federation.selection != UNIFORM,
        "data in stages": in_stages,
        "epochs that are drawn (local.epochs_to)": bool(config.local.epochs_to),
        "a plan of faults": config.faults.any,
        "clipping, noise or masks": config.privacy.clip is not None or config.privacy.masks,
    }
    found = next((name for name, given in refused.items() if given), "")
    return f"it does not go together with {found}; leave one of the two out" if found else ""
