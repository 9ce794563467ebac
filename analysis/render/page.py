"""Pages and their parts, made by Jinja2 from the templates in the folder beside this file.

A report is one file that needs no network; it suits light and dark, narrow and wide screens. The engine
escapes every value. Only `Markup`, which the templates make themselves, passes as it is.
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
    """A figure for a page: two SVGs in base64, of which the reader's colour scheme chooses one.

    `alt` describes the figure to those who cannot see it; `css` is the class of the <figure>.
    """

    light: str
    dark: str
    caption: str
    alt: str
    css: str = ""


def picture(light: str, dark: str, caption: str, alt: str, css: str = "") -> Picture:
    """A figure from the texts of its two SVGs."""
    first, second = (base64.b64encode(svg.encode()).decode() for svg in (light, dark))
    return Picture(first, second, caption, alt, css)


def block(title: str, values: Mapping[str, Value]) -> tuple[str, list[tuple[str, Value]]]:
    """A title with the names and values of its table, for the macro `pairs`."""
    return title, list(values.items()) if values else []


def render(template: str, **values: object) -> Markup:
    """The HTML that a template of this package makes of `values`."""
    return Markup(_engine().get_template(template).render(values))


@cache
def _engine() -> Environment:
    """Jinja2, imported when the first page is made. A name that a template lacks is an error."""
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
