"""The record of benchmarks.method_cost, and the table that is made of it: docs/cost.md."""

from __future__ import annotations

import json
import statistics
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import TypedDict

from raffed.methods import METHODS

RECORD = Path(__file__).with_name("method_cost.json")
ANSWERS = Path(__file__).with_name("answers.json")  # of python -m benchmarks.scale --answers
PAGE = Path(__file__).resolve().parents[1] / "docs" / "cost.md"
LIMIT = 3.0  # times FedAvg, from which a method needs a profile
BASE = "fedavg"
WHY = {  # where the time of a method above the limit goes
    "fedfew": "every client trains and sends three models (K = 3).",
    "pfedme": "its algorithm takes 5 gradients on each batch (K = 5). A profile of W2 counted 300 backward "
    "passes where FedAvg had 60, and the passes through the network took four fifths of its time.",
}
WIDTH = 120


class _Setting(TypedDict, total=False):
    setting: str


class Row(_Setting):
    """What was measured of a method.

    `ratios` are its seconds of a round over FedAvg's in the same turn. `kept` are the bytes of a client's
    private state, and `up` and `down` those of a client's messages in a round. `note` says why a method was
    not measured, or is "". `setting` is what was changed for it and its FedAvg, if anything was.
    """

    ratios: list[float]
    seconds: list[float]
    kept: int
    up: int
    down: int
    note: str


class Record(TypedDict):
    """The benchmark's JSON."""

    workload: str
    quick: bool
    machine: dict[str, str]
    load: list[float]
    rows: dict[str, Row]


def paths(shape: str | None) -> tuple[Path, Path]:
    """Return where the record and the page of a workload are: of W2 without a shape."""
    ending = f"_{shape}" if shape else ""
    return RECORD.with_stem(RECORD.stem + ending), PAGE.with_stem(PAGE.stem + ending)


def read(path: Path = RECORD) -> Record | None:
    """Return the record, or None without one."""
    if not path.exists():
        return None
    found: Record = json.loads(path.read_text(encoding="utf-8"))
    return found


def ratios(path: Path = RECORD) -> dict[str, float]:
    """Return method → median of its ratios, of those that were measured. A rehearsal is not counted."""
    record = read(path)
    if record is None or record["quick"]:
        return {}
    return {name: statistics.median(row["ratios"]) for name, row in record["rows"].items() if row["ratios"]}


HEAD = """# What a method costs

{text}
{quick}
| method | s a round | ratio |{spread} client keeps, kB | up, kB | down, kB |
|---|--:|--:|{rule}--:|--:|--:|
"""
TEXT = """
`{command}` measured this: {workload}. All methods train in one process with one thread of the processor, in
{turns} A round is the training of its clients and the server's step, without evaluation. Methods whose
arguments set their own epochs keep the defaults of these arguments. Rows may come from several days and from
machines of different speed, so compare ratios and not seconds. *Client keeps* is the private state of
one client, and *up* and *down* are the bytes of its messages in the last round, as the papers count them
([docs/design.md](design.md) §4). Machine: {machine}; load {load}.
"""
ONE_TURN = """
one turn with FedAvg: a round of FedAvg, then a round of the method. The ratio is that of the method's seconds
to those of FedAvg just before it. One turn has no spread.
"""
SEVERAL_TURNS = """
turns with FedAvg: a round of FedAvg, a round of the method, and again. The ratio is the median over {turns}
turns of the method's seconds to those of FedAvg just before it; *spread* is the smallest and the largest.
"""
UNMEASURED = """# What a method costs

This has not been measured yet. `python -m benchmarks.method_cost` measures it and writes this page.
"""
QUICK = """
**This is a rehearsal** with fewer clients and repetitions on a busy machine. Its times are not results.
"""


