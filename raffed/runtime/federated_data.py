"""The clients of a run and their samples: who has which, who trains, and on what models are scored."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from raffed.config.faults import Faults
from raffed.config.federation import Federation
from raffed.core.own_functions import OwnMetric, own_metrics
from raffed.errors import UsageError

if TYPE_CHECKING:
    from torch import Tensor

    from raffed.data.dataset import Dataset
    from raffed.data.files import InputArray
    from raffed.data.partition_file import Partition
    from raffed.data.preparation import Transform


@dataclass(frozen=True)
class FederatedData:
    """The data of a run, divided among its clients. Nothing in it depends on the method.

    Attributes:
        dataset: All samples.
        partition: Which client has which of them.
        transform: How the inputs are prepared.
        federation: The section of the configuration that says how many rounds there are and who takes part.
        faults: The section that says which clients attack.
        seed: The run's seed.
    """

    dataset: Dataset
    partition: Partition
    transform: Transform
    federation: Federation
    faults: Faults
    seed: int

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of one prepared input: (channels, height, width) for images."""
        return self.transform.prepared_shape(self.dataset.input_shape)

    @property
    def input_dtype(self) -> str:
        """Type of the prepared inputs: "int64" for ids, otherwise "float32"."""
        stored = self.dataset.x.dtype
        is_ids = stored.kind in "iu" and stored != np.uint8 and not self.transform.mean
        return "int64" if is_ids else "float32"

    @functools.cached_property
    def sizes(self) -> list[int]:
        """Training samples of every client, over all its stages."""
        return [len(part) for part in self.partition.train]

    @functools.cached_property
    def unseen(self) -> tuple[int, ...]:
        """The clients that never train (`federation.unseen_clients`), in ascending order."""
        return unseen_clients(self.federation, self.seed, self.partition.num_clients)

    @functools.cached_property
    def trainable(self) -> Sequence[int]:
        """The clients that may train, in ascending order: all but the unseen ones."""
        every = range(self.partition.num_clients)
        return [client for client in every if client not in self.unseen] if self.unseen else every

    @functools.cached_property
    def own_metrics(self) -> tuple[OwnMetric, ...]:
        """The user's own metrics that the run measures, found once in a process, like the method."""
        return own_metrics(self.federation.metrics)

    def stage(self, round: int) -> int | None:
        """Return the stage in which all clients are in a round, or None without stages.

        Stages and rounds are counted from 0.
        """
        stages = self.partition.stages
        return None if stages is None else stages.at(round, self.federation.rounds)

    def sizes_at(self, round: int) -> list[int]:
        """Return the training samples of every client in the stage of this round."""
        stage = self.stage(round)
        if stage is None:
            return self.sizes
        return [len(self.partition.train_at(client, stage)) for client in range(self.partition.num_clients)]

    def class_counts_at(self, round: int, client: int) -> Tensor:
        """Return a client's training samples of each class [C], int64, in the stage of this round.

        They are those of the partition, also for a client whose data an attack changes.
        """
        from torch import from_numpy

        labels = self.dataset.y[self.partition.train_at(client, self.stage(round))]
        return from_numpy(np.bincount(labels, minlength=self.dataset.num_classes))

    @functools.cached_property
    def scored_rows(self) -> Mapping[str, tuple[str, NDArray[np.int64]]]:
        """The samples on which a global model is scored: "test", "val", "attack", "train" → (pool, rows).

        The pool is "test" or "train".

        "test" is the benchmark's own test set or, if there is none, the union of the local test parts. "val"
        is the validation parts of all clients that may train, in client order. It has no rows if nothing was
        held out. With a backdoor, "attack" is those of "test" that do not belong to the backdoor's target.
        With the measure `training`, "train" is the training samples of the same clients, of all stages.
        """
        count, plan = len(self.dataset.y_test), self.faults
        test = ("test", np.arange(count)) if count else ("train", np.concatenate(self.partition.test))
        val = [self.partition.val[client] for client in self.trainable] if self.partition.val else []
        labels = self.dataset.y_test if count else self.dataset.y
        others = test[1][labels[test[1]] != plan.backdoor_target]
        attack = {"attack": (test[0], others)} if plan.attack == "backdoor" else {}
        more = {"train": ("train", np.concatenate([self.partition.train[c] for c in self.trainable]))}
        return {
            "test": test,
            "val": ("train", np.concatenate([np.zeros(0, np.int64), *val])),
            **attack,
            **(more if self.federation.asks("training") else {}),
        }

    def test_set(self) -> tuple[InputArray, NDArray[np.int64]]:
        """The inputs and labels of the global test set. They are copied if they are the local test parts."""
        if len(self.dataset.y_test):
            return self.dataset.x_test, self.dataset.y_test
        _, rows = self.scored_rows["test"]
        return self.dataset.x[rows], self.dataset.y[rows]


def unseen_clients(federation: Federation, seed: int, clients: int) -> tuple[int, ...]:
    """Draw the clients that never train, from a random stream of the seed that nothing else uses.

    Args:
        federation: The run's section `federation`.
        seed: The run's seed.
        clients: Number of all clients N.

    Returns:
        round(fraction · N) clients in ascending order; none if the fraction is 0.
    """
    count = unseen_count(federation, clients)
    if not count:
        return ()
    from raffed.core import seeds  # imported late because it loads torch

    drawn = seeds.rng(seed, "unseen").permutation(clients)[:count]
    return tuple(sorted(int(client) for client in drawn))


def unseen_count(federation: Federation, clients: int) -> int:
    """Return how many clients never train.

    Raises:
        UsageError: The fraction stands for no client, or for all.
    """
    fraction = federation.unseen_clients
    count = round(fraction * clients)
    name = f"federation.unseen_clients = {fraction} of {clients} clients"
    if fraction and not count:
        raise UsageError(f"{name} is none of them; give a larger fraction, or 0")
    if count and count >= clients:
        raise UsageError(f"{name} leaves no client to train; give a smaller fraction")
    return count
