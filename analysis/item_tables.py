"""The tables of a reproduced item: ours against the paper's, and what is claimed of it."""

from __future__ import annotations

from .render.cells import for_markdown
from .reproduction.claims import claim_counts, claim_table
from .reproduction.differences_first import difference_matrix, first_sentence
from .reproduction.item_runs import Reproduction
from .reproduction.item_views import has_table
from .reproduction.matrix import matrix_of
from .reproduction.matrix_text import matrix_latex, matrix_markdown
from .reproduction.published_tables import published_tables
from .reproduction.term_strength import strength_view
from .reproduction.verdicts import paper_table
from .runs.load import Runs
from .studies import check_table, load_studies, values_table
from .table import TextTable, as_latex, as_markdown


def item_tables(item: Reproduction, runs: Runs) -> tuple[TextTable, TextTable | None]:
    """Return the table of an item, one line for each cell, and that of its claims; None without claims.

    If the item is only a study, its table is that of its claims, or of its values.
    """
    claims = None if runs.runs.empty else claim_table(item, runs)
    if has_table(item):
        return paper_table(item, runs), claims
    studies = load_studies(item)
    return check_table(studies) or values_table(studies[0]), claims


def item_markdown(item: Reproduction, runs: Runs) -> str:
    """Return an item as Markdown.

    Title, what its numbers say, differences, claims, the matrix method × column, and all numbers folded.
    """
    table, claims = item_tables(item, runs)
    if not has_table(item):
        return f"{item.title}\n\n{as_markdown(table)}"
    first, differences = first_sentence(item, runs), difference_matrix(item, runs)
    opening = f"{for_markdown(first)}\n\n" if first else ""
    if differences is not None:
        title = f"Differences to {item.about['baseline']}: ours, paired by seed, then the printed one"
        opening += f"{for_markdown(title)}:\n\n{as_markdown(differences)}\n"
    said = "" if claims is None else f"{claim_counts(item, runs)}.\n\n{as_markdown(claims)}\n"
    matrix = matrix_markdown(matrix_of(item, runs))
    beside = "".join(
        f"{title}:\n\n{as_markdown(extra)}\n"
        for title, extra in {**published_tables(item), **strength_view(item, runs).tables}.items()
    )
    fold = f"<details><summary>One line for each cell</summary>\n\n{as_markdown(table)}\n</details>\n"
    return f"{item.title}\n\n{opening}{said}{matrix}\n{beside}{fold}"


def item_latex(item: Reproduction, runs: Runs) -> str:
    """Return an item as a LaTeX tabular: the matrix method × column, or the table of a study."""
    if has_table(item):
        return matrix_latex(matrix_of(item, runs), item.title)
    return as_latex(item_tables(item, runs)[0])
