"""What a release does that changes its numbers and that a table of methods does not show.

Each trap is a sentence (`SAYS`) and a function that finds its places in a syntax tree (`FINDS`). A trap
names what the code does, never whether it is wrong: what is scored, weighted, dropped, drawn, and kept from
round to round.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import TypeAlias

from raffed.adopted.checkout import Checkout, CodeLine, Source, last_name, position, text_of

Nodes: TypeAlias = Iterator[ast.AST]
Find: TypeAlias = Callable[[Checkout, Source], Nodes]


@cache
def traps_of(checkout: Checkout) -> dict[str, list[CodeLine]]:
    """Return the places of every trap that a checkout has, in the order of `SAYS`."""
    found: dict[str, list[CodeLine]] = {}
    for trap in SAYS:
        for source in checkout.sources.values():
            for node in FINDS[trap](checkout, source):
                found.setdefault(trap, []).append(source.at(node))
    return {key: sorted(set(places)) for key, places in found.items()}


def _nodes(kind: type[ast.AST], text: str, *, among: str = "", within: str = ".*", name: str = ".*") -> Find:
    """Find the nodes of one kind by their text.

    Args:
        kind: The kind.
        text: A regular expression that is found in the text.
        among: The package that holds the file, `servers` or `clients`; "" for every file.
        within: A regular expression for the name of the function around the node.
        name: One for the name of the function that is called or defined.
    """

    def find(checkout: Checkout, source: Source) -> Nodes:
        if among and not checkout.is_in(among, source):
            return
        for node in source.all(kind):
            named = last_name(node.func) if isinstance(node, ast.Call) else getattr(node, "name", "")
            fits = re.fullmatch(name, named) and re.fullmatch(within, source.function(node))
            if fits and re.search(text, text_of(node), re.DOTALL):
                yield node

    return find


def _call(name: str, text: str = "", *, among: str = "", within: str = ".*") -> Find:
    """Find the calls of functions by their last name."""
    return _nodes(ast.Call, text, among=among, within=within, name=name)


# What text alone does not say


def _round_loops(checkout: Checkout, source: Source) -> Iterator[tuple[ast.FunctionDef, ast.For]]:
    """Yield the loop over rounds in each `train` of a server."""
    functions = source.all(ast.FunctionDef) if checkout.is_in("servers", source) else []
    for function in (each for each in functions if each.name == "train"):
        loops = [line for line in function.body if isinstance(line, ast.For)]
        yield from ((function, loop) for loop in loops if "rounds" in text_of(loop.iter))


def _scored(checkout: Checkout, source: Source, before: bool) -> Nodes:
    """Yield where a round's model is scored, before or after its training is called or handed on."""
    for _, loop in _round_loops(checkout, source):
        named = sorted((node for node in ast.walk(loop) if isinstance(node, ast.Attribute)), key=position)
        scored = next((node for node in named if node.attr in ("evaluate", "_test_")), None)
        trained = next((node for node in named if node.attr == "train"), None)
        if scored and trained and (scored.lineno < trained.lineno) == before:
            yield scored


def _never_seeded(checkout: Checkout, source: Source) -> Nodes:
    """Yield each draw of NumPy or of Python's own generator, if nothing in the release seeds it."""
    called = _called(checkout)
    for module in ("np.random", "random"):
        if f"{module}.seed" not in called:
            draws = _nodes(ast.Call, rf"^{re.escape(module)}\.\w+\(")
            yield from draws(checkout, source)


@cache
def _called(checkout: Checkout) -> set[str]:
    """Return what a release calls, such as `np.mean`."""
    calls = [call for every in checkout.sources.values() for call in every.all(ast.Call)]
    return {text_of(call.func) for call in calls}


def _lasting_optimiser(checkout: Checkout, source: Source) -> Nodes:
    """Yield where a client makes its optimiser once, if the server keeps its clients."""
    if "self.clients.append" in _called(checkout):
        made = _nodes(ast.Assign, r"^self\.optimizer = ", among="clients", within="__init__")
        yield from made(checkout, source)


def _other_order(checkout: Checkout, source: Source) -> Nodes:
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
    own = [node for node in taken if text_of(node).startswith(f"{text_of(loop.target)}.")]
    return bool(own) and "train_samples" not in map(last_name, taken)


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


def _after_the_loop(checkout: Checkout, source: Source) -> Nodes:
    """Yield where all clients train once more after the loop over rounds, whatever the flags are."""
    for function, loop in _round_loops(checkout, source):
        end = loop.end_lineno or loop.lineno
        later = [line for line in function.body if line.lineno > end and not isinstance(line, ast.If)]
        for node in (node for line in later for node in ast.walk(line)):
            if isinstance(node, ast.Call) and last_name(node.func) in ("train", "fine_tune"):
                yield node


def _softmax_stays(checkout: Checkout, source: Source) -> Nodes:
    """Yield each softmax in a forward function, if the main file takes off last layers."""
    for call in _call("(log_)?softmax", within="forward")(checkout, source):
        if any(text_of(node.value) == "nn.Identity()" for node in checkout.entry.all(ast.Assign)):
            yield call


