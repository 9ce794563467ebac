"""How every figure looks: colours, markers, placement, text, and SVG that is reproducible byte for byte.

The colours are those of Okabe and Ito, which colour-blind readers can distinguish; after the last colour the
markers change. Figures are drawn without pyplot, so drawing needs no display and changes no global state.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import matplotlib as mpl
import matplotlib.style
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter

from raffed.results.text import visible

from ..runs.comparable import MARK

MARKERS = "osD^vPX*<>ph"


class Theme(NamedTuple):
    """The colours of a figure on a light or a dark background."""

    paper: str
    ink: str
    grid: str
    colours: tuple[str, ...]
    more: tuple[str, ...]  # Further colours, for classes, of which ten must be distinguishable.


LIGHT = Theme(
    "#ffffff",
    "#1c2127",
    "#e3e6ea",
    ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#5b6470"),
    ("#6a3d9a", "#8a1c1c", "#8fbc1e"),
)


DARK = Theme(
    "#161a1f",
    "#e4e7eb",
    "#2d333b",
    ("#4c9fe0", "#f0813a", "#2fc497", "#e39cc6", "#f5b942", "#9bd6fa", "#a9b2bd"),
    ("#a584dd", "#cf5b5b", "#c3e35a"),
)


def place(figure: Figure, left: float, bottom: float, width: float, height: float) -> Axes:
    """Place axes, in inches.

    Fixed margins save time, because matplotlib's automatic layouts draw everything twice.
    """
    whole = figure.get_size_inches()
    axes: Axes = figure.add_axes((left / whole[0], bottom / whole[1], width / whole[0], height / whole[1]))
    return axes


def dress(axes: Axes, theme: Theme, *, grid: bool) -> None:
    # Ticks are made when they are first drawn, outside `style`, so the axes must know how they look.
    axes.tick_params(length=0, colors=theme.ink)
    if grid:
        axes.grid(visible=True, color=theme.grid, linewidth=0.8)


def look(style: int, theme: Theme) -> tuple[str, str, str]:
    colours = len(theme.colours)
    return (
        theme.colours[style % colours],
        MARKERS[style % len(MARKERS)],
        "--" if style // colours % 2 else "-",
    )


def class_look(label: int, theme: Theme) -> tuple[str, str]:
    """Return the colour and the marker of a class. There are ten of each."""
    colours = theme.colours + theme.more
    return colours[label % len(colours)], MARKERS[label % len(colours)]


def spread(ends: Sequence[float], gap: float) -> list[float]:
    """Return places near `ends`, in the same order and at least `gap` apart.

    They lie within [0, 1] if they fit there.
    """
    order = sorted(range(len(ends)), key=ends.__getitem__)
    places = [0.0] * len(ends)
    floor = 0.0
    for i in order:
        places[i] = floor = max(ends[i], floor)
        floor += gap
    ceiling = 1.0
    for i in reversed(order):
        places[i] = min(places[i], ceiling)
        ceiling = places[i] - gap
    return places


def plain_decades(axis: Axis) -> None:
    """Label a logarithmic axis with powers of ten as plain numbers, without labels between them.

    matplotlib would write them in TeX, which these figures do not interpret.
    """
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())


def svg(figure: Figure) -> str:
    """Return the figure as SVG text, reproducible byte for byte."""
    settings: Any = {"svg.hashsalt": "raffed", "svg.fonttype": "none", "text.parse_math": False}
    with mpl.style.context(["default", settings]), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph")  # the browser has fonts of its own
        buffer = io.StringIO()
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    # Hundredths of a point are enough for coordinates; what is written stays as it is.
    return re.sub(r"<[^<>]*>", lambda tag: re.sub(r"(\d\.\d\d)\d+", r"\1", tag[0]), buffer.getvalue())


def in_the_dark(drawing: str) -> str:
    """Return the SVG of a figure drawn with LIGHT, in the colours of DARK."""
    dark = _light_to_dark()
    return re.sub("#[0-9a-f]{6}", lambda match: dark.get(match[0], match[0]), drawing)


def in_both_schemes(drawing: str) -> str:
    """Return the SVG of a figure drawn with LIGHT that has the colours of DARK where the reader prefers them.

    This is for a file that a page shows as an image. Browsers ask the page, or the system, for the scheme.
    """
    rules = [
        f'[style*="{kind}: {light}"]{{{kind}:{dark}!important}}'
        for light, dark in _light_to_dark().items()
        for kind in ("fill", "stroke")
        if f"{kind}: {light}" in drawing
    ]
    sheet = f"<style>@media (prefers-color-scheme: dark){{{''.join(rules)}}}</style>"
    return re.sub("(<svg [^>]*>)", lambda match: f"{match[0]}\n{sheet}", drawing, count=1)


def _light_to_dark() -> dict[str, str]:
    light, dark = (
        (theme.paper, theme.ink, theme.grid, *theme.colours, *theme.more) for theme in (LIGHT, DARK)
    )
    return dict(zip(light, dark, strict=True))


@contextmanager
def style(theme: Theme) -> Iterator[None]:
    settings: Any = {
        "font.size": 10,
        "axes.titlesize": 11,
        "axes.titleweight": "bold",
        "text.parse_math": False,
        "figure.facecolor": theme.paper,
        "axes.facecolor": theme.paper,
        "savefig.facecolor": theme.paper,
        "text.color": theme.ink,
        "axes.labelcolor": theme.ink,
        "axes.edgecolor": theme.grid,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.axisbelow": True,
    }
    with mpl.style.context(["default", settings]):  # whatever the user's own settings are
        yield


def percent(value: float, _: object) -> str:
    return f"{100 * value:g} %"


def short(text: str, length: int) -> str:
    """Return a text with at most so many characters. The mark of what is not comparable stays at its end."""
    shown = visible(text)
    if len(shown) <= length:
        return shown
    end = MARK if shown.endswith(MARK) else ""
    return f"{shown[: length - 1 - len(end)]}…{end}"
