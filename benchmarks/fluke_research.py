"""fluke as a contestant: CentralizedFL, which is its FedAvg, in one process.

The splitter hands out this benchmark's partition and the server asks for its participants. Clients forget
their network after a round (`persistency=False`), nothing is evaluated, and the network is one flat
Sequential. A round is what `CentralizedFL.run` does in one, without its progress bars.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fluke import DDict, FlukeENV
from fluke.algorithms import CentralizedFL
from fluke.client import Client
from fluke.data import DataSplitter, FastDataLoader
from fluke.server import Server
from torch import Tensor, nn

from benchmarks.bare import client_tensors
from benchmarks.contestant import Contestant, Lines, serve
from benchmarks.counted import Counted
from benchmarks.workloads import Workload, initial_net
from raffed.runs.participation import draw_participants
from raffed.runtime.setup import Setup


class Partition(DataSplitter):
    """Gives every client the samples that it has in the benchmark, and the server none."""

    def __init__(self, setup: Setup) -> None:
        self._setup = setup

    def assign(self, n_clients: int, batch_size: int = 32) -> Any:
        loaders = [self._loader(client, batch_size) for client in range(n_clients)]
        return (loaders, [None] * n_clients), None

    def _loader(self, client: int, batch_size: int) -> FastDataLoader:
        x, y = client_tensors(self._setup, client)
        return FastDataLoader(
            x, y, num_labels=self._setup.dataset.num_classes, batch_size=batch_size, shuffle=True
        )


class Drawing(Server):
    """Asks for the participants of the benchmark."""

    setup: Setup
    drawn: int = 0

    def get_eligible_clients(self, eligible_perc: float) -> Sequence[Client]:
        chosen = draw_participants(self.setup.data, self.drawn)
        self.drawn += 1
        return [self.clients[client] for client in chosen]


class Averaging(CentralizedFL):
    """FedAvg with such a server."""

    def get_server_class(self) -> type[Server]:
        return Drawing


class Fluke(Contestant):
    """A federation of fluke's that makes one round at a time."""

    def __init__(self, setup: Setup) -> None:
        local, net = setup.config.local, initial_net(setup)
        self._names = list(net.state_dict())
        environment = FlukeENV()
        environment.set_device("cpu")
        environment.set_eval_cfg(pre_fit=False, post_fit=False, locals=False, server=False)
        optimizer = {
            "name": Counted,
            "lr": local.lr,
            "momentum": local.momentum,
            "weight_decay": local.weight_decay,
        }
        client = {
            "batch_size": local.batch_size,
            "local_epochs": int(local.epochs),
            "loss": "CrossEntropyLoss",
            "optimizer": optimizer,
            "scheduler": {"name": "StepLR", "step_size": 1, "gamma": 1},
            "persistency": False,
        }
        settings = {
            "model": nn.Sequential(*net.body, net.head),
            "client": client,
            "server": {"weighted": True},
        }
        self._federation = Averaging(setup.partition.num_clients, Partition(setup), DDict(**settings))
        self._federation.server.setup = setup
        self._share = setup.config.federation.participation

    def round(self) -> int:
        before, server = Counted.steps, self._federation.server
        eligible = server.get_eligible_clients(self._share)
        server.broadcast_model(eligible)
        for client in eligible:
            client.local_update(self._federation.rounds + 1)
        server.aggregate(eligible, server.receive_client_models(eligible, state_dict=False))
        self._federation.rounds += 1
        return Counted.steps - before

    def weights(self) -> dict[str, Tensor]:
        values = self._federation.server.model.state_dict().values()
        return dict(zip(self._names, values, strict=True))

    def close(self) -> None:
        FlukeENV().close_cache()


def run(lines: Lines, workload: Workload) -> None:
    """Serve the benchmark."""
    setup = workload.setup()
    serve(lines, setup, Fluke(setup))
