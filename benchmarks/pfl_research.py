"""pfl-research as a contestant: SimulatedBackend, PyTorchModel, FederatedAveraging; one process, or two
joined by gloo.

The second process is started with the variables that `torchrun` sets, and is told of every round over the
same lines as any contestant. pfl caches contiguous batches; here they are drawn anew every epoch, as
everybody else does.
"""

from __future__ import annotations

import itertools
import os
import socket
from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.bare import client_tensors
from benchmarks.contestant import Contestant, Lines, serve
from benchmarks.process import Process, command
from benchmarks.workloads import PEERS_DEVICE, Workload, initial_net
from raffed.runs.participation import draw_participants
from raffed.runtime.setup import Setup


class Pfl(Contestant):
    """One process of it. A round is one central iteration of `FederatedAveraging.run`."""

    def __init__(self, setup: Setup) -> None:
        from pfl.aggregate.simulate import SimulatedBackend
        from pfl.aggregate.weighting import WeightByDatapoints
        from pfl.algorithm.federated_averaging import FederatedAveraging
        from pfl.data.federated_dataset import FederatedDataset
        from pfl.hyperparam import NNTrainHyperParams
        from pfl.model.pytorch import PyTorchModel

        local = setup.config.local
        self._setup, self._done, self._steps = setup, 0, 0
        self._net: Any = initial_net(setup)
        self._net.loss = lambda x, y: F.cross_entropy(self._net(x)[0], y)
        self._net.metrics = lambda x, y: {}
        central = torch.optim.SGD(self._net.parameters(), lr=1.0)
        self._model = PyTorchModel(self._net, self._optimizer, central)
        everyone = (draw_participants(setup.data, number) for number in itertools.count())
        sampler = itertools.chain.from_iterable(everyone)
        data = FederatedDataset(_datasets(setup), lambda: next(sampler))
        self._backend = SimulatedBackend(
            training_data=data, val_data=None, postprocessors=[WeightByDatapoints()]
        )
        self._training = NNTrainHyperParams(
            local_num_epochs=int(local.epochs),
            local_learning_rate=local.lr,
            local_batch_size=local.batch_size,
        )
        self._algorithm = FederatedAveraging()
        # pfl evaluates every client in iterations that the frequency divides, 0 among them: begin with 1
        self._algorithm._current_central_iteration = 1

    def round(self) -> int:
        from pfl.algorithm.base import NNAlgorithmParams

        self._steps = 0
        self._done += 1
        clients = self._setup.config.federation.participants(self._setup.partition.num_clients)
        until = NNAlgorithmParams(
            self._done + 1, evaluation_frequency=10**9, train_cohort_size=clients, val_cohort_size=0
        )
        self._algorithm.run(until, self._backend, self._model, self._training)
        return self._steps

    def weights(self) -> dict[str, Tensor]:
        return self._net.state_dict()

    def close(self) -> None: ...

    def _optimizer(self, parameters: Any, lr: float) -> torch.optim.SGD:
        local = self._setup.config.local
        made = torch.optim.SGD(parameters, lr=lr, momentum=local.momentum, weight_decay=local.weight_decay)
        made.register_step_post_hook(self._count)
        return made

    def _count(self, *_: Any) -> None:
        self._steps += 1


class Pair(Contestant):
    """Two processes of it; this one is rank 0."""

    def __init__(self, setup: Setup, workload: str) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = str(free.getsockname()[1])
        shared = {
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": port,
            "WORLD_SIZE": "2",
            "LOCAL_WORLD_SIZE": "2",
            "TORCHELASTIC_RUN_ID": "benchmark",
        }
        self._other = Process(command("pfl", workload), {**shared, "RANK": "1", "LOCAL_RANK": "1"})
        os.environ.update(shared, RANK="0", LOCAL_RANK="0")
        self._own = Pfl(setup)
        self._other.start(timeout=120)

    def round(self) -> int:
        self._other.tell(do="block", rounds=1)
        steps = self._own.round()
        return steps + self._other.hear(timeout=600)["steps"][0]

    def weights(self) -> dict[str, Tensor]:
        return self._own.weights()

    def close(self) -> None:
        self._other.close()


def _datasets(setup: Setup) -> Any:
    """Client → its dataset, kept, with batches in a new order every epoch."""
    from pfl.data.dataset import Dataset

    class Shuffled(Dataset):
        def iter(self, batch_size: int) -> Iterator[tuple[Tensor, Tensor]]:
            x, y = self.raw_data
            for index in torch.split(torch.randperm(len(y)), batch_size):
                yield x[index], y[index]

    every = [
        Shuffled([part.to(PEERS_DEVICE) for part in client_tensors(setup, client)], user_id=str(client))
        for client in range(setup.partition.num_clients)
    ]
    return every.__getitem__


def run(lines: Lines, workload: Workload, processes: int) -> None:
    """Serve the benchmark as one process or as two."""
    os.environ["PFL_PYTORCH_DEVICE"] = PEERS_DEVICE
    setup = workload.setup()
    serve(lines, setup, Pfl(setup) if processes == 1 else Pair(setup, workload.name))
