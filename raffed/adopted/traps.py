"""What a release does that changes its numbers and that a table of methods does not show.

Each trap is a sentence and what finds its places in a syntax tree: the table traps.toml describes nodes, and
`FUNCTIONS` find what their text alone does not say. A trap names what the code does, never whether it is
wrong: what is scored, weighted, dropped, drawn, and kept from round to round.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from pathlib import Path

from raffed.adopted.checkout import Checkout, CodeLine, Source, last_name, position, text_of

TRAPS: Mapping[str, Mapping[str, str]] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text())


@cache
def traps_of(checkout: Checkout) -> dict[str, list[CodeLine]]:
    """Return the places of every trap that a checkout has, in the order of the table."""
    places: dict[str, list[CodeLine]] = {}
    for trap, about in TRAPS.items():
        finds = FUNCTIONS.get(trap, partial(_nodes, about))
        nodes = ((source, node) for source in checkout.sources.values() for node in finds(checkout, source))
        places[trap] = sorted({source.at(node) for source, node in nodes})
    return {trap: lines for trap, lines in places.items() if lines}


def _nodes(about: Mapping[str, str], checkout: Checkout, source: Source) -> Iterator[ast.AST]:
    """Yield the nodes that a trap of the table describes."""
    if "among" in about and not checkout.is_in(about["among"], source):
        return
    for node in source.all(getattr(ast, about.get("kind", "Call"))):
        named = last_name(node.func) if isinstance(node, ast.Call) else getattr(node, "name", "")
        fits = re.fullmatch(about.get("name", ".*"), named)
        inside = re.fullmatch(about.get("inside", ".*"), source.function(node))
        if fits and inside and re.search(about.get("text", ""), text_of(node), re.DOTALL):
            yield node


# What text alone does not say


def _round_loops(checkout: Checkout, source: Source) -> Iterator[tuple[ast.FunctionDef, ast.For]]:
    """Yield the loop over rounds in each `train` of a server."""
    functions = source.all(ast.FunctionDef) if checkout.is_in("servers", source) else []
    for function in (each for each in functions if each.name == "train"):
        loops = [line for line in function.body if isinstance(line, ast.For)]
        yield from ((function, loop) for loop in loops if "rounds" in text_of(loop.iter))


def _scored(checkout: Checkout, source: Source, before: bool) -> Iterator[ast.AST]:
    """Yield where a round's model is scored, before or after its training is called or handed on."""
    for _, loop in _round_loops(checkout, source):
        named = sorted((node for node in ast.walk(loop) if isinstance(node, ast.Attribute)), key=position)
        scored = next((node for node in named if node.attr in ("evaluate", "_test_")), None)
        trained = next((node for node in named if node.attr == "train"), None)
        if scored and trained and (scored.lineno < trained.lineno) == before:
            yield scored


def _never_seeded(checkout: Checkout, source: Source) -> Iterator[ast.AST]:
    """Yield each draw of NumPy or of Python's own generator, if nothing in the release seeds it."""
    called = _called(checkout)
    for module in ("np.random", "random"):
        if f"{module}.seed" not in called:
            yield from _nodes({"text": rf"^{re.escape(module)}\.\w+\("}, checkout, source)


@cache
def _called(checkout: Checkout) -> set[str]:
    """Return what a release calls, such as `np.mean`."""
    calls = [call for every in checkout.sources.values() for call in every.all(ast.Call)]
    return {text_of(call.func) for call in calls}


def _lasting_optimiser(checkout: Checkout, source: Source) -> Iterator[ast.AST]:
    """Yield where a client makes its optimiser once, if the server keeps its clients."""
    if "self.clients.append" in _called(checkout):
        habit = {"kind": "Assign", "text": r"^self\.optimizer = ", "among": "clients", "inside": "__init__"}
        yield from _nodes(habit, checkout, source)


def _other_order(checkout: Checkout, source: Source) -> Iterator[ast.AST]:
    """Yield a second order of the participants in a class that also keeps what it took in the first."""
    for about in source.all(ast.ClassDef):
        loops = [node for node in ast.walk(about) if isinstance(node, ast.For)]
        calls = [node for node in ast.walk(about) if isinstance(node, ast.Call)]
        if any(text_of(loop.iter) == "self.selected_clients" and _collects(loop) for loop in loops):
            yield from (call for call in calls if text_of(call.func) == "random.sample")


def _collects(loop: ast.For) -> bool:
    """Return whether a loop appends attributes of each client to lists, but not its number of samples."""
    calls = [node for node in ast.walk(loop) if isinstance(node, ast.Call) and node.args]
    taken = [call.args[0] for call in calls if last_name(call.func) == "append"]
    attributes = [node for node in taken if text_of(node).startswith(f"{text_of(loop.target)}.")]
    return bool(attributes) and "train_samples" not in map(last_name, taken)


def carried(checkout: Checkout, source: Source) -> Iterator[ast.Name]:
    """Yield each local variable that the loop over rounds reads before it sets it."""
    for function, loop in _round_loops(checkout, source):
        names = sorted((node for node in ast.walk(loop) if isinstance(node, ast.Name)), key=position)
        earlier = [node for line in function.body if line.lineno < loop.lineno for node in ast.walk(line)]
        before = {node.id for node in earlier if isinstance(node, ast.Name)}
        stored = {node.id for node in names if isinstance(node.ctx, ast.Store)} - {text_of(loop.target)}
        for name in sorted(stored & before):
            first = next(node for node in names if node.id == name)
            if isinstance(first.ctx, ast.Load):
                yield first


def _after_the_loop(checkout: Checkout, source: Source) -> Iterator[ast.AST]:
    """Yield where all clients train once more after the loop over rounds, whatever the flags are."""
    for function, loop in _round_loops(checkout, source):
        end = loop.end_lineno or loop.lineno
        later = [line for line in function.body if line.lineno > end and not isinstance(line, ast.If)]
        for node in (node for line in later for node in ast.walk(line)):
            if isinstance(node, ast.Call) and last_name(node.func) in ("train", "fine_tune"):
                yield node


def _softmax_stays(checkout: Checkout, source: Source) -> Iterator[ast.AST]:
    """Yield each softmax in a forward function, if the main file takes off last layers."""
    for call in _nodes({"name": "(log_)?softmax", "inside": "forward"}, checkout, source):
        if any(text_of(node.value) == "nn.Identity()" for node in checkout.entry.all(ast.Assign)):
            yield call


FUNCTIONS: Mapping[str, Callable[[Checkout, Source], Iterator[ast.AST]]] = {
    "scored-before": partial(_scored, before=True),
    "scored-after": partial(_scored, before=False),
    "not-seeded": _never_seeded,
    "two-orders": _other_order,
    "softmax-stays": _softmax_stays,
    "optimiser-stays": _lasting_optimiser,
    "carried-over": carried,
    "trains-after": _after_the_loop,
}
