"""The families of engines: how the releases of each are laid out, stepped, and set."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Family(NamedTuple):
    """A kind of engine.

    Attributes:
        name: The word before the colon of a method, such as `pfllib:PATH#NAME`.
        main: The name of the file that the author starts.
        flag: The flag of its parser that names the method.
        servers: The package that holds the servers.
        clients: The package that holds the clients.
        rounds: The attribute over whose range the server's loop goes.
        extra: How many iterations the loop has beyond that number.
        tests: Beginnings of the names of the server's functions whose answers are scores.
        data: The folder of the clients' samples, from the main file's folder; {} is the data's name.
        set_by: Flag of the author's parser → the field that sets it. Parsers have one of several names for
            some, with `|` between them. A family that cannot be executed yet has none.
        repeats: Flags that repeat the whole run.
    """

    name: str
    main: str
    flag: str
    servers: str
    clients: str
    rounds: str
    extra: int
    tests: tuple[str, ...]
    data: str
    set_by: Mapping[str, str]
    repeats: tuple[str, ...] = ()


FAMILIES = (
    Family(
        name="pfllib",
        main="main.py",
        flag="algorithm",
        servers="flcore.servers",
        clients="flcore.clients",
        rounds="global_rounds",
        extra=1,
        tests=("test_metrics", "train_metrics"),
        data="../dataset/{}",
        set_by={
            "algorithm": "method",
            "dataset": "data.dataset",
            "num_classes": "data.dataset",
            "num_clients": "data.split",
            "device": "runtime.gpu_fraction",
            "global_rounds": "federation.rounds",
            "join_ratio": "federation.participation",
            "eval_gap": "federation.eval_every",
            "batch_size": "local.batch_size",
            "local_learning_rate": "local.lr",
            "local_epochs|local_steps": "local.epochs",
            "model|model_family": "model.name",
        },
        repeats=("times", "prev"),
    ),
    Family(
        name="flsim",
        main="train.py",
        flag="method",
        servers="server",
        clients="client",
        rounds="comm_rounds",
        extra=0,
        tests=(),
        data="",
        set_by={},
    ),
)
EXECUTED = tuple(family.name for family in FAMILIES if family.set_by)
