"""The prepared data of the clients in one process, ready for the device; attackers' data are poisoned."""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from raffed.config.faults import ON_DATA, PATCH
from raffed.core import seeds
from raffed.core.context import ClientData
from raffed.core.round import EVAL_CHUNK
from raffed.core.training.network import Network
from raffed.data.files import InputArray
from raffed.data.transforms import prepare_inputs
from raffed.errors import StagePassedError
from raffed.federation.faults import attackers
from raffed.runtime.federated_data import FederatedData

# What attackers train on, and the test images by which a backdoor is measured.


Samples = tuple[InputArray, NDArray[np.int64]]


class PoisonedData:
    """Changes the raw samples of a run's attackers, if its attack is one on data."""

    def __init__(self, data: FederatedData) -> None:
        self._plan, self._seed = data.faults, data.seed
        self._classes, self._white = data.dataset.num_classes, data.dataset.max_value
        on_data = self._plan.attack in ON_DATA
        clients = data.partition.num_clients
        self._who = attackers(self._plan, self._seed, clients) if on_data else frozenset[int]()

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
