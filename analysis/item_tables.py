"""The tables of a reproduced item: ours against the paper's, and what is claimed of it."""

from __future__ import annotations

from .reproduction.bands import published_tables
from .reproduction.claims import claim_table
from .reproduction.item_runs import Reproduction
from .reproduction.item_views import has_table
from .reproduction.verdicts import paper_table
from .runs.load import Runs
from .studies.painters import check_table
from .studies.study import load_studies, values_table
from .table import TextTable, as_markdown


def item_tables(item: Reproduction, runs: Runs) -> tuple[TextTable, TextTable | None]:
    """Return the table of an item, and that of its claims; None without claims.

    If the item is only a study, its table is that of its claims, or of its values.
    """
    claims = None if runs.runs.empty else claim_table(item, runs)
    if has_table(item):
        return paper_table(item, runs), claims
    made = load_studies(item)
    return check_table(made) or values_table(made[0]), claims


def item_markdown(item: Reproduction, runs: Runs) -> str:
    """Return the tables of an item as Markdown, below its title."""
    table, claims = item_tables(item, runs)
    said = "" if claims is None else f"\n{as_markdown(claims)}"
    beside = "".join(
        f"\n{title}:\n\n{as_markdown(one)}" for title, one in published_tables(item, runs).items()
    )
    return f"{item.title}\n\n{as_markdown(table)}{said}{beside}"
