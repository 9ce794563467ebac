"""Flower as a contestant: its simulation on Ray, one CPU a client, its message API and its FedAvg.

The ServerApp's loop is what serves the benchmark, so that one simulation lives as long as the contestant. A
round is FedAvg's own three calls (configure_train, send_and_receive, aggregate_train). Which client a node
plays comes with the message, so that everybody trains the same participants. Tensors and network are kept by
each worker; no DataLoader.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from functools import cache, lru_cache
from typing import Any

import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from torch import Tensor, nn

from benchmarks.bare import client_tensors, train
from benchmarks.contestant import Contestant, Lines, serve
from benchmarks.workloads import PEERS_DEVICE, Workload, initial_net, workload
from raffed.runs.participation import draw_participants
from raffed.runtime.setup import Setup

CPUS = 2
client_app = ClientApp()


@lru_cache(maxsize=1)
def _loaded(name: str) -> tuple[Setup, nn.Module]:
    """A worker's setup and network, made with its first client."""
    torch.set_num_threads(1)
    setup = workload(name).setup()
    return setup, initial_net(setup).to(PEERS_DEVICE)


@cache
def _tensors(name: str, client: int) -> tuple[Tensor, Tensor]:
    x, y = client_tensors(_loaded(name)[0], client)
    return x.to(PEERS_DEVICE), y.to(PEERS_DEVICE)


@client_app.train()
def _train(message: Message, _context: Context) -> Message:
    config = message.content["config"]
    setup, net = _loaded(config["workload"])
    net.load_state_dict(message.content["arrays"].to_torch_state_dict())
    x, y = _tensors(config["workload"], config["client"])
    steps = train(net, x, y, setup.config.local)
    metrics = MetricRecord({"num-examples": len(y), "steps": steps})
    return Message(
        RecordDict({"arrays": ArrayRecord(net.state_dict()), "metrics": metrics}), reply_to=message
    )


class Chosen(FedAvg):
    """FedAvg that tells each sampled node which client it is."""

    def __init__(self, setup: Setup, name: str) -> None:
        super().__init__(fraction_train=setup.config.federation.participation, fraction_evaluate=0.0)
        self._setup, self._name = setup, name

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        messages = list(super().configure_train(server_round, arrays, config, grid))
        for message, client in zip(messages, draw_participants(self._setup.data, server_round), strict=True):
            told = ConfigRecord({"workload": self._name, "client": client})
            message.content = RecordDict({"arrays": arrays, "config": told})
        return messages


class Flower(Contestant):
    """The server's side of a simulation that is under way."""

    def __init__(self, setup: Setup, name: str, grid: Grid) -> None:
        self._strategy, self._grid, self._done = Chosen(setup, name), grid, 0
        self._arrays = ArrayRecord(initial_net(setup).state_dict())

    def round(self) -> int:
        messages = self._strategy.configure_train(self._done, self._arrays, ConfigRecord({}), self._grid)
        replies = list(self._grid.send_and_receive(messages))
        failed = [reply.error.reason for reply in replies if reply.has_error()]
        if failed:
            raise RuntimeError(f"{len(failed)} clients failed: {failed[0]}")
        arrays, _ = self._strategy.aggregate_train(self._done, replies)
        assert arrays is not None
        self._arrays = arrays
        self._done += 1
        return sum(reply.content["metrics"]["steps"] for reply in replies)

    def weights(self) -> dict[str, Tensor]:
        return self._arrays.to_torch_state_dict()

    def close(self) -> None:
        """The simulation ends with its ServerApp."""


def run(lines: Lines, chosen: Workload) -> None:
    """Serve the benchmark from inside a simulation."""
    setup = chosen.setup()
    server_app = ServerApp()

    @server_app.main()
    def _main(grid: Grid, _context: Context) -> None:
        serve(lines, setup, Flower(setup, chosen.name, grid))

    os.environ.update(
        {"FLWR_TELEMETRY_ENABLED": "0", "RAY_worker_niceness": "0", "RAY_USAGE_STATS_ENABLED": "0"}
    )
    backend: Any = {
        "init_args": {"num_cpus": CPUS, "include_dashboard": False},
        "client_resources": {"num_cpus": 1, "num_gpus": 0.0 if PEERS_DEVICE == "cpu" else 1 / CPUS},
    }
    run_simulation(server_app, client_app, setup.partition.num_clients, backend_config=backend)
