"""MpFedcon: tables 1 to 4, figures 3 to 10 and claims, from docs/papers/mpfedcon.md §EC."""

from __future__ import annotations

from collections.abc import Mapping

from raffed import Claim
from raffed.tables.catalogue import Argument
from raffed.tables.items import Cell, Item

from . import claims as mpfedcon_claims
from . import decisive
from .settings import FINAL, METHODS, SHARED, TASKS, cell, config, item


def _tasks(
    name: str, title: str, always: bool = False, claims: tuple[Claim, ...] = (), picture: str = ""
) -> Item:
    cells = tuple(
        cell("Table 1", row, d, s, config(key, d, s, always=always))
        for d, s in TASKS
        for row, key in METHODS.items()
    )
    note = (
        "FedProx and SCAFFOLD are below FedAvg in print, which looks like runs that were not tuned: no "
        "target (docs/papers/mpfedcon.md §EC)"
    )
    return item(name, title, "between_mean10", cells, note=note, claims=claims, picture=picture)


def _table_2() -> Item:
    rows: dict[str, tuple[str, Mapping[str, Argument]]] = {
        row: (METHODS[row], {}) for row in ("FedAvg", "FedProx", "FedRep")
    }
    rows |= {f"MpFedcon (mu={mu:g})": ("mpfedcon", {"mu": mu}) for mu in (0.5, 5.0)}
    rows |= {"MpFedcon (mu=10)": ("mpfedcon", {})}  # the default, which is table 1's run
    cells = tuple(
        cell(
            "Table 2",
            row,
            "CIFAR10",
            split,
            config(key, "CIFAR10", split, rounds, always=(split, rounds) == SHARED, args=args),
            f"accuracy@T={rounds}",
            f"{split} T={rounds}",
        )
        for split in ("(50,5)", "(100,5)")
        for rounds in (100, 200)
        for row, (key, args) in rows.items()
    )
    return item(
        "table2", "Strength of the contrast", "between_mean10", cells, claims=mpfedcon_claims.strengths()
    )


def _table_3() -> Item:
    cells = tuple(
        cell(
            "Table 3",
            row,
            data,
            "(100,5)",
            config(METHODS[row], data, *SHARED, always=True),
            "rounds_to_target",
        )
        for data in ("CIFAR10", "CIFAR100")
        for row in ("FedAvg", "FedProx", "FedRep", "MpFedcon")
    )
    note = (
        "FedAvg's accuracy is its mean over all parties and the last ten rounds, its rounds are all there "
        "are; a party is drawn once in ten rounds, which is the margin"
    )
    return item(
        "table3",
        "Rounds to FedAvg's accuracy",
        "personal_rounds_to_baseline",
        cells,
        margin=10.0,  # rounds: a party is drawn once in ten; half of the largest printed gain is 98
        note=note,
    )


def _epochs(name: str, title: str, picture: str = "", always: bool = False) -> Item:
    cells = tuple(
        Cell(
            row,
            f"E={epochs:g}",
            config(key, "CIFAR10", "(100,5)", epochs=epochs, always=always),
            {},
            FINAL.get(row, ""),
        )
        for epochs in (1.0, 5.0, 10.0, 20.0)
        for row, key in METHODS.items()
    )
    return item(name, title, "between_mean10", cells, picture=picture)


def _figure_9() -> Item:
    """Return figure 9, after the last round of table 1's runs.

    The text says that more than 70 % of the clients gain by MpFedcon.
    """
    splits = ("(100,2)", "(100,5)")
    cells = tuple(
        Cell(row, f"CIFAR10 {split}", config(key, "CIFAR10", split), {})
        for split in splits
        for row, key in METHODS.items()
    )
    return item(
        "fig9",
        "Gain of each party over SOLO",
        "between_last",
        cells,
        baseline="SOLO",
        claims=mpfedcon_claims.gains(splits),
        note="the split is not printed: both of CIFAR-10",
        picture="gain_curves",
    )


def _table_4() -> Item:
    rows: dict[str, tuple[str, Mapping[str, Argument]]] = {"Original": ("fedavg", {})}
    rows |= {
        f"{kind.capitalize()} {text}": ("noisygrad", {"kind": kind, "size": float(text)})
        for kind in ("gaussian", "laplace")
        for text in ("1e-4", "1e-2")
    }
    rows |= {"MpFedcon": ("mpfedcon", {})}
    where = {"table": "Table 4", "dataset": "not stated", "split": "not stated", "metric": "accuracy"}
    cells = []
    for meaning in ("variance", "scale"):
        for row, (key, args) in rows.items():
            args = {**args, "meaning": meaning} if key == "noisygrad" else args
            printed = {**where, "method": row} if meaning == "variance" else {}
            run = config(key, "CIFAR10", "(100,5)", args=args)
            cells.append(Cell(row, f"size is the {meaning}", run, printed, target=False))
    note = (
        "the paper states neither data set nor model, and its accuracies under noise look like those of Zhu "
        "et al. (2019): no target of this training; whether noise defends is in the study's tables"
    )
    return item(
        "table4",
        "Noise as a defence",
        "between_mean10",
        tuple(cells),
        baseline="Original",
        note=note,
        study="leakage",
    )


def _claims() -> Item:
    """Return what docs/papers/mpfedcon.md §EC and docs/papers/gldp.md §EE say about CIFAR-10 in table 1.

    MpFedcon is best, except for SOLO in (100,2), and all methods are above FedAvg. FedProx, SCAFFOLD and
    Per-FedAvg are left out, because table 1's own claims compare it to them.
    """
    rows = [row for row in METHODS if row not in ("FedProx", "SCAFFOLD", "PerFedAvg")]
    cells = [
        cell("Table 1", row, "CIFAR10", s, config(METHODS[row], "CIFAR10", s))
        for _, s in TASKS[:2]
        for row in rows
    ]
    return item(
        "claims",
        "Claims on the parties' accuracy",
        "between_mean10",
        tuple(cells),
        claims=mpfedcon_claims.small(rows),
        picture="gain_curves",
        baseline="SOLO",
    )


ITEMS = (
    _tasks("table1", "Accuracy of the parties' models", claims=mpfedcon_claims.BEST),
    _table_2(),
    _table_3(),
    _table_4(),
    item("fig3", "SOLO and FedAvg drift apart", study="solo_drift"),
    item("fig4", "Features by t-SNE", study="features_tsne"),
    _tasks("fig6", "Accuracy against the round", always=True, picture="rounds"),
    _epochs("fig7", "Local epochs, round by round", "rounds", always=True),
    _epochs("fig8", "Local epochs of the encoder", "against"),
    _figure_9(),
    item("fig10", "Gradient leakage", study="leakage"),
    _claims(),
    decisive.ITEM,
)
