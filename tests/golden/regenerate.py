"""The wire table: per method every field that goes down, goes up, and is kept on either side, from one real
round.

`python -m tests.golden.regenerate` writes tests/golden/wire.txt. A change there is a change of what leaves a
client: it is a decision, seen in review, and never a side effect.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from raffed.core.messages import Summable
from raffed.core.params import Params, Record, fields_of
from raffed.core.server import replied
from raffed.methods import METHODS
from tests.tiny import CLASSES, FEATURES, WIDTH, experienced

WIRE = Path(__file__).parent / "wire.txt"
P = (FEATURES + 1) * WIDTH + 2 * WIDTH + (WIDTH + 1) * CLASSES  # Linear, BatchNorm, head: 25 + 10 + 18
B = 2 * WIDTH  # running mean and variance
P_HEAD = (WIDTH + 1) * CLASSES
_COUNTS = {P: "P", P - P_HEAD: "P_body", P_HEAD: "P_head", B: "b"}
_SIDES = {CLASSES: "C", WIDTH: "D"}
HEAD = f"""\
What a client and the server send and keep, by method, after the third round of four clients (tests/golden/regenerate.py).
Shapes: P = {P} weights, b = {B} BatchNorm statistics, C = {CLASSES} classes, D = {WIDTH} features. Bytes: sent 4 a number
and 1 a flag; kept as stored. Client 1, whose rows these are, holds 2 classes.
"""


def told(field: str, value: Tensor, held: int, named: bool) -> tuple[str, str, int, int]:
    """A field of a message of rows: of the C rows those of the classes that the client holds; a name of
    the message is free.
    """
    per = value[0].numel() * 4
    shape = ", ".join(["held", *(str(_SIDES.get(side, side)) for side in value.shape[1:])])
    kind = str(value.dtype).removeprefix("torch.")
    return field, f"[{shape}] {kind}", 0 if named else held * per, value.numel() * value.element_size()


def rows(path: str, value: Any) -> Iterator[tuple[str, str, int, int]]:
    """(path, shape, bytes if sent, bytes if kept) of every field, walked here and not by the code under
    test.
    """
    if isinstance(value, Params):
        names = [t for t in value.tensors.values() if t.numel()]
        n = sum(t.numel() for t in names)
        if n:
            yield path, f"[{_COUNTS.get(n, n)}]", 4 * n, sum(t.numel() * t.element_size() for t in names)
    elif isinstance(value, Tensor):
        shape = ", ".join(str(_SIDES.get(side, side)) for side in value.shape)
        sent = value.numel() * (1 if value.dtype == torch.bool else 4)
        yield (
            path,
            f"[{shape}] {str(value.dtype).removeprefix('torch.')}",
            sent,
            value.numel() * value.element_size(),
        )
    elif isinstance(value, Summable) and value.rows:
        fields = fields_of(value)
        held = sum(1 for number in fields[value.rows].tolist() if number)
        for name, inner in fields.items():
            yield told(f"{path}.{type(value).__name__}.{name}", inner, held, name in value.labels)
    elif isinstance(value, Record):
        for name, inner in fields_of(value).items():
            yield from rows(f"{path}.{type(value).__name__}.{name}" if path else name, inner)
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from rows(key if path == "slots" else f"{path}.{key}", inner)
    elif value is not None:
        yield path, type(value).__name__, 4, 8


@functools.cache
def section(name: str) -> tuple[str, ...]:
    """One method's part of the table, in which no length of training can be seen."""
    tiny = experienced(name, norm=True)
    broadcast = tiny.server.broadcast()
    down = replied(broadcast, 1)
    done = tiny.step([0, 1, 2, 3])[1]
    lines = [f"{name}  ({tiny.method.name})"]
    sides = (
        ("down" if down is broadcast else "down, its own", down, 2),
        ("up", done.upload, 2),
        ("client keeps", done.client_state, 3),
        ("server keeps", tiny.server, 3),
    )
    for side, record, column in sides:
        found = [row for row in rows("", record) if row[0] != "round"]
        total = sum(row[column] for row in found)
        lines.append(f"  {side:<14}{'' if found else 'nothing':<58}{total:>6} B")
        lines += [f"    {row[0]:<44}{row[1]:<24}{row[column]:>6} B" for row in found]
    return tuple(lines)


def table() -> str:
    """The whole file."""
    return "\n".join([HEAD, *("\n".join([*section(name), ""]) for name in METHODS)])


if __name__ == "__main__":
    torch.set_num_threads(1)
    WIRE.write_text(table())
    print(f"wrote {WIRE} ({len(METHODS)} methods)")
