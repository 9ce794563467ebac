"""Where a run's data set comes from, the catalogue or data of one's own, and how it is divided."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Hashable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from raffed.config.run import RunConfig

if TYPE_CHECKING:
    from raffed.data.dataset import Dataset
    from raffed.data.partition_file import Partition
    from raffed.data.split import Split

T = TypeVar("T")


@dataclass
class _Kept:
    """What was made of one published data set. It goes when another data set is read."""

    datasets: dict[Hashable, Dataset] = field(default_factory=dict)
    smaller: dict[Hashable, Dataset] = field(default_factory=dict)
    partitions: dict[Hashable, Partition] = field(default_factory=dict)
    networks: dict[Hashable, tuple[str, ...]] = field(default_factory=dict)


_kept: ContextVar[_Kept | None] = ContextVar("_kept", default=None)


@contextlib.contextmanager
def read_once() -> Iterator[None]:
    """Within the block, a published data set is read and divided once, however many setups are made of it.

    Reading, hashing and dividing take most of the time of a setup. Only for setups that are looked at and
    not executed, because they share the arrays. Of several data sets the last one is kept.
    """
    token = _kept.set(_Kept())
    try:
        yield
    finally:
        _kept.reset(token)


def _once(among: dict[Hashable, T] | None, key: Hashable, make: Callable[[], T]) -> T:
    """Return what was made of a key before, or make it. Nothing is kept outside `read_once`."""
    if among is None:
        return make()
    if key not in among:
        among[key] = make()
    return among[key]


def network_once(key: Hashable, make: Callable[[], tuple[str, ...]]) -> tuple[str, ...]:
    """Return the names of a network's parameters. Within `read_once` a network is built once."""
    kept = _kept.get()
    return _once(None if kept is None else kept.networks, key, make)


def part_of(whole: Dataset, config: RunConfig) -> Dataset:
    """Return the data set with as many training samples as the run uses."""
    from raffed.data.dataset import fewer
    from raffed.data.own_data import is_own

    kept, data = _kept.get(), config.data
    among = None if kept is None or is_own(data.dataset) else kept.smaller
    key = data.dataset, data.root, data.pool, data.samples, config.seed
    return _once(among, key, lambda: fewer(whole, data.samples, config.seed))


def draw_partition(config: RunConfig, split: Split, dataset: Dataset, labelled: int) -> Partition:
    """Return who has which samples of a data set.

    Args:
        config: The run's configuration.
        split: The rule that divides the data.
        dataset: The data set, as small as the run uses it.
        labelled: Labelled samples that the method's server needs for itself.
    """
    from raffed.data.own_data import is_own
    from raffed.data.partition import draw_server_holdout, held_out, partition_beside

    def drawn() -> Partition:
        labels, classes, seed = dataset.y, dataset.num_classes, config.seed
        own = draw_server_holdout(labels, classes, labelled, seed)
        tests = dataset.y_test, dataset.test_clients
        request = split, labels, classes, dataset.clients, seed, config.data.local_test, *tests
        return held_out(partition_beside(own, *request), config.data.validation, seed)

    kept = _kept.get()
    among = None if kept is None or is_own(config.data.dataset) else kept.partitions
    return _once(among, (repr(config.data), config.seed, labelled), drawn)


def load_data(config: RunConfig, data_sha256: str = "") -> tuple[Dataset, str]:
    """Return the run's data set and, of data of one's own, the hash of its arrays (else "").

    With `data.pool = "joined"` its test part belongs to the training pool.

    Args:
        config: The run's configuration.
        data_sha256: The hash that the data must have; "" for a new run.

    Raises:
        UsageError: The data cannot be read or used.
    """
    from raffed.data.dataset import joined
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
    if kept is not None and place not in kept.datasets:
        for one in (kept.datasets, kept.smaller, kept.partitions):
            one.clear()
    return _once(None if kept is None else kept.datasets, place, lambda: load_dataset(*place))
