"""The floor: the same steps by a bare PyTorch loop in forked processes, weights and partial sums in shared memory."""

from __future__ import annotations

import multiprocessing as mp
from typing import Any

import torch
import torch.nn.functional as F

from raffed.data.transforms import prepare
from raffed.models import build
from raffed.runtime.setup import Setup


class Floor:
    """`workers` processes of one thread; plain torch.optim.SGD, whole client tensors, batches by index."""

    def __init__(self, setup: Setup, workers: int = 2) -> None:
        dataset, partition, transform = setup.dataset, setup.partition, setup.transform
        self.data = [
            (prepare(dataset.x_train[part], transform, dataset.max_value), torch.from_numpy(dataset.y_train[part]))
            for part in partition.train
        ]
        model = setup.config.model
        self.net = build(model.name, setup.input_shape, dataset.num_classes, 0, **model.args)
        self.local = setup.config.local
        size = sum(p.numel() for p in self.net.parameters())
        self.weights = torch.nn.utils.parameters_to_vector(self.net.parameters()).detach().clone().share_memory_()
        self.sums = torch.zeros(workers, size, dtype=torch.float64).share_memory_()
        context = mp.get_context("fork")
        self._pipes, self._workers = [], []
        for number in range(workers):
            here, there = context.Pipe()
            worker = context.Process(target=self._work, args=(number, there), daemon=True)
            worker.start()
            self._pipes.append(here)
            self._workers.append(worker)

    def round(self, participants: tuple[int, ...]) -> int:
        """One round of FedAvg; the number of steps that were made."""
        total = sum(len(self.data[c][1]) for c in participants)
        for number, pipe in enumerate(self._pipes):
            pipe.send((participants[number :: len(self._pipes)], total))
        steps = sum(pipe.recv() for pipe in self._pipes)
        self.weights.copy_(self.sums.sum(0).float())
        return steps

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
        torch.nn.utils.vector_to_parameters(self.weights.clone(), self.net.parameters())
        local = self.local
        optimizer = torch.optim.SGD(
            self.net.parameters(), lr=local.lr, momentum=local.momentum, weight_decay=local.weight_decay
        )
        steps = 0
        for _ in range(int(local.epochs)):
            for index in torch.split(torch.randperm(len(y)), local.batch_size):
                optimizer.zero_grad()
                F.cross_entropy(self.net(x[index])[0], y[index]).backward()
                optimizer.step()
                steps += 1
        vector = torch.nn.utils.parameters_to_vector(self.net.parameters()).detach()
        self.sums[number] += len(y) / total * vector.double()
        return steps
