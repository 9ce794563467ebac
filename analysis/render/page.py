"""Make pages and their parts with Jinja2 from the templates in the folder beside this file.

A report is one file that needs no network. It suits light and dark, narrow and wide screens. The engine
escapes every value. Only `Markup`, which the templates make themselves, is not escaped.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from markupsafe import Markup

from .cells import for_html

if TYPE_CHECKING:
    from jinja2 import Environment

Value = TypeVar("Value")


class Picture(NamedTuple):
    """A figure for a page.

    Attributes:
        light: the SVG for a light colour scheme, in base64.
        dark: the SVG for a dark colour scheme, in base64.
        caption: the text below the figure.
        alt: a description for readers who cannot see the figure.
        css: the class of the <figure> element.
    """

    light: str
    dark: str
    caption: str
    alt: str
    css: str = ""


def picture(light: str, dark: str, caption: str, alt: str, css: str = "") -> Picture:
    """Return a figure made from the texts of its two SVGs."""
    first, second = (base64.b64encode(svg.encode()).decode() for svg in (light, dark))
    return Picture(first, second, caption, alt, css)


def block(title: str, values: Mapping[str, Value]) -> tuple[str, list[tuple[str, Value]]]:
    """Return a title and the rows of its table of names and values, for the macro `pairs`."""
    return title, list(values.items()) if values else []


def render(template: str, **values: object) -> Markup:
    """Return the HTML that a template of this package makes of `values`."""
    return Markup(_engine().get_template(template).render(values))


@cache
def _engine() -> Environment:
    """Return the template engine.

    Jinja2 is imported when the first page is made, to keep other commands fast.

    A value that a template needs and does not get is an error.
    """
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    return Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=for_html,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
