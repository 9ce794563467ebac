"""Checks of a configuration against the machine and the number of clients."""

from __future__ import annotations

from raffed.config.run import RunConfig
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
