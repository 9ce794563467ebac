"""docs/images/speed.svg, README's chart, drawn from the first table of docs/measured.md.

`python -m tests.docs.speed_chart` writes it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import Path
from xml.sax.saxutils import escape

DOCS = Path(__file__).resolve().parents[2] / "docs"
CHART = DOCS / "images" / "speed.svg"
SHOWN = ("W1", "W2", "W3")
LEFT, RIGHT, WIDTH, ROW, GAP, TOP = 92, 760, 830, 21, 44, 40
LOW, HIGH = 0.5, 20.0  # ends of the logarithmic axis
STYLE = """
    .page { fill: #ffffff; } text { fill: #1c2b2d; } .bar { fill: #b0bec5; } .own { fill: #00897b; }
    .note { fill: #455a64; font-size: 13px; } .line { stroke: #1c2b2d; stroke-dasharray: 4 4; }
    @media (prefers-color-scheme: dark) {
      .page { fill: #14171c; } text { fill: #e6eceb; } .bar { fill: #546e7a; } .own { fill: #4db6ac; }
      .note { fill: #b0bec5; } .line { stroke: #e6eceb; }
    }
  """


def measured() -> dict[str, dict[str, str]]:
    """Return workload, with its description → simulator → time of a round over that of the bare loop."""
    lines = (DOCS / "measured.md").read_text(encoding="utf-8").splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith("| |"))
    titles = [one.strip() for one in lines[first].strip("|").split("|")]
    rows = {}
    for line in lines[first + 2 :]:
        name, *cells = [one.strip() for one in line.strip("|").split("|")]
        if name[:2] not in SHOWN:
            break
        ratios = {
            title: re.fullmatch(r"[\d.]+, ([\d.]+)", cell)
            for title, cell in zip(titles[1:], cells, strict=True)
        }
        del ratios["compiled convolutions"]
        rows[name] = {title.partition(",")[0]: found[1] for title, found in ratios.items() if found}
    return rows


def drawn() -> str:
    """Return the chart as SVG, which loads nothing and follows the reader's choice of light or dark."""
    rows, parts, y = measured(), [], TOP
    for name, ratios in rows.items():
        parts.append(f'<text x="{LEFT}" y="{y}" font-weight="600">{escape(name)}</text>')
        parts += _bars(ratios, y + 12)
        y += GAP + ROW * len(ratios)
    height = y + 4
    title = "Seconds of a round, in units of a bare PyTorch loop with the same steps (shorter is faster)"
    notes = ((_place(1.0), "middle", "1 = bare loop"), (RIGHT, "end", "logarithmic axis, shorter is faster"))
    parts += [
        f'<text class="note" x="{x:.0f}" y="{height - 10}" text-anchor="{anchor}">{text}</text>'
        for x, anchor, text in notes
    ]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-size="14" '
        f'font-family="system-ui, sans-serif">\n  <title>{title}</title>\n  <style>{STYLE}</style>\n'
        f'  <rect class="page" width="{WIDTH}" height="{height}" rx="8"/>\n  '
        + "\n  ".join(parts)
        + "\n</svg>\n"
    )


def _bars(ratios: Mapping[str, str], y: int) -> list[str]:
    one = _place(1.0)
    parts = []
    for number, (name, ratio) in enumerate(ratios.items()):
        top, end = y + number * ROW, _place(float(ratio))
        kind, label = ("own" if name == "raffed" else "bar"), (one if end < one else end) + 6
        parts += [
            f'<text x="{LEFT - 8}" y="{top + 13}" text-anchor="end">{escape(name)}</text>',
            f'<rect class="{kind}" x="{LEFT}" y="{top}" width="{end - LEFT:.0f}" height="{ROW - 5}" rx="2"/>',
            f'<text class="note" x="{label:.0f}" y="{top + 13}">{ratio}</text>',
        ]
    bottom = y + ROW * len(ratios)
    return [*parts, f'<line class="line" x1="{one:.0f}" y1="{y - 4}" x2="{one:.0f}" y2="{bottom}"/>']


def _place(ratio: float) -> float:
    return LEFT + (RIGHT - LEFT) * math.log(ratio / LOW) / math.log(HIGH / LOW)


if __name__ == "__main__":
    CHART.write_text(drawn(), encoding="utf-8")
