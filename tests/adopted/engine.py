"""Two small engines in the layouts of the families pfllib and flsim, written for these tests.

Of pfllib's, FedX averages and scores before it trains. FedY scores after training, has a personal test of its
own, and keeps a function in its state. FedQ, of flsim's, inherits a loop that carries a local variable from
round to round.
"""

from __future__ import annotations

import textwrap
from pathlib import Path

MAIN = """
    import argparse
    import os
    import torch
    from flcore.servers.serverx import FedX
    from flcore.servers.servery import FedY
    torch.manual_seed(0)
    print(sorted(os.environ))

    def run(args):
        shape = 784 if "MNIST" in args.dataset else 64
        args.model = torch.nn.Linear(shape, args.num_classes)
        if args.algorithm == "FedX":
            server = FedX(args)
        elif args.algorithm == "FedY":
            server = FedY(args)
        server.train()

    if __name__ == "__main__":
        parser = argparse.ArgumentParser()
        parser.add_argument("-algo", "--algorithm", type=str, default="FedX")
        parser.add_argument("-data", "--dataset", type=str, default="MNIST")
        parser.add_argument("-ncl", "--num_classes", type=int, default=10)
        parser.add_argument("-nc", "--num_clients", type=int, default=2)
        parser.add_argument("-dev", "--device", type=str, default="cuda", choices=["cpu", "cuda"])
        parser.add_argument("-gr", "--global_rounds", type=int, default=100)
        parser.add_argument("-jr", "--join_ratio", type=float, default=1.0)
        parser.add_argument("-eg", "--eval_gap", type=int, default=1)
        parser.add_argument("-lbs", "--batch_size", type=int, default=10)
        parser.add_argument("-lr", "--local_learning_rate", type=float, default=0.005)
        parser.add_argument("-ls", "--local_epochs", type=int, default=1)
        parser.add_argument("-m", "--model", type=str, default="Line")
        parser.add_argument("-mu", "--mu", type=float, default=0.5)
        parser.add_argument("-k", "--steps", type=int, default=3)
        parser.add_argument("-t", "--times", type=int, default=1)
        parser.add_argument("-ab", "--auto_break", type=bool, default=False)
        parser.add_argument("--crash", type=int, default=-1)
        run(parser.parse_args())
"""
BASE = """
    import copy
    import os
    import random
    import time
    import numpy as np
    import torch

    class Server:
        def __init__(self, args, kind):
            self.args, self.global_rounds, self.eval_gap = args, args.global_rounds, args.eval_gap
            self.global_model = copy.deepcopy(args.model)
            self.clients = [kind(args, i) for i in range(args.num_clients)]
            self.Budget, self.rs_test_acc, self.notes = [], [], []

        def select(self):
            taking = int(len(self.clients) * self.args.join_ratio)
            self.selected_clients = list(np.random.choice(self.clients, taking, replace=False))
            for client in self.clients:
                client.set_parameters(self.global_model)

        def gather(self):
            several = random.sample(self.selected_clients, len(self.selected_clients))
            total = sum(client.train_samples for client in several)
            models = [c.model.parameters() for c in several]
            for target, *parts in zip(self.global_model.parameters(), *models):
                shares = [c.train_samples / total * part.data for c, part in zip(several, parts)]
                target.data = sum(shares)
            torch.save(self.global_model, "last.pt")

        def test_metrics(self):
            found = [client.test() for client in self.clients]
            return [c.id for c in self.clients], [n for n, _ in found], [right for _, right in found], [0.0]

        def evaluate(self):
            _, n, right, _ = self.test_metrics()
            self.rs_test_acc.append(sum(right) / sum(n))
            print("Averaged Test Accuracy: %.6f" % self.rs_test_acc[-1])

        def save_results(self):
            print("Best accuracy.", max(self.rs_test_acc))
"""
SERVER_X = """
    import os
    import time
    from flcore.clients.clientx import ClientX
    from flcore.servers.serverbase import Server

    class FedX(Server):
        def __init__(self, args):
            super().__init__(args, ClientX)

        def train(self):
            for _ in range(2):
                self.notes.append(len(self.clients))
            for i in range(self.global_rounds + 1):
                begun = time.time()
                self.select()
                if i % self.eval_gap == 0:
                    self.evaluate()
                for client in self.selected_clients:
                    client.train()
                if i == self.args.crash:
                    raise ValueError("crash of the author's")
                self.gather()
                self.Budget.append(time.time() - begun)
            self.save_results()
"""
SERVER_Y = """
    from flcore.clients.clientx import ClientX
    from flcore.servers.serverbase import Server

    class FedY(Server):
        def __init__(self, args):
            super().__init__(args, ClientX)
            self.rule = lambda value: value

        def test_metrics_personalized(self):
            return [0, 1, 2, 3], [4, 4, 4, 4], [1, 2, 3, 4]

        def train(self):
            for i in range(self.global_rounds + 1):
                self.select()
                for client in self.selected_clients:
                    client.train()
                self.evaluate()
                self.test_metrics_personalized()
                self.gather()
            self.save_results()
"""
CLIENT = """
    import copy
    import numpy as np
    import torch
    from torch.utils.data import DataLoader

    class ClientX:
        def __init__(self, args, id):
            torch.manual_seed(0)
            self.id, self.args, self.model = id, args, copy.deepcopy(args.model)
            lr, weights = args.local_learning_rate, self.model.parameters()
            self.optimizer = torch.optim.SGD(weights, lr=lr, momentum=0.9)
            self.scheduler = torch.optim.lr_scheduler.ExponentialLR(self.optimizer, gamma=0.9)
            self.train_samples = len(self.read("train"))

        def read(self, part):
            path = "../dataset/%s/%s/%d.npz" % (self.args.dataset, part, self.id)
            found = np.load(path, allow_pickle=True)["data"].tolist()
            x, y = torch.Tensor(found["x"]).flatten(1), torch.Tensor(found["y"]).long()
            return list(zip(x, y))

        def load_train_data(self):
            return DataLoader(self.read("train"), self.args.batch_size, drop_last=True, shuffle=True)

        def load_test_data(self):
            return DataLoader(self.read("test"), self.args.batch_size, drop_last=False, shuffle=True)

        def set_parameters(self, model):
            for mine, theirs in zip(self.model.parameters(), model.parameters()):
                mine.data = theirs.data.clone()

        def train(self):
            for _ in range(self.args.local_epochs):
                for x, y in self.load_train_data():
                    self.optimizer.zero_grad()
                    torch.nn.functional.cross_entropy(self.model(x), y).backward()
                    self.optimizer.step()
            self.scheduler.step()

        def test(self):
            parts = self.load_test_data()
            with torch.no_grad():
                found = [(len(y), (self.model(x).argmax(1) == y).sum().item()) for x, y in parts]
            return sum(n for n, _ in found), sum(right for _, right in found)
"""
FILES = {
    "system/main.py": MAIN,
    "system/flcore/servers/serverbase.py": BASE,
    "system/flcore/servers/serverx.py": SERVER_X,
    "system/flcore/servers/servery.py": SERVER_Y,
    "system/flcore/clients/clientx.py": CLIENT,
    "LICENSE": "MIT License. Permission is hereby granted, free of charge, to any person",
}
SIMULATOR_MAIN = """
    import argparse
    import numpy as np
    import torch
    from server import *

    parser = argparse.ArgumentParser()
    parser.add_argument("--dataset", choices=["CIFAR10", "DIGITS"], type=str, default="CIFAR10")
    parser.add_argument("--model", choices=["Line"], type=str, default="Line")
    parser.add_argument("--non-iid", action="store_true", default=False)
    parser.add_argument("--active-ratio", type=float, default=0.1)
    parser.add_argument("--total-client", type=int, default=100)
    parser.add_argument("--comm-rounds", type=int, default=500)
    parser.add_argument("--local-epochs", type=int, default=5)
    parser.add_argument("--batchsize", type=int, default=50)
    parser.add_argument("--weight-decay", type=float, default=0.001)
    parser.add_argument("--local-learning-rate", type=float, default=0.1)
    parser.add_argument("--seed", type=int, default=20)
    parser.add_argument("--method", choices=["FedQ"], type=str, default="FedQ")
    args = parser.parse_args()

    rule = "Dirichlet_0.100" if args.non_iid else "iid_"
    place = "./Data/%s_%d_%d_%s/" % (args.dataset, args.total_client, args.seed, rule)
    parts = ("client_x", "client_y", "test_x", "test_y")
    samples = argparse.Namespace(**{part: np.load(place + part + ".npy", mmap_mode="r") for part in parts})
    torch.manual_seed(args.seed)
    if args.method == "FedQ":
        FedQ(args, samples, lambda: torch.nn.Linear(64, 10)).train()
"""
SIMULATOR_BASE = """
    import time
    import numpy as np
    import torch
    from client import *

    class Server:
        def __init__(self, args, datasets, make):
            self.args, self.datasets, self.make, self.lr = args, datasets, make, args.local_learning_rate
            self.model, self.time = make(), np.zeros(args.comm_rounds)
            self.train_perf, self.test_perf = np.zeros((args.comm_rounds, 2)), np.zeros((args.comm_rounds, 2))

        def _activate_clients_(self, t):
            np.random.seed(t + self.args.seed)
            drawn = np.random.uniform(size=self.args.total_client) <= self.args.active_ratio
            return np.flatnonzero(drawn) if drawn.any() else np.array([0])

        def _test_(self, t, selected):
            data, parts = self.datasets, (self.datasets.client_x, self.datasets.client_y)
            samples = {"train": [np.concatenate(part) for part in parts], "test": [data.test_x, data.test_y]}
            for name, (x, y) in samples.items():
                right = self.model(tensors(x, y)[0]).argmax(1) == tensors(x, y)[1]
                getattr(self, name + "_perf")[t] = 0.0, right.float().mean().item()
            print("Test accuracy %.6f" % self.test_perf[t][1])

        def train(self):
            before = [torch.zeros(10, 64), torch.zeros(10)]
            for t in range(self.args.comm_rounds):
                began = time.time()
                selected = self._activate_clients_(t)
                moves = [Client(self, client, before).train() for client in selected]
                before = [torch.stack(parts).mean(dim=0) for parts in zip(*moves)]
                for part, move in zip(self.model.parameters(), before):
                    part.data += move
                self._test_(t, selected)
                self.time[t] = time.time() - began
            self._save_results_()

        def _save_results_(self):
            pass
"""
SIMULATOR_CLIENT = """
    import copy
    import torch
    from torch.nn.functional import cross_entropy

    def tensors(x, y):
        return torch.tensor(x).flatten(1), torch.tensor(y).flatten().long()

    class Client:
        def __init__(self, server, number, before):
            self.server, self.model = server, copy.deepcopy(server.model)
            for part, move in zip(self.model.parameters(), before):
                part.data += server.ahead * move
            self.samples = tensors(server.datasets.client_x[number], server.datasets.client_y[number])

        def train(self):
            args, (x, y), weights = self.server.args, self.samples, self.model.parameters
            optimizer = torch.optim.SGD(weights(), lr=self.server.lr, weight_decay=args.weight_decay)
            for _ in range(args.local_epochs):
                for rows in torch.randperm(len(y)).split(args.batchsize):
                    optimizer.zero_grad()
                    cross_entropy(self.model(x[rows]), y[rows]).backward()
                    optimizer.step()
            return [new.data - old.data for new, old in zip(weights(), self.server.model.parameters())]
"""
SIMULATOR = {
    "train.py": SIMULATOR_MAIN,
    "server/__init__.py": "from .FedQ import FedQ\n",
    "server/server.py": SIMULATOR_BASE,
    "server/FedQ.py": "from .server import Server\nclass FedQ(Server): ahead = 0.5\n",
    "client/__init__.py": SIMULATOR_CLIENT,
}


def written(folder: Path, files: dict[str, str] = FILES, **changed: str) -> Path:
    """Write an engine into a folder. `changed` maps the stem of a file to its text in place of ours."""
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(textwrap.dedent(changed.get(Path(name).stem, text)))
    return folder
