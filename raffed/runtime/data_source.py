"""Where a run's data set comes from: the catalogue, or data of one's own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from raffed.config.run import RunConfig

if TYPE_CHECKING:
    from raffed.data.dataset import Dataset


def load_data(config: RunConfig, data_sha256: str = "") -> tuple[Dataset, str]:
    """Return the run's data set and, of data of one's own, the hash of its arrays (else "").

    With `data.pool = "joined"` its test part belongs to the training pool.

    Args:
        config: The run's configuration.
        data_sha256: The hash that the data must have; "" for a new run.

    Raises:
        UsageError: The data cannot be read or used.
    """
    from raffed.data.datasets import load_dataset
    from raffed.data.joined import joined
    from raffed.data.own_data import is_own, load_own

    if is_own(config.data.dataset):
        found, sha256 = load_own(config.data.dataset, data_sha256)
    else:
        found, sha256 = load_dataset(config.data.dataset, config.data.root, config.data.download), ""
    return (joined(found) if config.data.pool == "joined" else found), sha256
