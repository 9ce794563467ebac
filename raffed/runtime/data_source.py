"""Where a run's data set comes from: the catalogue, or data of one's own."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar
from typing import TYPE_CHECKING

from raffed.config.run import RunConfig

if TYPE_CHECKING:
    from raffed.data.dataset import Dataset


_kept: ContextVar[dict[tuple[str, str | None, bool], Dataset] | None] = ContextVar("_kept", default=None)


@contextlib.contextmanager
def read_once() -> Iterator[None]:
    """Within the block, a published data set is read once, however many setups are made of it.

    Reading and hashing the files takes most of the time of a setup. Only for setups that are looked at and
    not executed, because they share the arrays. Of several data sets the last one is kept.
    """
    token = _kept.set({})
    try:
        yield
    finally:
        _kept.reset(token)


def load_data(config: RunConfig, data_sha256: str = "") -> tuple[Dataset, str]:
    """Return the run's data set and, of data of one's own, the hash of its arrays (else "").

    With `data.pool = "joined"` its test part belongs to the training pool.

    Args:
        config: The run's configuration.
        data_sha256: The hash that the data must have; "" for a new run.

    Raises:
        UsageError: The data cannot be read or used.
    """
    from raffed.data.joined import joined
    from raffed.data.own_data import is_own, load_own

    if is_own(config.data.dataset):
        found, sha256 = load_own(config.data.dataset, data_sha256)
    else:
        found, sha256 = _published(config), ""
    return (joined(found) if config.data.pool == "joined" else found), sha256


def _published(config: RunConfig) -> Dataset:
    from raffed.data.datasets import load_dataset

    data, kept = config.data, _kept.get()
    place = data.dataset, data.root, data.download
    if kept is None:
        return load_dataset(*place)
    if place not in kept:
        kept.clear()
        kept[place] = load_dataset(*place)
    return kept[place]


__all__ = ["load_data", "read_once"]
