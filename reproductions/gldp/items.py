"""GLDP (STHFL): tables 1 to 4, figures 3 and 4, claims, and additions of ours (docs/papers/gldp.md §EB)."""

from __future__ import annotations

from dataclasses import replace

from raffed import Claim
from raffed.tables.catalogue import Argument
from raffed.tables.items import Cell, Item

from . import claims as gldp_claims
from . import decisive
from .settings import (
    ABLATION,
    ALL,
    ALTERNATING,
    FIGURE_4,
    IN_TABLE_4,
    METHODS,
    TABLE_1,
    TABLE_2,
    TABLE_3,
    Way,
    cells,
    config,
    item,
    printed_at,
)

FEDIC_HAS = (
    "FEDIC alone has labelled images of its own at the server (100, CIFAR-100 10, Tiny-ImageNet 5 a class)"
)
HEADS = (
    "FedRep has no global model: its body with the mean of the participants' heads, which only the simulator "
    "can form, is the oracle. GLDP answers by prototypes: GP by the server's, LP by each client's own"
)
ABLATED = (
    "the row without both terms is FedRep's, as in the paper, whose number it prints, and once more by "
    "prototypes; GLDP answers by LP, where the paper's full A_glo is GP's for CIFAR-10 and LP's for CIFAR-100"
)
SELECTED = f"FEDIC and CReFF: the global model, over all clients. {FEDIC_HAS}"
HALF = [TABLE_2[0], TABLE_2[2]]
TESTED = ("[100,4,1]", "[20,4,5]")
MEASURED = {"A_glo": "a_glo", "A_loc": "a_loc", "A_sel": "a_sel", "drop of A_sel": "a_sel_drop"}
PRINTED_IN = {
    ("A_loc", "[100,4,1]"): "Table 1",
    ("A_glo", "[20,4,5]"): "Table 2",
    ("A_loc", "[20,4,5]"): "Table 3",
}


def _figure_4() -> Item:
    """Return figure 4. Panel (b) is the second panel of the first pair, CIFAR-10 [20,5,5] at IF 10.

    The claim about it is in claims.py.
    """
    return item(
        "fig4",
        "Accuracy on the stages so far",
        "a_sel",
        cells("Figure 4", "A_sel", FIGURE_4, ALL),
        claims=gldp_claims.stages_so_far("CIFAR10 [20,5,5] IF10"),
        note=SELECTED,
        picture="stages",
    )


def _selected() -> Item:
    """Return table 4's A_sel. The text says what removing GP costs on CIFAR-100: 36.82 − 27.24."""
    column = "CIFAR100 [20,20,5] IF50"
    return item(
        "table4-selected",
        "Without one of the terms, A_sel",
        "a_sel",
        cells("Table 4", "A_sel", HALF, ABLATION),
        claims=(gldp_claims.cost_of_prototypes(column),),
        baseline="GLDP full",
        note=ABLATED,
        picture="stages",
    )


def _figure_3() -> Item:
    """Return figure 3, whose bars have no numbers except two that the text quotes for GLDP.

    These are A_loc of GLDP-GP in table 1, where they are printed.
    """
    quoted = {("GLDP-GP", f"CIFAR10 {split} IF100") for split in ("[100,4,1]", "[100,5,1]")}
    bars = tuple(
        replace(cell, printed={**cell.printed, "table": "Table 1", "metric": "A_loc"})
        if cell.place in quoted
        else cell
        for cell in cells("Figure 3", "A_glo", TABLE_1[:12], METHODS)
    )
    note = (
        f"{HEADS}. Its two printed numbers are table 1's: the paper has the same for GLDP's A_glo and A_loc"
    )
    return item("fig3", "Global accuracy, one stage", "a_glo", bars, note=note, picture="bars")


def _claims() -> Item:
    """Return what docs/papers/gldp.md §EB says about the order of methods, for one and five stages at IF 50.

    The measures of a run are columns of their own.
    """
    rows = {
        **METHODS,
        **{row: ABLATION[row] for row in ("GLDP without L_LP (lambda=0)", "GLDP without L_GP (lambda=1)")},
    }
    judged, claims = [], list[Claim]()
    for split in TESTED:
        for metric, measure in MEASURED.items():
            if split == TESTED[0] and measure.startswith("a_sel"):
                continue  # one stage
            column = f"{split} {metric}"
            where = printed_at(PRINTED_IN.get((metric, split), ""), metric, "CIFAR10", split, 50)
            for row, way in rows.items():
                printed = {**where, "method": row} if where["table"] and row in METHODS else {}
                judged.append(Cell(row, column, config(way, "CIFAR10", split, 50), printed, measure))
            claims += gldp_claims.of_a_measure(split, metric)
    claims += gldp_claims.of_the_terms(TESTED[1], rows)
    note = (
        f"{HEADS}. Rows without a term answer by LP, as GLDP-LP does; that LP and GP are within a few points "
        "is not judged. Stages come in the order `inner`, the default, also for what is forgotten"
    )
    return item(
        "claims",
        "Claims: one stage, five stages",
        "a_glo",
        tuple(judged),
        claims=tuple(claims),
        note=note,
        picture="stages",
    )


