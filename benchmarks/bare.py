"""The floor: the same steps by a bare PyTorch loop in forked processes, weights and partial sums in
shared memory.
"""

from __future__ import annotations

import itertools
import multiprocessing as mp
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.contestant import Contestant
from benchmarks.workloads import initial_net
from raffed.config.training import Local
from raffed.data.transforms import prepare_images
from raffed.runs.participation import draw_participants
from raffed.runtime.setup import Setup


def client_tensors(setup: Setup, client: int) -> tuple[Tensor, Tensor]:
    """A client's prepared images [n, C, H, W] and labels [n]."""
    dataset, part = setup.dataset, setup.partition.train[client]
    return prepare_images(dataset.x[part], setup.data.transform, dataset.max_value), torch.from_numpy(
        dataset.y[part]
    )


def train(net: nn.Module, x: Tensor, y: Tensor, local: Local, fused: bool = False) -> int:
    """A client's local epochs of plain momentum SGD on whole tensors, batches by index; the steps made."""
    optimizer = torch.optim.SGD(
        net.parameters(), lr=local.lr, momentum=local.momentum, weight_decay=local.weight_decay, fused=fused
    )
    steps = 0
    for _ in range(int(local.epochs)):
        for index in torch.split(torch.randperm(len(y), device=y.device), local.batch_size):
            optimizer.zero_grad()
            F.cross_entropy(net(x[index])[0], y[index]).backward()
            optimizer.step()
            steps += 1
    return steps


class Floor(Contestant):
    """`workers` processes of one thread; plain torch.optim.SGD, or with its fused kernel."""

    def __init__(self, setup: Setup, workers: int = 2, fused: bool = False) -> None:
        self.setup, self.fused = setup, fused
        self.data = [client_tensors(setup, client) for client in range(setup.partition.num_clients)]
        self.net = initial_net(setup)
        self._rounds = itertools.count()
        vector = torch.nn.utils.parameters_to_vector(self.net.parameters()).detach()
        self.vector = vector.clone().share_memory_()
        self.sums = torch.zeros(workers, len(vector), dtype=torch.float64).share_memory_()
        context = mp.get_context("fork")
        self._pipes, self._workers = [], []
        for number in range(workers):
            here, there = context.Pipe()
            worker = context.Process(target=self._work, args=(number, there), daemon=True)
            worker.start()
            self._pipes.append(here)
            self._workers.append(worker)

    def round(self) -> int:
        """One round of FedAvg; the number of steps that were made."""
        participants = draw_participants(self.setup.data, next(self._rounds))
        total = sum(len(self.data[c][1]) for c in participants)
        for number, pipe in enumerate(self._pipes):
            pipe.send((participants[number :: len(self._pipes)], total))
        steps = sum(pipe.recv() for pipe in self._pipes)
        self.vector.copy_(self.sums.sum(0).float())
        return steps

    def weights(self) -> dict[str, Tensor]:
        torch.nn.utils.vector_to_parameters(self.vector.clone(), self.net.parameters())
        return self.net.state_dict()

    def close(self) -> None:
        for pipe, worker in zip(self._pipes, self._workers, strict=True):
            pipe.send(None)
            worker.join()

    def _work(self, number: int, pipe: Any) -> None:
        torch.set_num_threads(1)
        while (task := pipe.recv()) is not None:
            clients, total = task
            self.sums[number].zero_()
            pipe.send(sum(self._client(client, number, total) for client in clients))

    def _client(self, client: int, number: int, total: int) -> int:
        x, y = self.data[client]
        torch.nn.utils.vector_to_parameters(self.vector.clone(), self.net.parameters())
        steps = train(self.net, x, y, self.setup.config.local, self.fused)
        vector = torch.nn.utils.parameters_to_vector(self.net.parameters()).detach()
        self.sums[number] += len(y) / total * vector.double()
        return steps
