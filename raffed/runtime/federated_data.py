"""The clients of a run and their samples: who has which, who trains, and what is ready for the device.

Attackers' data are poisoned.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from raffed.config.faults import ON_DATA, PATCH, Faults
from raffed.config.federation import Federation
from raffed.core import seeds
from raffed.core.context import ClientData
from raffed.core.own_functions import OwnMetric, own_metrics
from raffed.core.round import EVAL_CHUNK
from raffed.core.training.network import Network
from raffed.data.files import InputArray
from raffed.data.transforms import prepare_inputs
from raffed.errors import StagePassedError, UsageError
from raffed.federation.faults import attackers

if TYPE_CHECKING:
    from raffed.data.dataset import Dataset
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

        labels = self.dataset.y[self.partition.train_at(client, self.stage(round))]
        return torch.from_numpy(np.bincount(labels, minlength=self.dataset.num_classes))

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


# What attackers train on, and the test images by which a backdoor is measured.


Samples = tuple[InputArray, NDArray[np.int64]]


class PoisonedData:
    """Changes the raw samples of a run's attackers, if its attack is one on data."""

    def __init__(self, data: FederatedData) -> None:
        self._plan, self._seed = data.faults, data.seed
        self._classes, self._white = data.dataset.num_classes, data.dataset.max_value
        on_data = self._plan.attack in ON_DATA
        self._who = attackers(self._plan, self._seed, data.trainable) if on_data else frozenset[int]()

    def training(self, client: int, inputs: InputArray, labels: NDArray[np.int64]) -> Samples:
        """Return a client's training samples as it uses them.

        Args:
            client: Number of the client.
            inputs: Its raw inputs [n, ...], which may be changed in place.
            labels: Its labels [n].
        """
        if client not in self._who:
            return inputs, labels
        if self._plan.attack == "label_flip":
            return inputs, self._classes - 1 - labels
        order = seeds.rng(self._seed, "attackers", 0, client, 1).permutation(len(labels))
        chosen = order[: max(1, round(self._plan.backdoor_share * len(labels)))]
        inputs[chosen] = self._patched(inputs[chosen])
        labels = labels.copy()
        labels[chosen] = self._plan.backdoor_target
        return inputs, labels

    def test(self, inputs: InputArray, labels: NDArray[np.int64]) -> Samples:
        """Return test images with the patch, and the backdoor's target as their labels."""
        return self._patched(inputs), np.full_like(labels, self._plan.backdoor_target)

    def _patched(self, images: InputArray) -> InputArray:
        """Return images [n, C, H, W] whose upper left corner is white."""
        patched = images.copy()
        patched[..., :PATCH, :PATCH] = self._white if patched.dtype == np.uint8 else 1.0
        return patched


# Prepared data that a process keeps; other clients' data are prepared in every round they take part in
DATA_BYTES = 1024 * 2**20
PARTS = ("test", "val", "attack", "train")  # the parts of the scored samples
# What an attack makes of raw inputs and labels
Changed = Callable[[InputArray, NDArray[np.int64]], tuple[InputArray, NDArray[np.int64]]]


