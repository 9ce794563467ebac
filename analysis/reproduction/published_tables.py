"""Say what is known of a table that other people printed: facts, defects, and rows that are absent."""

from __future__ import annotations

from ..table import TextTable
from .item_runs import Reproduction

FACTS = {"source": "Source", "protocol": "Protocol", "needs": "Needs", "cost": "Cost"}


def published_tables(item: Reproduction) -> dict[str, TextTable]:
    """Return the tables that stand beside one that other people printed."""
    about = item.about.get("published")
    if not about:
        return {}
    facts = [[what, str(about[key])] for key, what in FACTS.items()]
    facts += [["Not to be had here", str(lack)] for lack in about["lacks"]]
    defects = [[str(defect)] for defect in about["defects"]]
    absent = [[str(row), str(why)] for row, why in about["absent"].items()]
    tables = {
        "What is printed": TextTable(["What", "Stated"], facts, frozenset({"What", "Stated"})),
        "What is wrong with the printed table": TextTable(["Defect"], defects, frozenset({"Defect"})),
        "Rows that are absent": TextTable(["Row", "Why"], absent, frozenset({"Row", "Why"})),
    }
    return {title: table for title, table in tables.items() if table.rows}
