"""`raffed adopt`: an engine written for these tests is read, every trap is found, and nothing is executed."""

from __future__ import annotations

import os
import re
import textwrap
from pathlib import Path
from typing import Any

import pytest

from raffed.adopted.traps import TRAPS
from raffed.api.creating import adopt
from raffed.errors import RaffedError, UsageError
from tests.cli.conftest import Cli, cli

__all__ = ["cli"]

SERVER, CLIENT = "system/flcore/servers/serverx.py", "system/flcore/clients/clientx.py"
ENGINE = {  # a release of the family pfllib without any trap, whose files must not be executed
    "system/main.py": """
        import argparse
        import no_such_package
        from flcore.servers.serverx import FedX
        from flcore.servers.servery import FedY
        raise SystemExit("executed")
        parser = argparse.ArgumentParser()
        parser.add_argument("-algo", "--algorithm", type=str, default="FedX")
        parser.add_argument("--mode", choices=["fast", "slow"], default="slow")
        args = parser.parse_args()
        if args.algorithm == "FedX":
            server = FedX(args)
        elif args.algorithm == "FedY":
            server = FedY(args)
    """,
    SERVER: """
        from flcore.clients.clientx import Client
        raise SystemExit("executed")
        class FedX:
            def train(self):
                self.lost_method()
                return lost_name
    """,
    CLIENT: """
        raise SystemExit("executed")
        class Client:
            pass
    """,
    "LICENSE": "MIT License. Permission is hereby granted, free of charge, to any person",
    "requirements.txt": "torch==1.8.0\nsix\n",
}
SIMULATOR = {
    "train.py": """
        from server import *
        if args.method == 'FedX':
            chosen = FedX
    """,
    "server/__init__.py": "from .FedX import FedX",
    "server/FedX.py": """
        from client import *
        class FedX: pass
    """,
    "client/__init__.py": "",
}
LOOP = """
    def train(self):
        {before}
        for i in range(self.global_rounds + 1):
            {first}
            {second}
        {after}
"""


def rounds(before: str = "pass", first: str = "pass", second: str = "pass", after: str = "pass") -> str:
    """Return a server's loop over rounds with lines of its own."""
    return LOOP.format(before=before, first=first, second=second, after=after)


def loader(part: str, **given: bool) -> str:
    """Return a client's function that makes a loader of a part of its data."""
    words = "".join(f", {name}={value}" for name, value in given.items())
    return f"def load_{part}_data(self):\n    return DataLoader(data, 10{words})"


def inside(function: str, line: str) -> str:
    """Return a class with a method of one line."""
    return f"class C:\n    def {function}(self, args):\n        {line}\n"