class ClientDataCache:
    """Prepares clients' data, and keeps them up to DATA_BYTES.

    The chunks of other samples that are scored here are kept as well, except those of training samples.
    """

    def __init__(
        self,
        data: FederatedData,
        net: Network,
        device: torch.device,
        home: frozenset[int] | None = None,
        held_out: bool = False,
    ) -> None:
        """Keep nothing yet.

        Args:
            data: The clients of the run and their samples.
            net: The network, which decides how images are laid out in memory.
            device: Where the data are put.
            home: The clients whose data are kept first. Default None: all.
            held_out: Whether clients also need their validation parts while they train. Default False.
        """
        self._all, self.net, self.device = data, net, device
        self.stage: int | None = None
        self._held_out = held_out
        self._poison = PoisonedData(data)
        self._home = frozenset(range(data.partition.num_clients)) if home is None else home
        self._kept_bytes = 0
        self._data: dict[int, ClientData] = {}
        self._parts: dict[tuple[str, int], tuple[Tensor, Tensor]] = {}
        self._test: dict[int, tuple[Tensor, Tensor]] = {}

    @property
    def held(self) -> set[int]:
        """Clients whose prepared training data are kept at present."""
        return set(self._data)

    def fill(self) -> None:
        """Prepare the home clients' data before the first round, up to half of what is kept.

        With stages nothing is done, because the round decides which part of the data exists.
        """
        if self._all.partition.stages is None:
            for client in sorted(self._home):
                if self._kept_bytes < DATA_BYTES // 2:
                    self.client(client)

    def enter(self, stage: int | None) -> None:
        """Move all clients to a stage, and drop the data that they hold of another stage.

        In `outer` order a stage that has passed never comes back.
        """
        stages, before = self._all.partition.stages, self.stage
        if stage is None or stages is None or stage == before:
            return
        if stages.order == "outer" and before is not None and stage < before:
            raise StagePassedError(
                f"stage {stage + 1} has passed: clients are in stage {before + 1} and no longer hold its data"
            )
        self.stage = stage
        self._data.clear()
        self._parts.clear()
        self._kept_bytes = 0

    def client(self, client: int) -> ClientData:
        """Return a client's training data in the present stage."""
        if client in self._data:
            return self._data[client]
        index = self._all.partition.train_at(client, self.stage)
        x, y = self.samples(index, "train", functools.partial(self._poison.training, client))
        part = self._all.partition.val
        beside = self.local_part("val", client) if self._held_out and len(part[client]) else None
        data = ClientData(x, y, torch.bincount(y, minlength=self._all.dataset.num_classes), beside)
        if self._keeps(client, x):
            self._data[client] = data
        return data

    def local_part(self, role: str, client: int) -> tuple[Tensor, Tensor]:
        """Return a client's local test part, or its validation part ("val")."""
        if (role, client) in self._parts:
            return self._parts[role, client]
        partition = self._all.partition
        if role == "test":
            part = self.samples(partition.test_at(client, self.stage), partition.test_pool)
        else:
            part = self.samples(partition.val[client], "train")
        if self._keeps(client, part[0]):
            self._parts[role, client] = part
        return part

    def _keeps(self, client: int, x: Tensor) -> bool:
        """Return whether prepared data are kept.

        They are kept while there is room. Clients whose home is elsewhere may use half of it.
        """
        size = x.numel() * x.element_size()
        if self._kept_bytes + size > (DATA_BYTES if client in self._home else DATA_BYTES // 2):
            return False
        self._kept_bytes += size
        return True

    def samples(
        self, index: NDArray[np.int64], pool: str, changed: Changed | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return prepared inputs and labels from the training pool or the benchmark's test set.

        `changed` says what an attack makes of the raw samples.
        """
        dataset = self._all.dataset
        inputs, labels = (dataset.x_test, dataset.y_test) if pool == "test" else (dataset.x, dataset.y)
        raw, marked = inputs[index], labels[index]
        if changed is not None:
            raw, marked = changed(raw, marked)
        x = prepare_inputs(raw, self._all.transform, dataset.max_value)
        return self.net.arranged(x.to(self.device)), torch.from_numpy(marked).to(self.device)

    def test_chunk(self, chunk: int) -> tuple[Tensor, Tensor]:
        """Return the samples of a chunk (see `chunks`)."""
        if chunk not in self._test:
            part = next(name for name in PARTS if chunk in chunks(self._all, name))
            pool, rows = self._all.scored_rows[part]
            first = (chunk - chunks(self._all, part).start) * EVAL_CHUNK
            changed = self._poison.test if part == "attack" else None
            samples = self.samples(rows[first : first + EVAL_CHUNK], pool, changed)
            if part == "train":
                return samples  # clients' own data may be kept already, so these would be held twice
            self._test[chunk] = samples
        return self._test[chunk]


def chunks(data: FederatedData, part: str = "test") -> range:
    """Return the numbers of the chunks of a part of the scored samples (`FederatedData.scored_rows`).

    The chunks of the parts are numbered one after the other, in the order of PARTS.
    """
    counts = [
        -(-len(data.scored_rows[name][1]) // EVAL_CHUNK) if name in data.scored_rows else 0 for name in PARTS
    ]
    first = sum(counts[: PARTS.index(part)])
    return range(first, first + counts[PARTS.index(part)])