SAYS = {  # what the code does, in one sentence
    "scored-before": "A round's model is scored before its training, so the last is never scored.",
    "scored-after": "A round's model is scored after its training.",
    "best-round": "The best round on the test data is reported.",
    "last-batch-dropped": "The last batch of training is dropped if it is not full.",
    "last-batch-kept": "The last batch of training is kept if it is not full.",
    "tests-dropped": "The last batch of tests is dropped, so some samples are never scored.",
    "not-shuffled": "The samples of training keep their order.",
    "tests-draw": "The tests are shuffled: how often one tests changes what is trained.",
    "seeded-by-clients": "Each new object seeds the generator of the whole process again.",
    "one-seed": "The seed is written in the file, so repetitions draw the same.",
    "not-seeded": "Draws from a generator that nothing seeds, so two runs differ.",
    "seeded-by-round": "A generator is seeded again during the run.",
    "drawn-one-by-one": "Each client takes part with a probability, so their number varies.",
    "all-are-sent": "All clients get the model, also those that do not take part.",
    "mean-by-samples": "The mean weighs clients by their training samples.",
    "mean-uniform": "The mean weighs all clients alike.",
    "two-orders": "Uploads are put in a second random order beside lists in the first one.",
    "live-parts": "The server keeps parts of clients' own models, which later changes reach.",
    "shared-arguments": "The server changes the arguments that its clients read.",
    "shared-messages": "One message is filled again for client after client.",
    "statistics-stay": "Only parameters are sent: each client keeps the running statistics of BatchNorm.",
    "softmax-stays": "The network's softmax stays when the last layer is taken off: it comes before a head.",
    "optimiser-stays": "The optimiser lives as long as the client: momentum is carried over.",
    "rates-by-layer": "Layers have learning rates of their own.",
    "clipped": "Gradients are clipped.",
    "weight-decay": "Weights decay.",
    "looks-ahead": "A setting depends on the number of rounds, so a run cannot be extended.",
    "steps-of-client-0": "The number of local steps of all clients is made from client 0's size.",
    "carried-over": "A local variable of the loop is carried from round to round.",
    "trains-after": "After the last round the models are trained once more, then scored.",
    "bool-flags": "A flag of type bool is true for every word, also for False.",
    "by-data-name": "The name of the data set decides, for example which network is built.",
    "equal-sizes": "All clients must have equally many samples.",
}


TRAINING, TESTING = r"(?!.*(test|valid)).*", r".*(test|valid).*"  # names of functions that make loaders
FINDS: dict[str, Find] = {
    "scored-before": partial(_scored, before=True),
    "scored-after": partial(_scored, before=False),
    "best-round": _call("max", r"\([^,]*test", among="servers"),
    "last-batch-dropped": _call("DataLoader", r"drop_last=True", within=TRAINING),
    "last-batch-kept": _call("DataLoader", r"^(?!.*drop_last=(?!False))", among="clients", within=TRAINING),
    "tests-dropped": _call("DataLoader", r"drop_last=True", within=TESTING),
    "not-shuffled": _call("DataLoader", r"^(?!.*shuffle=(?!False))", among="clients", within=TRAINING),
    "tests-draw": _call("DataLoader", r"shuffle=True", within=TESTING),
    "seeded-by-clients": _call("(manual_)?seed", within="__init__"),
    "one-seed": _call("(manual_)?seed", r"\(\d+\)$", within=""),
    "not-seeded": _never_seeded,
    "seeded-by-round": _call("(manual_)?seed", r"\((?!\d+\)$)", within=r"(?!__init__$).+"),
    "drawn-one-by-one": _nodes(ast.Compare, r"ratio.* <=? | <=? .*ratio", among="servers"),
    "all-are-sent": _nodes(ast.For, r"^for \w+ in self\.clients:", among="servers", within="send.*"),
    "mean-by-samples": _call("append", r"weights.*\.append\(.*\.train_samples\)$"),
    "mean-uniform": _call("mean", r"^(?=.*clients).*dim=0[,)]", among="servers"),
    "two-orders": _other_order,
    "live-parts": _call(
        "append", r"\.append\((client\.model|client\.heads|self\.clients\[)[^(]*\)$", among="servers"
    ),
    "shared-arguments": _nodes(
        ast.Assign, r"^[\w.]*\bargs\.\w+ = ", among="servers", within=r"(?!__init__$).*"
    ),
    "shared-messages": _call("copy_", r"comm_vecs.*\.copy_\(", among="servers"),
    "statistics-stay": _nodes(
        ast.FunctionDef,
        r"^(?!.*(buffers|state_dict)).*\.parameters\(\)",
        among="clients",
        name="set_parameters",
    ),
    "softmax-stays": _softmax_stays,
    "optimiser-stays": _lasting_optimiser,
    "rates-by-layer": _nodes(ast.Dict, r"^(?=.*'params':).*'lr': [^,}]*[*/]"),
    "clipped": _call("clip_grad_norm_"),
    "weight-decay": _call("SGD|Adam|AdamW", r"weight_decay=(?!0[,)])"),
    "looks-ahead": _nodes(
        ast.BinOp, r"^(?!.*rounds [+-] 1$)([\w.]*(global|comm)_rounds \W|.*\W [\w.]*(global|comm)_rounds$)"
    ),
    "steps-of-client-0": _nodes(ast.Subscript, r"^self\.datasets\.client_x\[0\]$", among="servers"),
    "carried-over": carried,
    "trains-after": _after_the_loop,
    "bool-flags": _call("add_argument", r"type=bool[,)]"),
    "by-data-name": _nodes(ast.Compare, r"^'[^']*' in .*dataset"),
    "equal-sizes": _call("asarray", r"\((client_x|clnt_x)[,)]"),
}