TRAIN, SCORE = "for client in self.clients: client.train()", "self.evaluate()"
SAMPLE, SGD, KEEPS = "random.sample(all, 3)", "self.optimizer = SGD(w)", "self.clients.append(C())"
KEPT = {"drop_last": False, "shuffle": True}
CASES: dict[str, tuple[str, str, str]] = {  # trap → file, lines that have it, lines that have not
    "scored-before": (SERVER, rounds(first=SCORE, second=TRAIN), rounds(first=TRAIN, second=SCORE)),
    "scored-after": (SERVER, rounds(first=TRAIN, second=SCORE), rounds(first=SCORE, second=TRAIN)),
    "best-round": (SERVER, "print(max(self.rs_test_acc))", "print(self.rs_test_acc[-1])"),
    "last-batch-dropped": (CLIENT, loader("train", drop_last=True, shuffle=True), loader("train", **KEPT)),
    "last-batch-kept": (CLIENT, loader("train", **KEPT), loader("train", drop_last=True, shuffle=True)),
    "tests-dropped": (CLIENT, loader("test", drop_last=True), loader("test", drop_last=False)),
    "not-shuffled": (CLIENT, loader("train", drop_last=True), loader("train", **KEPT)),
    "tests-draw": (CLIENT, loader("test", shuffle=True), loader("test", shuffle=False)),
    "seeded-by-clients": (CLIENT, inside("__init__", "torch.manual_seed(0)"), inside("__init__", "pass")),
    "one-seed": ("system/main.py", "torch.manual_seed(0)", "torch.manual_seed(args.seed)"),
    "not-seeded": (SERVER, "np.random.choice(9)", "np.random.seed(args.seed)\nnp.random.choice(9)"),
    "seeded-by-round": (SERVER, inside("draw", "np.random.seed(t)"), inside("__init__", "np.random.seed(t)")),
    "drawn-one-by-one": (SERVER, "taken = drawn <= args.active_ratio", "taken = args.active_ratio * total"),
    "all-are-sent": (
        SERVER,
        inside("send_models", "for c in self.clients: c.set(w)"),
        inside("send_models", "for c in self.selected_clients: c.set(w)"),
    ),
    "mean-by-samples": (SERVER, "self.weights.append(client.train_samples)", "self.weights.append(1)"),
    "mean-uniform": (SERVER, "torch.mean(self.clients_list[chosen], dim=0)", "torch.mean(loss)"),
    "two-orders": (
        SERVER,
        inside("one", "for c in self.selected_clients: self.Vs.append(c.V)\n        " + SAMPLE),
        inside("one", SAMPLE),
    ),
    "live-parts": (
        SERVER,
        "heads.append(client.model.head)",
        "heads.append(copy(client.model.head))",
    ),
    "shared-arguments": (SERVER, inside("train", "args.flag = True"), inside("__init__", "args.flag = True")),
    "shared-messages": (SERVER, "self.comm_vecs['w'].copy_(w)", "self.sent = w.clone()"),
    "statistics-stay": (
        CLIENT,
        inside("set_parameters", "for a, b in zip(m.parameters(), self.m.parameters()): b.data = a"),
        inside("set_parameters", "self.m.load_state_dict(m.state_dict())"),
    ),
    "softmax-stays": (
        "system/main.py",
        "args.model.fc = nn.Identity()\ndef forward(self, x):\n    return F.log_softmax(self.fc(x))",
        "args.model.fc = nn.Identity()\ndef forward(self, x):\n    return self.fc(x)",
    ),
    "optimiser-stays": (CLIENT, inside("__init__", SGD) + KEEPS, inside("train", SGD) + KEEPS),
    "rates-by-layer": (CLIENT, "p = [{'params': w, 'lr': lr * 30}]", "p = [{'params': w, 'lr': lr}]"),
    "clipped": (CLIENT, "torch.nn.utils.clip_grad_norm_(w, 10)", "norm(w)"),
    "weight-decay": (CLIENT, "Adam(w, weight_decay=1e-3)", "SGD(w)"),
    "looks-ahead": (CLIENT, "L = args.L * args.global_rounds", "L = args.L"),
    "steps-of-client-0": (SERVER, "n = len(self.datasets.client_x[0])", "n = len(self.datasets.client_x[k])"),
    "carried-over": (
        SERVER,
        rounds(before="acc = 0", first="self.send(acc)", second="acc = self.evaluate()"),
        rounds(before="acc = 0", first="acc = self.evaluate()", second="self.send(acc)"),
    ),
    "trains-after": (SERVER, rounds(after="client.fine_tune()"), rounds(second="client.fine_tune()")),
    "bool-flags": ("system/main.py", "add_argument('-x', type=bool)", "add_argument('-x', type=int)"),
    "by-data-name": ("system/main.py", "big = 'MNIST' in args.dataset", "big = args.dataset == 'MNIST'"),
    "equal-sizes": (SERVER, "x = np.asarray(client_x)", "x = np.asarray(client_x[0])"),
}


