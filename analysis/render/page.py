"""The HTML around a report: one file, no network, light and dark, narrow and wide. Every text is escaped
here.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping

from .cells import for_html

CSS = """
:root { color-scheme: light dark; --paper: #ffffff; --ink: #1c2127; --soft: #5b6470; --line: #e3e6ea; --tint: #f6f7f9;
  --mark: #0072b2; --warn: #b34700; }
@media (prefers-color-scheme: dark) {
  :root { --paper: #161a1f; --ink: #e4e7eb; --soft: #a9b2bd; --line: #2d333b; --tint: #1d2228; --mark: #6cb4ee; --warn: #f0813a; }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink); font: 16px/1.55 system-ui, "Segoe UI", Roboto, sans-serif; }
main { max-width: 1240px; margin: 0 auto; padding: 2.2rem 1.2rem 4rem; }
h1 { font-size: 1.7rem; line-height: 1.2; margin: 0 0 .3rem; }
h2 { font-size: 1.25rem; margin: 2.6rem 0 .7rem; padding-top: 1.1rem; border-top: 1px solid var(--line); }
h3 { font-size: 1rem; margin: 1.5rem 0 .4rem; }
p, ul { margin: .4rem 0 .8rem; max-width: 75ch; }
.soft, figcaption { color: var(--soft); font-size: .88rem; }
.facts { display: flex; flex-wrap: wrap; gap: .3rem 1.6rem; margin: 0; padding: 0; list-style: none; color: var(--soft); }
.facts b { color: var(--ink); font-variant-numeric: tabular-nums; }
.notice { border-left: 4px solid var(--warn); background: var(--tint); padding: .6rem 1rem; margin: 1.2rem 0; }
.notice ul { padding-left: 1.1rem; margin: .3rem 0; max-width: none; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: .9rem; font-variant-numeric: tabular-nums; }
.summary { width: 100%; border-collapse: separate; border-spacing: 0; }
th, td { text-align: left; vertical-align: top; padding: .42rem .5rem; border-bottom: 1px solid var(--line); }
thead th { color: var(--soft); font-weight: 600; vertical-align: bottom; }
.summary .number { white-space: nowrap; }
.summary th.number { white-space: normal; }
.summary tr > :last-child { min-width: 6.5rem; }
.summary td:first-child { min-width: 8rem; }
.summary tr > :first-child { position: sticky; left: 0; background: var(--paper); }
.number { text-align: right; }
td strong { color: var(--mark); }
.figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 430px), 1fr)); gap: 1.2rem; }
figure { margin: 0; min-width: 0; }
figure img { display: block; width: 100%; height: auto; }
.natural img { width: auto; max-width: 100%; }
.classes { overflow-x: auto; }
.classes img { width: auto; min-width: 34rem; max-width: 100%; }
details { border: 1px solid var(--line); border-radius: 6px; margin: .5rem 0; background: var(--tint); }
summary { cursor: pointer; padding: .55rem .9rem; overflow-wrap: anywhere; }
details > div { padding: 0 .9rem .9rem; display: grid; gap: .4rem 2rem;
  grid-template-columns: repeat(auto-fit, minmax(min(100%, 320px), 1fr)); }
.pairs th { font-weight: 400; color: var(--soft); padding: .16rem .9rem .16rem 0; border: 0; min-width: 11rem; }
.pairs td { padding: .16rem 0; border: 0; }
.pairs th, .pairs td, code, h2 { overflow-wrap: anywhere; }
.pairs td, code { font: .84rem/1.5 ui-monospace, "DejaVu Sans Mono", monospace; }
@media print { details > div { display: block; } h2 { break-after: avoid; } figure { break-inside: avoid; } }
"""


def page(title: str, body: str) -> str:
    """A whole document. `body` is HTML already."""
    # No script may run and nothing may be fetched, whatever a configuration contains.
    policy = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{text(title)}</title>\n<style>{CSS}</style>\n</head>\n<body>\n<main>\n{body}</main>\n</body>\n</html>\n"
    )


def text(value: object) -> str:
    """`value` as text that HTML shows as it is."""
    return for_html(str(value))


def picture(light: str, dark: str, caption: str, alt: str, css: str = "") -> str:
    """A figure of two embedded SVGs; the reader's colour scheme chooses."""
    sources = [base64.b64encode(svg.encode()).decode() for svg in (dark, light)]
    return (
        f'<figure class="{css}"><picture><source media="(prefers-color-scheme: dark)" '
        f'srcset="data:image/svg+xml;base64,{sources[0]}">'
        f'<img src="data:image/svg+xml;base64,{sources[1]}" alt="{text(alt)}"></picture>'
        f"<figcaption>{text(caption)}</figcaption></figure>\n"
    )


def pairs(title: str, values: Mapping[str, object]) -> str:
    """A titled table of names and values; nothing if there are none."""
    if not values:
        return ""
    rows = "".join(f'<tr><th scope="row">{text(k)}</th><td>{text(v)}</td></tr>' for k, v in values.items())
    return f'<section><h3>{text(title)}</h3><table class="pairs">{rows}</table></section>'


def notice(title: str, lines: Iterable[tuple[str, str]]) -> str:
    """A marked list of (what, why); nothing if it is empty."""
    items = "".join(f"<li><code>{text(what)}</code>: {text(why)}</li>" for what, why in lines)
    return f'<div class="notice" role="note"><b>{text(title)}</b><ul>{items}</ul></div>\n' if items else ""
