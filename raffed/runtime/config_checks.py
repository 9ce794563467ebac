"""Checks of a configuration against the machine and the number of clients."""

from __future__ import annotations

from raffed.config.run import RunConfig
from raffed.config.stop_rule import read_rule
from raffed.errors import UsageError
from raffed.runtime.unseen import unseen_count


def check_gpu(config: RunConfig) -> None:
    """Check that this machine has the requested GPU. For other clusters, only Ray can find out."""
    runtime = config.runtime
    if not runtime.gpu_fraction or (runtime.execution == "ray" and runtime.address is not None):
        return
    import torch

    if not torch.cuda.is_available():
        raise UsageError(
            f"runtime.gpu_fraction = {runtime.gpu_fraction}: torch {torch.__version__} sees no GPU here; "
            "set it to 0 for the CPU, or run `raffed doctor`"
        )


def check_numbers(config: RunConfig, clients: int) -> None:
    """Check the options that contain a number of clients or the number of a client."""
    unseen_count(config, clients)
    per_actor = config.runtime.clients_per_actor
    if per_actor > clients:
        raise UsageError(
            f"runtime.clients_per_actor = {per_actor}, but there are only {clients} clients; set it to "
            f"at most {clients}"
        )
    if config.faults.last_client >= clients:
        raise UsageError(
            f"faults.at names client {config.faults.last_client}; clients are 0 to {clients - 1}"
        )


def check_no_fork(config: RunConfig) -> None:
    """Refuse a new run that says that it continues another one."""
    if config.federation.forked_at or config.federation.fork_sha256:
        raise UsageError(
            "federation.forked_at and federation.fork_sha256 are set by `raffed fork` only; leave them out, "
            "or fork that run again"
        )


def check_stop_rule(config: RunConfig, has_global: bool) -> None:
    """Refuse a rule that could never end the run, or whose last round is measured in a way that must be known
    beforehand.

    Raises:
        UsageError: The rule does not fit the run.
    """
    rule, federation = read_rule(config.federation.stop_when), config.federation
    if rule is None:
        return
    if not config.data.validation:
        raise UsageError(
            "federation.stop_when needs a validation part, because test data may not decide when a run ends; "
            "also give --validation 0.1"
        )
    if rule.measure != "val.personal" and not has_global:
        raise UsageError(
            f"federation.stop_when names {rule.measure}, and {config.method} has no global model; use "
            "val.personal"
        )
    if federation.survey or federation.asks("spectrum"):
        what = "federation.survey" if federation.survey else "federation.measures = spectrum"
        raise UsageError(
            f"federation.stop_when with {what}: the last rounds are measured, and which these are is not "
            "known before the run ends; leave one of the two out"
        )
