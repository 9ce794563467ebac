"""Damage as strangers and broken disks do it: bytes, and structures whose parts are something else."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

ODD_NUMBERS = [
    *(0, -1, 1, 2, 10**6, 10**9, 2**31, 2**63, -(2**63), 2**64, 10**30),
    *(0.0, -0.0, 0.5, 1e-320, 1e308, -1e308),
]
ODD_FLOATS = [float("nan"), float("inf"), -float("inf")]
ODD_TEXTS = [
    *("", " ", "..", "../../x", "/etc/passwd", "\x00", "\ud7ff", "é" * 50, "a" * 5000, "{}", "[]", "%s%n"),
    *("${HOME}", "nan", "1e999", "1_000", "０", "$(touch x)", "; rm -rf x", "<script>", "\n", "C:\\x"),
    "s3://b/x",
]
scalars: st.SearchStrategy[Any] = st.one_of(
    st.none(),
    st.booleans(),
    st.sampled_from(ODD_NUMBERS + ODD_FLOATS),
    st.sampled_from(ODD_TEXTS),
    st.integers(),
    st.floats(),
    st.text(max_size=12),
)
values: st.SearchStrategy[Any] = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4),
    max_leaves=8,
)


@st.composite
def changed(draw: st.DrawFn, whole: Any, most: int = 4) -> Any:
    """A copy of nested lists and dictionaries in which up to `most` places hold something else, are gone,
    or are there twice.
    """
    made = copy.deepcopy(whole)
    for _ in range(draw(st.integers(1, most))):
        holder, key = draw(st.sampled_from(_places(made) or [([made], 0)]))
        what = draw(st.sampled_from(["value", "value", "gone", "more", "deep"]))
        if what == "gone":
            holder.pop(key)
        elif what == "more" and isinstance(holder, list):
            holder.insert(key, copy.deepcopy(holder[key]))
        elif what == "more":
            holder[draw(st.text(max_size=8))] = copy.deepcopy(holder[key])
        elif what == "deep":
            holder[key] = f"@deep{draw(st.sampled_from([50, 100_000]))}@"
        else:
            holder[key] = draw(values)
    return made


def as_json(value: Any) -> bytes:
    """A value as JSON, NaN and lone surrogates included; its marks for lists within lists become as many
    brackets.
    """
    text = json.dumps(value, default=str)
    return re.sub(r'"@deep(\d+)@"', lambda m: "[" * int(m[1]) + "]" * int(m[1]), text).encode(
        "utf-8", errors="replace"
    )


def _places(node: Any, found: list[tuple[Any, Any]] | None = None, depth: int = 0) -> list[tuple[Any, Any]]:
    found = [] if found is None else found
    keys = node.keys() if isinstance(node, dict) else range(len(node)) if isinstance(node, list) else ()
    for key in list(keys):
        found.append((node, key))
        if depth < 30:
            _places(node[key], found, depth + 1)
    return found


@st.composite
def damaged(draw: st.DrawFn, whole: bytes) -> bytes:
    """A file with bits flipped, numbers replaced, a stretch cut out, doubled or filled, or its end
    missing.
    """
    raw = bytearray(whole)
    for _ in range(draw(st.integers(1, 6))):
        at = draw(st.integers(0, max(len(raw) - 1, 0)))
        length = draw(st.sampled_from([1, 1, 2, 4, 8, 64, 1000]))
        _DAMAGE[draw(st.sampled_from(sorted(_DAMAGE)))](raw, at, length, draw)
    return bytes(raw)


Damage = Callable[[bytearray, int, int, st.DrawFn], None]


def _flip(raw: bytearray, at: int, length: int, draw: st.DrawFn) -> None:
    if raw:
        raw[at] ^= 1 << draw(st.integers(0, 7))


def _fill(raw: bytearray, at: int, length: int, draw: st.DrawFn) -> None:
    byte = draw(st.sampled_from([b"\x00", b"\xff", b"\x7f", b"\x80"]))
    raw[at : at + length] = byte * min(length, len(raw) - at)


_DAMAGE: dict[str, Damage] = {
    "flip": _flip,
    "fill": _fill,
    "cut": lambda raw, at, length, draw: raw.__delitem__(slice(at, at + length)),
    "double": lambda raw, at, length, draw: raw.__setitem__(slice(at, at), raw[at : at + length]),
    "end": lambda raw, at, length, draw: raw.__delitem__(slice(at, None)),
    "insert": lambda raw, at, length, draw: raw.__setitem__(slice(at, at), draw(st.binary(max_size=16))),
}
