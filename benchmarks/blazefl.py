"""BlazeFL as a contestant: its FedAvg with two threads, or with two processes.

The trainers, the aggregation and the packages are BlazeFL's own. The data set hands out this benchmark's
partition as prepared tensors, where BlazeFL's own benchmark reads a file for each client and round and
transforms every image. The benchmark's participants are trained, and nothing is evaluated. Processes are
forked, where BlazeFL's benchmark starts new ones in every round, as CUDA needs it. Threads run side by side
only in a Python without the global lock, so they are absent in others. The optimizer is plain SGD, so BlazeFL
takes part in W7 alone, which is its own benchmark.
"""

from __future__ import annotations

import copy
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import torch.multiprocessing as mp
from blazefl.contrib import (
    FedAvgBaseServerHandler,
    FedAvgProcessPoolClientTrainer,
    FedAvgThreadPoolClientTrainer,
)
from torch import Generator, Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from benchmarks.bare import client_tensors
from benchmarks.checkouts import AbsentError
from benchmarks.contestant import Contestant, Lines, serve
from benchmarks.workloads import Workload, initial_net
from raffed.runs.participation import draw_participants
from raffed.runtime.setup import Setup

WORKERS = 2


class Counting(DataLoader[tuple[Tensor, ...]]):
    """Counts the batches of one client in a cell of its own, which all threads and processes share."""

    cell: Tensor

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]
        for batch in super().__iter__():
            self.cell += 1
            yield batch


class Partition:
    """The clients' tensors, in memory that processes share."""

    def __init__(self, setup: Setup) -> None:
        parts = [client_tensors(setup, client) for client in range(setup.partition.num_clients)]
        self._parts = [(x.share_memory_(), y.share_memory_()) for x, y in parts]
        self.batches = torch.zeros(len(parts), dtype=torch.int64).share_memory_()

    def get_dataloader(
        self, type_: str, cid: int | None, batch_size: int | None, generator: Generator | None
    ) -> DataLoader[tuple[Tensor, ...]]:
        assert cid is not None
        loader = Counting(TensorDataset(*self._parts[cid]), batch_size, shuffle=True, generator=generator)
        loader.cell = self.batches[cid]
        return loader

    def set_dataset(self, type_: str, cid: int | None, dataset: object) -> None:
        """Keep the client's data as they are."""


class Networks:
    """Makes the benchmark's network, flat and with its weights; every upload and download overwrites them."""

    def __init__(self, setup: Setup) -> None:
        net = initial_net(setup)
        self._net = nn.Sequential(*net.body, net.head)
        self.names = list(net.state_dict())

    def select_model(self, model_name: str) -> nn.Module:
        return copy.deepcopy(self._net)


class BlazeFL(Contestant):
    """A federation of BlazeFL's that makes one round at a time."""

    def __init__(self, setup: Setup, threads: bool) -> None:
        self._setup, self._done = setup, 0
        self._folder = tempfile.TemporaryDirectory()
        local, clients = setup.config.local, setup.partition.num_clients
        self._data, self._networks = Partition(setup), Networks(setup)
        common: dict[str, Any] = {
            "model_selector": self._networks,
            "model_name": "benchmark",
            "dataset": self._data,
            "num_clients": clients,
            "device": "cpu",
            "batch_size": local.batch_size,
            "seed": 0,
        }
        self._handler = FedAvgBaseServerHandler(
            **common, global_round=10_000, sample_ratio=setup.config.federation.participation
        )
        training = {"epochs": int(local.epochs), "lr": local.lr, "num_parallels": WORKERS}
        self._trainer = (
            FedAvgThreadPoolClientTrainer(**common, **training)
            if threads
            else FedAvgProcessPoolClientTrainer(**common, **training, state_dir=Path(self._folder.name))
        )

    def round(self) -> int:
        before = int(self._data.batches.sum())
        drawn = [int(client) for client in draw_participants(self._setup.data, self._done)]
        self._trainer.local_process(self._handler.downlink_package(), drawn)
        for package in self._trainer.uplink_package():
            self._handler.load(package)
        self._done += 1
        return int(self._data.batches.sum()) - before

    def weights(self) -> dict[str, Tensor]:
        return dict(zip(self._networks.names, self._handler.model.state_dict().values(), strict=True))

    def close(self) -> None:
        self._folder.cleanup()


def run(lines: Lines, workload: Workload, threads: bool) -> None:
    """Serve the benchmark."""
    local = workload.config.local
    if local.momentum or local.weight_decay:
        raise AbsentError("BlazeFL's clients train by plain SGD, and this workload has momentum or decay")
    if threads and getattr(sys, "_is_gil_enabled", lambda: True)():
        raise AbsentError(f"threads need a Python without the global lock, and {sys.executable} has it")
    mp.set_start_method("fork")
    setup = workload.setup()
    serve(lines, setup, BlazeFL(setup, threads))
