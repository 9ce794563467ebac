"""MpFedcon: the data, networks, methods and runs of the paper, from docs/papers/mpfedcon.md §EC.

The paper's accuracy is the mean over all clients, also those whose heads are old, and over the last ten
rounds. So every run scores all clients after each of its last ten rounds. Runs of table 3, and of figures
with the round on an axis, do so after every round, because the mean over all clients cannot be computed from
the changing participants. The tests of 100 clients are one pass over 10,000 images, while training a round is
5,000 to 55,000 images with gradients. FedAvg+FT is fine-tuned and scored once, after the last round.

CIFAR's images are cropped, flipped and normalised as in MAP's code; crop and flip are those of FedRep's code.
Weight decay applies to all parameters, while FedRep's code leaves biases out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from raffed import Data, Federation, Local, Model, RunConfig
from raffed.tables.catalogue import Argument
from raffed.tables.items import Cell, Item, shortened

METHODS = {
    "SOLO": "solo",
    "FedAvg": "fedavg",
    "FedAvg+FT": "finetune",
    "FedProx": "fedprox",
    "SCAFFOLD": "scaffold",
    "APFL": "apfl",
    "Ditto": "ditto",
    "PerFedAvg": "perfedavg",
    "FedPer": "fedper",
    "FedRep": "fedrep",
    "MpFedcon": "mpfedcon",
}
TASKS = (
    ("CIFAR10", "(100,2)"),
    ("CIFAR10", "(100,5)"),
    ("CIFAR100", "(100,5)"),
    ("CIFAR100", "(100,20)"),
    ("FEMNIST", "(150,3)"),
)
NETS = {  # docs/papers/mpfedcon.md §1: encoders of 307,192, 1,062,144 and 533,248 parameters
    "CIFAR10": ("cifar10", Model("cnn5")),
    "CIFAR100": ("cifar100", Model("cnn5", {"channels": [64, 128], "hidden": [256, 128]})),
    "FEMNIST": ("femnist-letters", Model("mlp5")),
}
PRINTED = "accuracy"
LAST = 10
SHARED = ("(100,5)", 200)  # the column of table 2 that shares its runs with table 3
PASSES = "τ_θ"
# Projection and output are private, as in MpFedcon, and encoders train for τ_θ epochs. For Per-FedAvg see
# docs/papers/baselines-personal.md.
OWN: dict[str, dict[str, Argument]] = {
    "finetune": {"scope": "top"},
    "fedper": {"private": "top"},
    "fedrep": {"private": "top", "body_epochs": PASSES},
    "mpfedcon": {"encoder_epochs": PASSES},
    "perfedavg": {"adapt_epochs": 1.0},
}
FINAL = {"FedAvg+FT": "between_last"}  # fine-tuned once, after the last round
# Below FedAvg in all five columns, so "no target" in docs/papers/mpfedcon.md §EC
UNTUNED = {("Table 1", "FedProx"), ("Table 1", "SCAFFOLD")}


def config(
    method: str,
    dataset: str,
    split: str,
    rounds: int = 100,
    epochs: float | None = None,
    always: bool = False,
    args: Mapping[str, Argument] | None = None,
) -> RunConfig:
    """Return a run with a tenth of the clients per round.

    τ_θ is 1 epoch on CIFAR-10 and 5 elsewhere, for every method (docs/papers/mpfedcon.md §4). With `always`,
    all clients are scored after every round.
    """
    parties, classes = split.strip("()").split(",")
    name, model = NETS[dataset]
    passes = epochs or (1.0 if dataset == "CIFAR10" else 5.0)
    local = Local(lr=0.01, momentum=0.5, weight_decay=1e-4, batch_size=10, epochs=passes)
    kind = "lognormal" if dataset == "FEMNIST" else "equal"
    rounds = 200 if dataset == "FEMNIST" else rounds
    # Fine-tuning happens in the last round only.
    federation = Federation(rounds, 0.1, survey=1 if method == "finetune" else rounds if always else LAST)
    said = {
        **{key: passes if value is PASSES else value for key, value in OWN.get(method, {}).items()},
        **(args or {}),
    }
    data = Data(name, f"{kind}:{parties}:{classes}", transform="map" if name.startswith("cifar") else "auto")
    return RunConfig(method, said, data, model, local, federation)


def proxy(full: RunConfig) -> RunConfig | None:
    """Return a smaller run: half of Fashion-MNIST in place of CIFAR-10, and 30 of 100 rounds at twice the
    rate.

    The network has a quarter and half of the filters. With so few steps clients are at chance on CIFAR-10. At
    five times the rate, the networks of FedRep and MpFedcon collapse in (100,2), and at ten times SOLO
    diverges. The global test is rare, because no measure uses it.
    """
    if full.data.dataset != "cifar10":
        return None
    data = replace(full.data, dataset="fashion-mnist", samples=30000, transform="auto")
    narrow = replace(full.model, args={**full.model.args, "channels": [16, 32]})
    federation = shortened(full.federation, full.federation.rounds * 3 // 10, eval_every=10)
    local = replace(full.local, lr=0.02)
    # These have rates of their own
    args = (
        {**full.args, "inner_lr": local.lr, "outer_lr": local.lr} if full.method == "perfedavg" else full.args
    )
    return replace(full, args=args, data=data, model=narrow, local=local, federation=federation)


def cell(
    table: str, row: str, dataset: str, split: str, run: RunConfig, metric: str = PRINTED, column: str = ""
) -> Cell:
    """Return a cell.

    In tables 2 and 3 FedProx is ahead of FedAvg, as expected. So what docs/papers/mpfedcon.md §EC says about
    FedProx in table 1 is not applied to them.
    """
    return Cell(
        row,
        column or f"{dataset} {split}",
        run,
        {"table": table, "dataset": dataset, "split": split, "method": row, "metric": metric},
        measure=FINAL.get(row, ""),
        target=(table, row) not in UNTUNED,
    )


item = partial(Item, "mpfedcon", proxy=proxy)
