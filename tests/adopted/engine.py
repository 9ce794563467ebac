"""A small engine in the layout of the family pfllib, written for these tests: main file, servers, clients.

FedX averages and scores before it trains. FedY scores after training, has a personal test of its own, and
keeps a function in its state. FedZ carries a local variable from round to round.
"""

from __future__ import annotations

import textwrap
from pathlib import Path

MAIN = """
    import argparse
    import random
    import numpy as np
    import torch
    from flcore.servers.serverx import FedX
    from flcore.servers.servery import FedY
    from flcore.servers.serverz import FedZ
    torch.manual_seed(0)

    def run(args):
        shape = 784 if "MNIST" in args.dataset else 64
        args.model = torch.nn.Linear(shape, args.num_classes)
        if args.algorithm == "FedX":
            server = FedX(args)
        elif args.algorithm == "FedY":
            server = FedY(args)
        elif args.algorithm == "FedZ":
            server = FedZ(args)
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
SERVER_Z = """
    from flcore.clients.clientx import ClientX
    from flcore.servers.serverbase import Server

    class FedZ(Server):
        def __init__(self, args):
            super().__init__(args, ClientX)

        def train(self):
            last = 0
            for i in range(self.global_rounds + 1):
                self.notes.append(last)
                last = self.evaluate()
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
    "system/flcore/servers/serverz.py": SERVER_Z,
    "system/flcore/clients/clientx.py": CLIENT,
    "LICENSE": "MIT License. Permission is hereby granted, free of charge, to any person",
}


def written(folder: Path, **changed: str) -> Path:
    """Write the engine into a folder. `changed` maps the stem of a file to its text in place of ours."""
    for name, text in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(textwrap.dedent(changed.get(Path(name).stem, text)))
    return folder
