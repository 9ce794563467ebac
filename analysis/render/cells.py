"""Make any name safe for the format in which it is shown. Each format has one function.

Names of runs, data sets, classes and methods come from folders that anyone may have made. In a table such a
name could act as a spreadsheet formula, an escape sequence of a terminal, an HTML tag, a LaTeX command or a
Markdown link.
"""

from __future__ import annotations

import html
import re

from markupsafe import Markup

from raffed.results.text import visible, visible_lines

from .latex_characters import LATEX

_NUMBER = re.compile(r"[+-]?\d+(\.\d*)?([eE][+-]?\d+)?")
_CODE = r"(`[\w .=(),+-]+`)"
_FORMULA = "=+-@＝＋－＠"  # a spreadsheet reads a cell that begins with one of these as a formula


def for_csv(text: str) -> str:
    """Return a cell that no spreadsheet computes: an apostrophe precedes what looks like a formula.

    Numbers stay as they are.
    """
    if _NUMBER.fullmatch(text):
        return text
    # Some spreadsheets split cells at these characters.
    plain = re.sub(rf"([;|])(?=[{re.escape(_FORMULA)}])", r"\1 ", visible(text))
    return f"'{plain}" if text.lstrip()[:1] in tuple(_FORMULA) or text[:1] in ("\t", "\r", "\n") else plain


def for_html(value: object) -> str:
    """Return the text that a page shows for a value. The template engine escapes it afterwards.

    Line breaks and tabs stay, because HTML shows them as spaces. Markup that the templates made is not
    changed.
    """
    text = value if isinstance(value, Markup) else str(value)
    if isinstance(text, Markup) or text.isprintable():
        return text
    return visible_lines(text)


def for_markdown(text: str) -> str:
    """Return a cell of a GitHub table in which nothing is read as Markdown, HTML or a link, but for plain
    words in backquotes, which are code.
    """
    plain = html.escape(visible(" ".join(text.split())), quote=False)

    def escaped(part: str) -> str:
        return re.sub(r"([\\`*_\[\]|~$])", r"\\\1", part).replace("://", ":\\//").replace("www.", "www\\.")

    return "".join(
        part if number % 2 else escaped(part) for number, part in enumerate(re.split(_CODE, plain))
    )


def for_latex(text: str) -> str:
    r"""Return a cell of a LaTeX tabular in which nothing is read as a command.

    LaTeX reads a bracket or a star after `\\` as an option of that line break, so braces protect both.
    """
    plain = visible(" ".join(text.split()))
    escaped = "".join(LATEX.get(letter, letter) for letter in plain)
    return f"{{{escaped[0]}}}{escaped[1:]}" if escaped[:1] in ("[", "*") and escaped else escaped
