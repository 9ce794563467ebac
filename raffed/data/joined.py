"""Join a data set's training and test part to one pool, which is then divided anew."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from raffed.data.dataset import Dataset
from raffed.errors import UsageError


def joined(dataset: Dataset) -> Dataset:
    """Return the data set with all its samples in the training pool: first its own, then those of the test.

    PFLlib and FedVLS divide data in this way. The result has no test set, so models are scored on the
    clients' local test parts. Natural clients are kept if the owners of all test samples are known.

    Args:
        dataset: The data set.

    Raises:
        UsageError: It has no test set.
    """
    if not len(dataset.y_test):
        raise UsageError(
            f"data.pool = 'joined': {dataset.name or 'the data set'} has no test set that could be joined; "
            "use train"
        )
    own, theirs = dataset.clients, dataset.test_clients
    known = own is not None and theirs is not None and bool((theirs >= 0).all())
    return replace(
        dataset,
        x=np.concatenate([dataset.x, dataset.x_test]),
        y=np.concatenate([dataset.y, dataset.y_test]),
        x_test=dataset.x_test[:0],
        y_test=dataset.y_test[:0],
        clients=np.concatenate([own, theirs]) if known else None,
        test_clients=None,
    )
