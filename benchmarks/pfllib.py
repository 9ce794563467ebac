"""PFLlib as a contestant: its FedAvg, in one process, from a checkout that RAFFED_PFLLIB names.

PFLlib is no package: its modules are imported from the folder `system` of its repository, and every client's
images are read from a compressed file in every round, as there. The server asks for the benchmark's
participants; clients have the benchmark's optimizer, which forgets its momentum between rounds, and keep the
last batch, which PFLlib leaves out. Nothing is evaluated. A round is what `FedAvg.train` does in one.
"""

from __future__ import annotations

import os
import random
import sys
import tempfile
from argparse import Namespace
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor, nn
from torch.utils.data import DataLoader

from benchmarks.bare import client_tensors
from benchmarks.checkouts import checkout
from benchmarks.contestant import Contestant, Lines, serve
from benchmarks.counted import Counted
from benchmarks.workloads import Workload, initial_net
from raffed.runs.participation import draw_participants
from raffed.runtime.setup import Setup

NAME = "benchmark"  # of the data set, in PFLlib's words
# What PFLlib's parser leaves unless it is told otherwise, as far as FedAvg reads it.
DEFAULTS = {
    "algorithm": "FedAvg",
    "auto_break": False,
    "batch_num_per_client": 2,
    "client_drop_rate": 0.0,
    "dataset": NAME,
    "device": "cpu",
    "dlg_eval": False,
    "dlg_gap": 100,
    "eval_gap": 1,
    "few_shot": 0,
    "fine_tuning_epoch_new": 0,
    "global_rounds": 1,
    "goal": "test",
    "learning_rate_decay": False,
    "learning_rate_decay_gamma": 0.99,
    "num_new_clients": 0,
    "random_join_ratio": False,
    "save_folder_name": "items",
    "send_slow_rate": 0.0,
    "time_select": False,
    "time_threthold": 10_000,
    "top_cnt": 100,
    "train_slow_rate": 0.0,
}


class PFLlib(Contestant):
    """A server of PFLlib's that makes one round at a time."""

    def __init__(self, setup: Setup, repository: Path) -> None:
        sys.path.insert(0, str(repository / "system"))
        self._folder = tempfile.TemporaryDirectory()
        work = Path(self._folder.name) / "system"  # data lie at ../dataset
        work.mkdir()
        os.chdir(work)
        _write(setup, work.parent / "dataset" / NAME)
        net, local = initial_net(setup), setup.config.local
        self._setup, self._done, self._names = setup, 0, list(net.state_dict())
        given = Namespace(
            **DEFAULTS,
            model=nn.Sequential(*net.body, net.head),
            num_classes=setup.dataset.num_classes,
            num_clients=setup.partition.num_clients,
            join_ratio=setup.config.federation.participation,
            batch_size=local.batch_size,
            local_epochs=int(local.epochs),
            local_learning_rate=local.lr,
        )
        self._server = _server(setup, given)

    def round(self) -> int:
        before, server = Counted.steps, self._server
        drawn = draw_participants(self._setup.data, self._done)
        random.seed(self._done)  # the order in which PFLlib adds uploads up
        server.selected_clients = [server.clients[client] for client in drawn]
        server.send_models()
        for client in server.selected_clients:
            client.train()
        server.receive_models()
        server.aggregate_parameters()
        self._done += 1
        return Counted.steps - before

    def weights(self) -> dict[str, Tensor]:
        values = self._server.global_model.state_dict().values()
        return dict(zip(self._names, values, strict=True))

    def close(self) -> None:
        self._folder.cleanup()


def _server(setup: Setup, given: Namespace) -> Any:
    from flcore.clients.clientavg import clientAVG
    from flcore.servers.serveravg import FedAvg

    local = setup.config.local

    class Client(clientAVG):  # type: ignore[misc]
        """A client with the benchmark's optimizer and all batches."""

        def load_train_data(self, batch_size: int | None = None) -> DataLoader[Any]:
            images = super().load_train_data(batch_size).dataset
            return DataLoader(images, batch_size or self.batch_size, shuffle=True)

        def train(self) -> None:
            self.optimizer = Counted(
                self.model.parameters(), lr=local.lr, momentum=local.momentum, weight_decay=local.weight_decay
            )
            super().train()

    class Server(FedAvg):  # type: ignore[misc]
        """FedAvg with such clients."""

        def set_clients(self, clientObj: type) -> None:
            super().set_clients(Client)

    return Server(given, 0)


def _write(setup: Setup, folder: Path) -> None:
    """Write the images of all clients as PFLlib's generators do."""
    for kind in ("train", "test"):
        (folder / kind).mkdir(parents=True)
    for client in range(setup.partition.num_clients):
        x, y = client_tensors(setup, client)
        for kind, size in (("train", len(y)), ("test", 1)):
            data = {"x": x[:size].numpy(), "y": y[:size].numpy()}
            np.savez_compressed(folder / kind / f"{client}.npz", data=np.array(data, dtype=object))


def run(lines: Lines, workload: Workload) -> None:
    """Serve the benchmark."""
    repository = checkout("PFLlib")
    setup = workload.setup()
    serve(lines, setup, PFLlib(setup, repository))
