"""Make pages and their parts with Jinja2 from the templates in the folder beside this file.

A report is one file that needs no network. It suits light and dark, narrow and wide screens. The engine
escapes every value. Only `Markup`, which the templates make themselves, is not escaped.

The script of a page is made of the files of the templates' folder that end in .js, and holds nothing of a
run. A browser runs it because the page names its hash, and runs nothing else. Without it the page shows
pictures.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from markupsafe import Markup, escape

from .cells import for_html

if TYPE_CHECKING:
    from jinja2 import Environment

Value = TypeVar("Value")

TEMPLATES = Path(__file__).parent / "templates"
SCRIPTS = ("dom", "scale", "marks", "hands", "chart", "charts", "tables", "folds", "page")


class Picture(NamedTuple):
    """A figure for a page.

    Attributes:
        light: the SVG for a light colour scheme, in base64.
        dark: the SVG for a dark colour scheme, in base64.
        caption: the text below the figure.
        alt: a description for readers who cannot see the figure.
        css: the class of the <figure> element.
        charts: what the script draws in the place of the picture: charts as plain JSON, or none.
    """

    light: str
    dark: str
    caption: str
    alt: str
    css: str = ""
    charts: Sequence[Mapping[str, object]] = ()


def picture(
    light: str,
    dark: str,
    caption: str,
    alt: str,
    css: str = "",
    charts: Sequence[Mapping[str, object]] = (),
) -> Picture:
    """Return a figure made from the texts of its two SVGs."""
    first, second = (base64.b64encode(svg.encode()).decode() for svg in (light, dark))
    return Picture(first, second, caption, alt, css, charts)


def block(title: str, values: Mapping[str, Value]) -> tuple[str, list[tuple[str, Value]]]:
    """Return a title and the rows of its table of names and values, for the macro `pairs`."""
    return title, list(values.items()) if values else []


def render(template: str, **values: object) -> Markup:
    """Return the HTML that a template of this package makes of `values`."""
    return Markup(_engine().get_template(template).render(values))


def sentence(text: str) -> str:
    """Return a note with a capital, unless it begins with the name of a measure, and with a full stop."""
    first = text.split(" ", 1)[0].rstrip(",:;")
    text = text[:1].upper() + text[1:] if first.isalpha() else text
    return text if not text or text.endswith((".", "!", "?")) else text + "."


def code(text: object) -> Markup:
    """Return a text, escaped, in which what stands in backquotes is shown as code."""
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(for_html(text))))


@cache
def script() -> str:
    """Return the script of a page: the files of SCRIPTS, none of whose names is seen from outside."""
    parts = ((TEMPLATES / f"{name}.js").read_text(encoding="utf-8") for name in SCRIPTS)
    return "\n".join(['(() => {\n"use strict";', *parts, "})();"])


@cache
def script_hash() -> str:
    """Return the hash of the script, as a Content-Security-Policy names it."""
    return "sha256-" + base64.b64encode(hashlib.sha256(script().encode()).digest()).decode()


@cache
def _engine() -> Environment:
    """Return the template engine.

    Jinja2 is imported when the first page is made, to keep other commands fast.

    A value that a template needs and does not get is an error.
    """
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    engine = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=for_html,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    engine.filters |= {"code": code, "sentence": lambda text: code(sentence(text))}
    engine.globals.update(script=Markup(script()), script_hash=script_hash(), reload=0)
    return engine
