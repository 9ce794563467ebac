"""FL-bench as a contestant: its FedAvg, from a checkout that RAFFED_FLBENCH names, in one process or two.

FL-bench is no package: its modules are imported from its repository. The server is its own, with the
benchmark's network, partition and participants; two workers are its Ray actors. Nothing is evaluated or
logged. A round is `FedAvgServer.train_one_round`. FL-bench leaves out batches of one sample.
"""

from __future__ import annotations

import json
import os
import pickle
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.checkouts import checkout
from benchmarks.contestant import Contestant, Lines, serve
from benchmarks.workloads import PEERS_DEVICE, Workload, initial_net
from raffed.data.transforms import prepare_images
from raffed.runs.participation import draw_participants
from raffed.runtime.setup import Setup

NAME = "benchmark"  # of the data set, in FL-bench's words


class FLBench(Contestant):
    """A server of FL-bench's that makes one round at a time."""

    def __init__(self, setup: Setup, repository: Path, workers: int) -> None:
        sys.path.insert(0, str(repository))
        # Ray's workers import FL-bench as well
        os.environ["PYTHONPATH"] = os.pathsep.join([str(repository), os.environ.get("PYTHONPATH", "")])
        self._folder = tempfile.TemporaryDirectory()
        self._setup, self._done, self._workers = setup, 0, workers
        self._names = list(initial_net(setup).state_dict())
        self._server = _server(setup, Path(self._folder.name), workers)

    def round(self) -> int:
        server = self._server
        server.selected_clients = draw_participants(self._setup.data, self._done)
        server.current_epoch = self._done
        server.train_one_round()
        self._done += 1
        return int(server.steps)

    def weights(self) -> dict[str, Tensor]:
        return dict(zip(self._names, self._server.public_model_params.values(), strict=True))

    def close(self) -> None:
        if self._workers > 1:
            import ray

            ray.shutdown()
        self._folder.cleanup()


def _server(setup: Setup, folder: Path, workers: int) -> Any:
    import src.server.fedavg as theirs
    from data.utils.datasets import BaseDataset
    from hydra.core.hydra_config import HydraConfig
    from omegaconf import OmegaConf
    from src.utils.constants import DEFAULTS

    from benchmarks.fl_bench_parts import CountingClient, Flat

    data = folder / "data" / NAME
    data.mkdir(parents=True)
    _write(setup, data)
    theirs.FLBENCH_ROOT = folder
    HydraConfig.instance().cfg = OmegaConf.create({"hydra": {"runtime": {"output_dir": str(folder / "out")}}})
    settings = OmegaConf.merge(OmegaConf.create(DEFAULTS), _settings(setup, workers))
    if workers > 1:
        import ray

        ray.init(num_cpus=workers, num_gpus=0, include_dashboard=False)

    class Server(theirs.FedAvgServer):  # type: ignore[misc]
        """FedAvg with the benchmark's images and clients that say how many steps they made."""

        client_cls = CountingClient
        steps = 0

        def get_dataset(self) -> Any:
            dataset = setup.dataset
            x = prepare_images(dataset.x, setup.data.transform, dataset.max_value)
            classes = list(range(dataset.num_classes))
            return BaseDataset(x, torch.from_numpy(dataset.y), classes, **self.get_dataset_transforms())

        def aggregate_client_updates(self, client_packages: Any) -> None:
            self.steps = sum(package["steps"] for package in client_packages.values())
            super().aggregate_client_updates(client_packages)

    server = Server(settings, init_trainer=False, init_model=False)
    net = initial_net(setup)
    server.init_model(Flat(nn.Sequential(*net.body), net.head))
    server.init_trainer()
    return server


def _settings(setup: Setup, workers: int) -> dict[str, Any]:
    """Return what differs from FL-bench's defaults."""
    local = setup.config.local
    return {
        "dataset": {"name": NAME},
        "optimizer": {"lr": local.lr, "momentum": local.momentum, "weight_decay": local.weight_decay},
        "mode": "parallel" if workers > 1 else "serial",
        "parallel": {"num_workers": workers, "num_cpus": workers, "num_gpus": 0},
        "common": {
            "join_ratio": setup.config.federation.participation,
            "global_epoch": 1,
            "local_epoch": int(local.epochs),
            "batch_size": local.batch_size,
            "client_side_evaluation": False,
            "test": {"client": {"interval": -1, "finetune_epoch": 0, "test": False}},
            "use_cuda": PEERS_DEVICE == "cuda",
            "save_log": False,
            "save_learning_curve_plot": False,
            "save_metrics": False,
        },
    }


def _write(setup: Setup, folder: Path) -> None:
    """Write the partition as FL-bench's `generate_data.py` does."""
    none = np.array([], dtype=np.int64)
    clients = list(range(setup.partition.num_clients))
    partition = {
        "data_indices": [{"train": setup.partition.train[c], "val": none, "test": none} for c in clients],
        "separation": {"train": clients, "val": [], "test": [], "total": len(clients)},
    }
    (folder / "partition.pkl").write_bytes(pickle.dumps(partition))
    (folder / "args.json").write_text(json.dumps({"split": "sample"}), encoding="utf-8")


def run(lines: Lines, workload: Workload, workers: int) -> None:
    """Serve the benchmark."""
    repository = checkout("FL-bench")
    setup = workload.setup()
    serve(lines, setup, FLBench(setup, repository, workers))