def release(folder: Path, files: dict[str, str], **more: str) -> Path:
    """Write the files of a release; `more` are lines after those of a file."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text) + more.get(name, ""))
    return folder


LICENCE = "MIT License. Permission is hereby granted,"  # its first words


def read(folder: Path, file: str = SERVER, lines: str = "") -> dict[str, Any]:
    return adopt(release(folder, ENGINE, **{file: "\n" + textwrap.dedent(lines) + "\n"}))


def test_every_trap_has_a_case() -> None:
    assert CASES.keys() == TRAPS.keys()


@pytest.mark.parametrize("trap", CASES)
def test_a_trap_is_found_in_a_file_that_has_it_and_not_in_one_that_has_not(trap: str, tmp_path: Path) -> None:
    file, having, lacking = CASES[trap]
    found = {one["trap"]: one["places"] for one in read(tmp_path / "has", file, having)["traps"]}
    first = len(textwrap.dedent(ENGINE[file]).splitlines())
    places = [place.split(":") for place in found[trap]]
    assert all(name == file and int(line) > first for name, line in places)
    assert trap not in [one["trap"] for one in read(tmp_path / "has not", file, lacking)["traps"]]


def names(listed: list[dict[str, Any]]) -> list[str]:
    return [one["name"] for one in listed]


def test_what_a_release_has_and_lacks_is_named_with_its_line(tmp_path: Path) -> None:
    found = read(tmp_path)
    said = {"family": "pfllib", "main": "system/main.py", "licence": LICENCE, "commit": None}
    assert {name: found[name] for name in said} == said
    servers = {method["name"]: method["server"] for method in found["methods"]}
    assert servers == {"FedX": "flcore/servers/serverx.py", "FedY": None}
    assert [(flag["names"], flag["default"], flag["choices"]) for flag in found["flags"]] == [
        (("-algo", "--algorithm"), "'FedX'", ()),
        (("--mode",), "'slow'", ("fast", "slow")),
    ]
    listed = ("packages", "missing", "undefined", "versions")
    assert [(one["name"], one["place"]) for name in listed for one in found[name]] == [
        ("no_such_package", "system/main.py:3"),
        ("flcore.servers.servery", "system/main.py:5"),
        ("self.lost_method", f"{SERVER}:6"),
        ("lost_name", f"{SERVER}:7"),
        ("torch==1.8.0", "requirements.txt:1"),
    ]
    assert set(found["files"]) == {name for name in ENGINE if name.endswith(".py")}


def test_the_second_family_and_names_that_a_star_import_brings(tmp_path: Path) -> None:
    found = adopt(release(tmp_path, SIMULATOR, **{"server/FedX.py": "\nuses = fedx"}))
    assert (found["family"], found["methods"][0]["server"]) == ("flsim", "server/FedX.py")
    assert names(found["undefined"]) == ["fedx", "args"]
    defined = {"client/__init__.py": "\nfrom .fedx import fedx", "server/FedX.py": "\nuses = fedx"}
    (tmp_path / "client" / "fedx.py").write_text("def fedx(): pass")
    assert names(adopt(release(tmp_path, SIMULATOR, **defined))["undefined"]) == ["args"]


def test_the_commit_is_read_from_git_s_files(tmp_path: Path) -> None:
    git = release(tmp_path, ENGINE) / ".git"
    (git / "refs" / "heads").mkdir(parents=True)
    (git / "HEAD").write_text("ref: refs/heads/main\n")
    (git / "packed-refs").write_text("# pack-refs\n1111 refs/heads/old\n2222 refs/heads/main\n")
    assert adopt(tmp_path)["commit"] == "2222"
    (git / "refs" / "heads" / "main").write_text("3333\n")
    assert adopt(tmp_path)["commit"] == "3333"
    (git / "HEAD").write_text("4444\n")
    assert adopt(tmp_path)["commit"] == "4444"


def test_a_file_that_is_not_python_of_today_is_named_and_the_rest_is_read(tmp_path: Path) -> None:
    found = read(tmp_path, CLIENT, "print 'old'")
    assert [one["place"] for one in found["unreadable"]] == [f"{CLIENT}:6"]
    assert len(found["methods"]) == 2


def test_no_link_is_followed_out_of_the_folder_and_a_pipe_is_no_file(tmp_path: Path) -> None:
    (tmp_path / "secret.py").write_text("password = 1")
    target = release(tmp_path / "code", ENGINE) / CLIENT
    target.unlink()
    os.mkfifo(target)
    assert "flcore.clients.clientx" in names(adopt(tmp_path / "code")["missing"])
    target.unlink()
    target.symlink_to(tmp_path / "secret.py")
    with pytest.raises(RaffedError, match=r"clientx\.py"):
        adopt(tmp_path / "code")


def test_copies_in_the_folder_of_a_run_are_no_files_of_the_release(tmp_path: Path) -> None:
    before = read(tmp_path)["files"]
    copy = tmp_path / "runs" / "a" / "engine" / "main.py"
    copy.parent.mkdir(parents=True)
    copy.write_text("copied = 1")
    assert "runs/a/engine/main.py" in adopt(tmp_path)["files"]
    (tmp_path / "runs" / "a" / "run.json").write_text("{}")
    assert adopt(tmp_path)["files"] == before


def test_what_holds_no_engine_is_refused(tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text("import torch")
    with pytest.raises(UsageError, match=r"no main file of a known family; known are pfllib .*, flsim"):
        adopt(tmp_path)
    with pytest.raises(UsageError, match="is not a folder"):
        adopt(tmp_path / "main.py")


def test_the_command_prints_all_of_it(tmp_path: Path, cli: Cli) -> None:
    release(tmp_path / "code", ENGINE, **{SERVER: "\nprint(max(self.rs_test_acc))\n"})
    says = "The best round on the test data is reported."
    shown = cli("adopt", tmp_path / "code")
    assert shown.code == 0, shown.err
    assert says in shown.out
    (event,) = cli("adopt", tmp_path / "code", "--json").events
    assert event["traps"] == [{"trap": "best-round", "says": says, "places": [f"{SERVER}:9"]}]
    assert event["methods"][1] == {"name": "FedY", "server": None, "place": "system/main.py:13"}


def test_no_release_is_known_by_its_name() -> None:
    """What the audit knows are habits of code, so it works on a release that nobody has seen yet."""
    known = "PFLlib|FedTGP|DBE|GPFL|FedFew|HtFLlib|cwFedAvg|FLAYER|FedWMSAM|FedLESAM"
    folder = Path(__file__).parents[2] / "raffed" / "adopted"
    texts = [path.read_text(encoding="utf-8") for path in folder.glob("*.py")]
    assert len(texts) > 2
    assert not [text for text in texts if re.search(known, text)]
