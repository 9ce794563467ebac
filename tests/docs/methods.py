"""docs/methods.md, made from the code: what every method is, for whom, what it sends, keeps and costs.

`python -m tests.docs.methods` writes it. What is sent and kept is read from the wire table
(tests/golden/wire.txt), which is held against real rounds, and the cost from the record of the benchmark
(benchmarks/method_cost.json), if there is one.
"""

from __future__ import annotations

import functools
import importlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path

from raffed.reproductions.zoo.rows import (
    is_personal,
    keeps_norms_alone,
    mixture_remark,
    same_global_model,
    server_data,
)
from raffed.tune_spaces import load_space, points, values

from benchmarks.cost_record import RECORD, ratios
from raffed.config.run import RunConfig
from raffed.config.validation import Declaration
from raffed.core.method import Method
from raffed.methods import METHODS, MethodInfo, build_method
from tests.golden.regenerate import WIRE

PAGE = Path(__file__).resolve().parents[2] / "docs" / "methods.md"
SIDES = ("down", "up", "client keeps", "server keeps")
NOTE = re.compile(
    r"(?:Departures?[^:.]*|The authors' runs|Scored): .*"
)  # a paragraph of a factory's docstring
FIELD = re.compile(r"    ([^\s\[]+)\s*(\[[^\]]*\](?: \w+)?|\w+)\s+\d+ B")
USUAL = frozenset({"w", "b", "n"})  # fields of a message that FedAvg sends too
HEAD = """# The methods

`python -m tests.docs.methods` made this page from the code. `raffed methods NAME` prints the arguments of
one method. [docs/training.md](training.md) lists which options of local training each method follows, and
[docs/federation.md](federation.md) which options of a federation it admits.

## All of them

- *For*: whether the server has a model for everybody (global), a client has a model of its own (personal),
  or both.
- *BatchNorm*: whether the method needs a network with BatchNorm, and what becomes of its statistics.
- *Leaves the client*: w are the trained weights, b the statistics of BatchNorm, n the number of samples.
- *A client keeps* from one round to the next: v are private layers, the rest is named as in the code.
- *Cost*: the seconds of a round relative to FedAvg's, measured as [docs/cost.md](cost.md) says; – is not
  measured.

"""
SHAPES = """## Each of them

Shapes: P are all weights, P_body and P_head those of body and head, b BatchNorm's statistics, C the
classes, D the features, *held* the classes that the client has. They are those of three rounds of
a small network. A field that is not listed does not leave the client. *Searched* is what `raffed tune` tries.
*Departures* are from the paper or from the released code, and *the authors' runs* are what that code sets and
raffed's defaults do not. *Scored* is which model of a client its accuracy is of, where clients download
models of their own.

"""


def for_whom(method: Method) -> str:
    """Return who gets a model."""
    both = method.has_global and is_personal(method)
    return "both" if both else "global" if method.has_global else "personal"


def batchnorm(method: Method) -> str:
    """Return whether the method needs BatchNorm, and whether its statistics stay with the client."""
    if keeps_norms_alone(method):
        return "needed: it is what stays with the client"
    return "statistics stay with the client" if method.split.buffers == "local" else "not needed"


def network(method: Method) -> str:
    """Return what the method requires of the network, such as `head_init` = etf, or ""."""
    required = {one.name: getattr(method, one.name) for one in fields(method)}.get("network") or ()
    return ", ".join(f"`{name}` = {value}" for name, value in required)


@functools.cache
def wires() -> dict[str, dict[str, list[tuple[str, str]]]]:
    """Return method → side → (field, shape) from the wire table."""
    found: dict[str, dict[str, list[tuple[str, str]]]] = {}
    name = side = ""
    for line in WIRE.read_text(encoding="utf-8").splitlines()[4:]:
        if line and not line.startswith(" "):
            name = line.split()[0]
            found[name] = {one: [] for one in SIDES}
        elif match := FIELD.fullmatch(line):
            found[name][side].append((match[1], match[2]))
        elif line.strip():
            side = next(one for one in SIDES if line.strip().startswith(one))
    return found