def _order() -> Item:
    """Return G-X1: the runs of table 4 with stages inside each round of the paper, or one after the other.

    Only the order differs. A_sel and forgetting are those of the participants' models, which are scored in
    every round, so for each stage while it is the current one. In order `outer`, the survey from which A_glo
    is computed is that of the last stage.
    """
    rows = {"FedAvg": METHODS["FedAvg"]._replace(printed=False), **ABLATION}
    both_orders = []
    for where in HALF:
        inner = cells("Table 4", "A_sel", [where], rows)
        both_orders += [replace(cell, column=f"{cell.column} inner") for cell in inner]
        both_orders += [
            replace(
                cell,
                column=f"{cell.column} outer",
                config=config(rows[cell.row], *where, "outer"),
                printed={},
            )
            for cell in inner
        ]
    note = (
        "inner: every round of the paper visits all stages, so they come again; its numbers are of this "
        "order. outer: each stage has all its rounds before the next and its data are gone then: only what "
        "is forgotten here is forgotten for good"
    )
    return item(
        "order",
        "Ours: order of the stages",
        "a_sel",
        tuple(both_orders),
        baseline="GLDP full",
        note=note,
        picture="stages",
    )


def _settings() -> Item:
    """Return G-X2: the runs of table 4 with what the paper leaves open varied, one setting at a time.

    The grids are in docs/papers/gldp.md §9 and A4, and LP's forms in §4. Table 4 shows what leaving a term
    out costs. The t of 30 local epochs are those of the body.
    """
    varied: dict[str, dict[str, Argument]] = {
        f"lambda={lam:g}": {"lam": lam} for lam in (0.0, 0.25, 0.75, 1.0)
    }
    varied |= {f"beta={beta:g}": {"beta": beta} for beta in (0.0, 0.1, 0.9, 1.0)}
    varied |= {f"lp={form}": {"lp": form} for form in ("feature_softmax_class", "logits", "l1", "mse")}
    varied |= {"gp=per_sample": {"gp": "per_sample"}}
    varied |= {f"temperature={value:g}": {"temperature": value} for value in (0.5, 2.0)}
    varied |= {f"t={t:g}": {"body_epochs": t, "head_epochs": 30.0 - t} for t in (1.0, 5.0, 14.0)}
    rows = {
        "GLDP full": ABLATION["GLDP full"],
        **{row: Way("gldp", {**ALTERNATING, **args}) for row, args in varied.items()},
    }
    table = []
    for data, split, factor in HALF:
        for metric in ("A_glo", "A_sel"):
            asked = printed_at("Table 4", metric, data, split, factor)
            for row, way in rows.items():
                printed = {**asked, "method": IN_TABLE_4[row]} if row in IN_TABLE_4 else {}
                column = f"{data} {split} IF{factor} {metric}"
                table.append(Cell(row, column, config(way, data, split, factor), printed, MEASURED[metric]))
    note = (
        "the default: lambda=0.5, beta=0.5, lp=feature_softmax_sample, gp=class_mean, temperature=1, t=10 of "
        "30 epochs on the "
        "body. All answer by LP, where the paper's full A_glo is GP's for CIFAR-10 and LP's for CIFAR-100"
    )
    return item(
        "settings", "Ours: one setting at a time", "a_glo", tuple(table), baseline="GLDP full", note=note
    )


ITEMS = (
    item(
        "table1",
        "Local accuracy, one stage",
        "a_loc",
        cells("Table 1", "A_loc", TABLE_1, METHODS),
        claims=gldp_claims.leads("A_loc", TABLE_1, METHODS),
    ),
    item(
        "table2",
        "Global accuracy, five stages",
        "a_glo",
        cells("Table 2", "A_glo", TABLE_2, ALL),
        claims=gldp_claims.leads("A_glo", TABLE_2, ALL),
        note=f"{HEADS}. {FEDIC_HAS}",
    ),
    item(
        "table3",
        "Local accuracy, five stages",
        "a_loc",
        cells("Table 3", "A_loc", TABLE_3, METHODS),
        claims=gldp_claims.leads("A_loc", TABLE_3, METHODS),
    ),
    item(
        "table4-global",
        "Without one of the terms, A_glo",
        "a_glo",
        cells("Table 4", "A_glo", HALF, ABLATION),
        baseline="GLDP full",
        note=ABLATED,
    ),
    _selected(),
    _figure_3(),
    _figure_4(),
    _claims(),
    _order(),
    _settings(),
    decisive.ITEM,
)
