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
        data: The folder of the clients' samples, from the main file's folder, with {dataset}, {clients} and
            {seed} in its name.
        central: Whether the samples of all clients lie in one array, and the server's model is scored on the
            test set. Otherwise every client has samples of its own for both.
        set_by: Flag of the author's parser → the field, or option, that sets it. Of several flags of a field
            the first one that the parser has stands for it.
        given: Flag → its value in every run, where the parser has it.
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
    central: bool
    set_by: Mapping[str, str]
    given: Mapping[str, str | float | bool]


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
        data="../dataset/{dataset}",
        central=False,
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
            "local_epochs": "local.epochs",
            "local_steps": "local.epochs",
            "model": "model.name",
            "model_family": "model.name",
            "times": "--seeds",
            "prev": "--seeds",
        },
        given={},
    ),
    Family(
        name="flsim",
        main="train.py",
        flag="method",
        servers="server",
        clients="client",
        rounds="comm_rounds",
        extra=0,
        tests=("_test_",),
        data="Data/{dataset}_{clients}_{seed}_Dirichlet_0.100",
        central=True,
        set_by={
            "method": "method",
            "dataset": "data.dataset",
            "total-client": "data.split",
            **dict.fromkeys(("non-iid", "iid", "split-rule", "split-coef", "data-file"), "data.split"),
            "comm-rounds": "federation.rounds",
            "active-ratio": "federation.participation",
            "batchsize": "local.batch_size",
            "local-learning-rate": "local.lr",
            "local-epochs": "local.epochs",
            "model": "model.name",
            "seed": "--seed",
        },
        given={"non-iid": True, "split-rule": "Dirichlet", "split-coef": 0.1},
    ),
)