def shown_fields(fields: Sequence[tuple[str, str]]) -> str:
    """Return fields as `w` and so on, messages of ingredients with their shapes."""
    shown = [name if name in USUAL else f"`{name}` {shape}" for name, shape in fields]
    return ", ".join(shown) or "nothing"


def overview() -> str:
    """Return a row for each method."""
    rows = [
        "| method | for | BatchNorm | leaves the client | a client keeps | cost | source |",
        "|---" * 7 + "|",
    ]
    sent, cost = wires(), ratios()
    for name, info in METHODS.items():
        method = build_method(name, {})
        up, kept = ([field for field, _ in sent[name][side]] for side in ("up", "client keeps"))
        cells = (
            f"[{info.title}](#{name})",
            for_whom(method),
            batchnorm(method),
            ", ".join(dict.fromkeys(_short(field) for field in up)) or "nothing",
            ", ".join(dict.fromkeys(_short(field) for field in kept)) or "nothing",
            f"{cost[name]:.2f}" if name in cost else "–",
            info.source,
        )
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows) + "\n"


def _short(field: str) -> str:
    """Return a field without its slot: `term-InterClass.Centres.mean` → `Centres.mean`."""
    return ".".join(field.split(".")[-2:]) if "." in field else field


def section(name: str, info: MethodInfo) -> str:
    """Return the part of the page on one method."""
    method = build_method(name, {})
    sent = wires()[name]
    twin = same_global_model(name)
    server = server_data(RunConfig(name))
    mixed = mixture_remark(method)
    shared = f" Its global model is `{twin}`'s, bit for bit." if twin else ""
    shared += f" {mixed[:1].upper()}{mixed[1:]}." if mixed else ""
    lines = [
        f"### {name}",
        "",
        f"**{info.title}** ({info.source}): {info.idea}.",
        "",
        f"- For: {for_whom(method)}.{shared}",
        f"- BatchNorm: {batchnorm(method)}.",
        *([f"- The network is built with {network(method)}."] if network(method) else []),
        f"- Comes to the client: {shown_fields(sent['down'])}.",
        f"- Leaves the client: {shown_fields(sent['up'])}.",
        f"- A client keeps: {shown_fields(sent['client keeps'])}.",
        f"- Searched: {searched(name)}",
        *([f"- Its server also needs {server}."] if server else []),
        *(f"- {note}" for note in notes(info.described().doc)),
        "",
        arguments(info.described().arguments),
    ]
    return "\n".join(lines)


def notes(doc: str) -> list[str]:
    """Return what a factory's docstring says of departures, the authors' runs, and what is scored."""
    paragraphs = [" ".join(one.split()) for one in doc.split("\n\n")]
    return [one for one in paragraphs if NOTE.fullmatch(one)]


def searched(name: str) -> str:
    """Return the values of the search space, and what its file says about their source."""
    space = load_space(name)
    about = " ".join((importlib.import_module(f"raffed.tune_spaces.{name}").__doc__ or "").split())
    if not space:
        return about
    axes = ", ".join(f"`{axis}` {{{', '.join(map(str, values(space, axis)))}}}" for axis in space)
    return f"{axes}: {len(points(space))} settings. {about}"


def arguments(known: Sequence[Declaration]) -> str:
    """Return the table of arguments, or a sentence if there are none."""
    if not known:
        return "It has no arguments.\n"
    rows = ["| argument | default | values | meaning |", "|---|---|---|---|"]
    for one in known:
        allowed = " ".join(filter(None, (one.shown_kind, str(one.range or ""))))
        default = f"`{one.shown_default}`" if one.default else "required"
        cells = (f"`{one.name}`", default, allowed, one.doc)
        rows.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(rows) + "\n"


def written() -> str:
    """Return the page as it should be."""
    parts: Mapping[str, str] = {name: section(name, info) for name, info in METHODS.items()}
    return HEAD + overview() + "\n" + SHAPES + "\n".join(parts.values())


if __name__ == "__main__":
    PAGE.write_text(written(), encoding="utf-8")
    print(f"wrote {PAGE} ({len(METHODS)} methods; cost from {RECORD.name if RECORD.exists() else 'nowhere'})")