def page(record: Record | None) -> str:
    """Return docs/cost.md, for which there may be no record yet."""
    if record is None:
        return UNMEASURED
    rows: Mapping[str, Row] = record["rows"]
    turns = sorted({len(row["ratios"]) for row in rows.values() if row["ratios"]})
    repetitions = " to ".join(map(str, dict.fromkeys([turns[0], turns[-1]]))) if turns else "no"
    once = turns == [1]
    shaped = "card" in record["machine"]
    text = TEXT.format(
        command="python -m benchmarks.method_cost" + " --shape pfllib --gpu" * shaped,
        workload=record["workload"],
        turns=ONE_TURN if once else SEVERAL_TURNS.format(turns=repetitions),
        machine=", ".join(record["machine"].values()),
        load=" to ".join(f"{one:.1f}" for one in record["load"]),
    )
    wrapped = textwrap.fill(" ".join(text.split()), WIDTH, break_long_words=False, break_on_hyphens=False)
    head = HEAD.format(
        text=wrapped,
        quick=QUICK if record["quick"] else "",
        spread="" if once else " spread |",
        rule="" if once else "--:|",
    )
    return (
        head + "".join(_line(name, row, not once) for name, row in rows.items()) + _ends(rows) + _answered()
    )


ANSWERED = """
## A server that answers each client

{text}

| method | clients | s a round | ratio | peak memory, MiB | up, kB | down, kB |
|---|--:|--:|--:|--:|--:|--:|
"""
ANSWERED_TEXT = """
`python -m benchmarks.scale --answers` measured this: LeNet-5 of 61,706 weights, images of noise, 20 a client,
one epoch in batches of 10, every client in every round, one after the other in one process. The ratio is that
to FedAvg with as many clients. IFCA keeps four models, and cwFedAvg one for each of ten classes. *Up* and
*down* are the bytes of one client's messages in a round. FedAMP's server compares all pairs of models and
mixes all models for each client, so its part grows with the square of their number.
"""


def _answered() -> str:
    """Return the section on methods whose server answers each client, or nothing without its record."""
    if not ANSWERS.exists():
        return ""
    rows = json.loads(ANSWERS.read_text(encoding="utf-8"))
    floors = {row["clients"]: row["round_s"] for row in rows if row["method"] == BASE}
    text = textwrap.fill(" ".join(ANSWERED_TEXT.split()), WIDTH, break_on_hyphens=False)
    return ANSWERED.format(text=text) + "".join(
        f"| `{row['method']}` | {row['clients']:,} | {row['round_s']:.2f} | "
        f"{row['round_s'] / floors[row['clients']]:.2f} | {row['peak_mib']:,} | {row['up'] / 1000:,.1f} | "
        f"{row['down'] / 1000:,.1f} |\n"
        for row in rows
    )


def _line(name: str, row: Row, spread: bool) -> str:
    """Return a method's line of the table, which has a column of spreads or has none."""
    if not row["ratios"]:
        return f"| `{name}` | – |{' – |' * spread} {row['note']} | – | – | – |\n"
    low, high = min(row["ratios"]), max(row["ratios"])
    cells = [
        f"`{name}`",
        f"{statistics.median(row['seconds']):.3f}",
        f"{statistics.median(row['ratios']):.2f}",
        *([f"{low:.2f} to {high:.2f}"] if spread else []),
        *(f"{row[side] / 1000:.1f}" for side in ("kept", "up", "down")),
    ]
    return f"| {' | '.join(cells)} |\n"


def _ends(rows: Mapping[str, Row]) -> str:
    """Return the sentences below the table: what is dear, and what was not measured."""
    dear = [name for name, row in rows.items() if row["ratios"] and statistics.median(row["ratios"]) > LIMIT]
    missing = [name for name in METHODS if name not in rows]
    text = f"\nAbove {LIMIT:g} times FedAvg: {', '.join(f'`{name}`' for name in dear) or 'none'}.\n"
    text += "".join(f"`{name}`: {WHY[name]}\n" for name in dear if name in WHY)
    for setting in dict.fromkeys(row["setting"] for row in rows.values() if row.get("setting")):
        names = ", ".join(f"`{name}`" for name, row in rows.items() if row.get("setting") == setting)
        text += f"Measured beside a FedAvg with {setting}, because they do not train otherwise: {names}.\n"
    return text + (f"Not measured: {', '.join(f'`{name}`' for name in missing)}.\n" if missing else "")
