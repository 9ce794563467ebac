"""MpFedcon at the paper's rate, with five epochs of the encoder, and a weight of the contrast by strength.

At the paper's μ = 10 the contrast's gradient is many times the cross-entropy's where a client's training of
the encoder starts, so a smaller weight is the fair test of the idea.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from raffed import Claim, RunConfig
from raffed.tables.catalogue import Argument
from raffed.tables.items import Cell

from .settings import config, item, proxy

COLUMN = "CIFAR10 (100,5)"
ROWS: Mapping[str, tuple[str, Mapping[str, Argument]]] = {
    "FedRep": ("fedrep", {}),
    "MpFedcon, mu = 0.1": ("mpfedcon", {"mu": 0.1}),
    "MpFedcon, mu = 0.5": ("mpfedcon", {"mu": 0.5}),
    "MpFedcon, mu = 10": ("mpfedcon", {"mu": 10.0}),
}


def _cells() -> Iterator[Cell]:
    for row, (method, args) in ROWS.items():
        run = config(method, "CIFAR10", "(100,5)", epochs=5.0, args=args)
        yield Cell(
            row, COLUMN, replace(run, federation=replace(run.federation, measures="term_strength")), {}
        )


def _small(full: RunConfig) -> RunConfig | None:
    """Return `proxy` at the paper's rate and with all of its rounds."""
    small = proxy(full)
    if small is None:
        return None
    federation = replace(small.federation, rounds=full.federation.rounds, survey=full.federation.survey)
    return replace(small, local=full.local, federation=federation)


ITEM = item(
    "decisive",
    "Ours: MpFedcon at a contrast as strong as the cross-entropy",
    "between_mean10",
    tuple(_cells()),
    baseline="FedRep",
    proxy=_small,
    note=(
        "five epochs of the encoder a round, rate 0.01, 100 rounds; FedRep is MpFedcon without the contrast. "
        "Proxy: some 20 CPU minutes a run"
    ),
    claims=tuple(
        Claim.above(f"{row} above FedRep", row, "FedRep", COLUMN) for row in ROWS if row != "FedRep"
    ),
)
