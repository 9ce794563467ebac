"""Any name made safe for where it is shown: one function a format.

Names of runs, data sets, classes and methods come from folders that anyone may have made. In a table they may
be commands: a formula of a spreadsheet, an escape sequence of a terminal, a tag of HTML, a command of LaTeX,
a link of Markdown.
"""

from __future__ import annotations

import html
import re

from markupsafe import Markup

_LATEX = {letter: f"\\{letter}" for letter in "#$%&_{}"} | {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    "–": "--",
    "Δ": r"$\Delta$",
    "μ": r"$\mu$",
    "α": r"$\alpha$",
    "λ": r"$\lambda$",
    "τ": r"$\tau$",
    "−": "--",
    "×": r"$\times$",
    "≥": r"$\geq$",
    "≤": r"$\leq$",
    "≠": r"$\neq$",
    "…": r"\ldots{}",
}
_NUMBER = re.compile(r"[+-]?\d+(\.\d*)?([eE][+-]?\d+)?")
_FORMULA = "=+-@＝＋－＠"  # a spreadsheet reads a cell that begins with one of these as a formula


def for_terminal(text: str) -> str:
    r"""What a terminal would obey, hide or reorder written as its code (`\x1b`);
    raffed/results/visible.py does the same.
    """
    return "".join(letter if letter.isprintable() else _code(letter) for letter in text)


def for_csv(text: str) -> str:
    """A cell that no spreadsheet computes: what begins like a formula gets an apostrophe before it.
    Numbers stay numbers.
    """
    if _NUMBER.fullmatch(text):
        return text
    plain = re.sub(
        rf"([;|])(?=[{re.escape(_FORMULA)}])", r"\1 ", for_terminal(text)
    )  # some spreadsheets cut cells at these
    return f"'{plain}" if text.lstrip()[:1] in tuple(_FORMULA) or text[:1] in ("\t", "\r", "\n") else plain


def for_html(value: object) -> str:
    """What the engine of the pages is given to escape: text as a page shows it. Its own markup stays.

    Line breaks and tabs stay too, because HTML shows them as spaces.
    """
    text = value if isinstance(value, Markup) else str(value)
    if isinstance(text, Markup) or text.isprintable():
        return text
    return "".join(letter if letter in "\n\t" else for_terminal(letter) for letter in text)


def for_markdown(text: str) -> str:
    """A cell of a GitHub table: nothing in it is Markdown, HTML or a link."""
    plain = html.escape(for_terminal(" ".join(text.split())), quote=False)
    return re.sub(r"([\\`*_\[\]|~$])", r"\\\1", plain).replace("://", ":\\//").replace("www.", "www\\.")


def for_latex(text: str) -> str:
    r"""A cell of a tabular: no command, and no option of the `\\` that ends the line before it."""
    plain = for_terminal(" ".join(text.split()))
    escaped = "".join(_LATEX.get(letter, letter) for letter in plain)
    return f"{{{escaped[0]}}}{escaped[1:]}" if escaped[:1] in ("[", "*") and escaped else escaped


def _code(letter: str) -> str:
    number = ord(letter)
    return (
        f"\\x{number:02x}"
        if number < 0x100
        else f"\\u{number:04x}"
        if number < 0x10000
        else f"\\U{number:08x}"
    )
