"""MAP: the data, networks, methods and runs of the paper, from docs/papers/map.md."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from raffed import Federation, Local, RunConfig
from raffed.tables.catalogue import Argument, run_of
from raffed.tables.items import Item, shortened

EPOCHS = {"FaMnist": 5.0, "CIFAR-10": 10.0, "CIFAR-100": 20.0, "CINIC-10": 40.0}
NAMES = {"FaMnist": "fashion-mnist", "CIFAR-10": "cifar10", "CIFAR-100": "cifar100", "CINIC-10": "cinic10"}
NETS = {
    "MLPNet": "mlpnet",
    "LeNet": "lenet",
    "TFCNN": "tfcnn",
    "VGG8": "vgg8",
    "VGG8-BN": "vgg8_bn",
    "VGG11": "vgg11",
    "ResNet20": "resnet20",
    "ResNet56": "resnet56",
}
BENCHMARKS = (
    ("FaMnist", "MLPNet"),
    ("FaMnist", "LeNet"),
    ("CIFAR-10", "TFCNN"),
    ("CIFAR-10", "VGG8"),
    ("CIFAR-100", "VGG8-BN"),
    ("CIFAR-100", "VGG11"),
    ("CINIC-10", "ResNet20"),
    ("CINIC-10", "ResNet56"),
)
COLUMNS = tuple(f"{data} {net}" for data, net in BENCHMARKS)
METRICS = {"accuracy_last": "aggregation_accuracy", "personal_last": "personalization_accuracy"}
METHODS = {
    "FedAvg": "fedavg",
    "FedProx": "fedprox",
    "FedMMD": "fedmmd",
    "Scaffold": "scaffold",
    "FedDF": "feddf",
    "FedNova": "fednova",
    "FedOpt": "fedavgm",
    "MOON": "moon",
    "FedAwS": "fedaws",
    "FedDyn": "feddyn",
    "FLDA": "flda",
    "pFedMe": "pfedme",
    "PerFedAvg": "perfedavg",
    "FedProto": "fedproto",
    "FedRep": "fedrep",
    "Ditto": "ditto",
    "FedROD": "fedrod",
    "FedPHP": "fedphp",
    "FedRS": "fedrs",
    "ScaRS": "scars",
    "DittoRS": "dittors",
    "MAP": "map",
    "ScaMAP": "scamap",
}
GLOBAL = tuple(row for row in METHODS if row not in ("FedRep", "FedProto"))  # Table I's rows
TABLE_3 = (
    "FedAvg",
    "FedProx",
    "Scaffold",
    "MOON",
    "FedDyn",
    "FedROD",
    "pFedMe",
    "Ditto",
    "FedPHP",
    "FedRS",
    "MAP",
)
CLIPPED = (
    "fedavg",
    "finetune",
    "scaffold",
    "scars",
    "scamap",
    "feddyn",
    "dittors",
)  # also with LeNet on Fashion-MNIST
UNIFORM = "Scaffold, FedDyn, PerFedAvg, ScaRS, ScaMAP"  # methods whose default mean is uniform
WEIGHTS = f"{UNIFORM} weight clients uniformly, the others by samples (FedProto averages no weights)"
THREE = (("FaMnist", "LeNet"), ("CIFAR-10", "TFCNN"), ("CIFAR-100", "VGG8-BN"))
SETTINGS: tuple[dict[str, float], ...] = (
    {},
    {"alpha": 0.1},
    {"alpha": 0.9},
    {"lam": 0.01},
    {"lam": 0.5},
    {"mu": 0.1},
    {"mu": 0.5},
)


def config(
    method: str, dataset: str, net: str, split: str = "incomplete:100", /, **args: Argument
) -> RunConfig:
    """Return a run of 100 clients, 20 per round, 150 rounds, batch 64 and constant rate (docs/papers/map.md
    §E1).

    Gradients are clipped at the released code's norm of 100 (docs/papers/map.md §7 no. 5), with two
    exceptions. The local solvers are not clipped in that code. On Fashion-MNIST clipping has no effect and
    would cost time. Some methods, however, need it there with LeNet. Without it, SCAFFOLD diverges in round
    69, FedDyn in round 47, a personal model of DittoRS in round 105, and FedAvg's third seed in round 42.
    Fig. 10 fine-tunes FedAvg's models.
    """
    lr, epochs = 0.05 if dataset == "CINIC-10" else 0.03, EPOCHS[dataset]
    needless = dataset == "FaMnist" and not (net == "LeNet" and method in CLIPPED)
    clip = None if needless or method in ("pfedme", "perfedavg") else 100.0
    local = Local(
        lr=lr, momentum=0.9, weight_decay=1e-5, batch_size=64, epochs=epochs, min_steps=5, clip_norm=clip
    )
    said = {**_in_budget(method, epochs), **({"inner_lr": lr} if method == "perfedavg" else {}), **args}
    return run_of(method, NAMES[dataset], split, NETS[net], local, Federation(150, 0.2), **said)


def _in_budget(method: str, epochs: float) -> dict[str, float]:
    """Return FedRep's division of E epochs: max(1, E // 3) for the body and the rest for the head.

    See docs/papers/baselines-personal.md, FedRep.
    """
    body = max(1.0, epochs // 3)
    return {"head_epochs": epochs - body, "body_epochs": body} if method == "fedrep" else {}


def proxy(full: RunConfig) -> RunConfig | None:
    """Return a run on Fashion-MNIST or CIFAR-10 with the paper's small networks, 40 rounds of two epochs.

    FEMNIST runs for 20 rounds and keeps its epochs, because Fig. 12 compares them.
    """
    if full.model.name == "femnist_cnn":
        return replace(full, federation=shortened(full.federation, 20, eval_every=2))
    if full.model.name not in ("mlpnet", "mlpnet_authors", "lenet", "lenet_authors", "tfcnn"):
        return None
    epochs = min(full.local.epochs, 2.0)
    args = {**full.args, **_in_budget(full.method, epochs)}
    if "epochs" in args:  # figure 10: like local training
        args["epochs"] = epochs
    federation = shortened(full.federation, 40, eval_every=2)
    return replace(full, args=args, local=replace(full.local, epochs=epochs), federation=federation)


item = partial(Item, "map", proxy=proxy)
