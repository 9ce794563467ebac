"""What a release does that changes its numbers and that a table of methods does not show.

Each trap is a sentence (`SAYS`) and a function that finds its places in a syntax tree (`FINDS`). A trap
names what the code does, never whether it is wrong: what is scored, weighted, dropped, drawn, and kept from
round to round.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any, TypeAlias

from raffed.adopted.checkout import Checkout, CodeLine, Source, last_name, position, text_of

Nodes: TypeAlias = Iterator[ast.AST]
Find: TypeAlias = Callable[[Checkout, Source], Nodes]
Among: TypeAlias = Callable[[Checkout, Source], list[Source]]


@cache
def traps_of(checkout: Checkout) -> dict[str, list[CodeLine]]:
    """Return the places of every trap that a checkout has, in the order of `SAYS`."""
    found: dict[str, list[CodeLine]] = {}
    for trap in SAYS:
        for source in checkout.sources.values():
            for node in FINDS[trap](checkout, source):
                found.setdefault(trap, []).append(source.at(node))
    return {key: sorted(set(places)) for key, places in found.items()}


# Small questions


def _calls(source: Source, *names: str) -> Iterator[ast.Call]:
    yield from (call for call in source.all(ast.Call) if last_name(call.func) in names)


def _given(call: ast.Call, name: str) -> str:
    """Return a keyword of a call as it is written, or ""."""
    return next((text_of(keyword.value) for keyword in call.keywords if keyword.arg == name), "")


def _first_argument(call: ast.Call) -> str:
    return text_of(call.args[0]) if call.args else ""


def _anywhere(checkout: Checkout, source: Source) -> list[Source]:
    return [source]


def _of_clients(checkout: Checkout, source: Source) -> list[Source]:
    """Return the file in a list if it holds clients, otherwise an empty list."""
    return [source] if source.path.startswith(checkout.family.clients.replace(".", "/") + "/") else []


def _of_servers(checkout: Checkout, source: Source) -> list[Source]:
    """Return the file in a list if it holds servers, otherwise an empty list."""
    return [source] if source.path.startswith(checkout.family.servers.replace(".", "/") + "/") else []


def _nodes(kind: type[ast.AST], fits: Callable[[Source, Any], bool], among: Among = _anywhere) -> Find:
    """Find the nodes of one kind that fit, in some of the files."""
    return lambda checkout, source: (
        node for file in among(checkout, source) for node in file.all(kind) if fits(file, node)
    )


def _call(name: str, fits: Callable[[ast.Call], bool], among: Among = _anywhere) -> Find:
    """Find the calls of one function that fit, in some of the files."""
    return _nodes(ast.Call, lambda _, call: last_name(call.func) == name and fits(call), among)


def _loaders(of_tests: bool, name: str, *values: str) -> Find:
    """Find the loaders of one part of a client's data that have a keyword as one of `values`."""

    def find(checkout: Checkout, source: Source) -> Nodes:
        for call in _calls(source, "DataLoader"):
            is_of_tests = any(word in source.function(call) for word in ("test", "valid"))
            counts = _given(call, name) in values and (values == ("True",) or _of_clients(checkout, source))
            if counts and is_of_tests == of_tests:
                yield call

    return find


def _round_loops(checkout: Checkout, source: Source) -> Iterator[tuple[ast.FunctionDef, ast.For]]:
    """Yield the loop over rounds in each `train` of a server."""
    functions = [each for file in _of_servers(checkout, source) for each in file.all(ast.FunctionDef)]
    for function in (each for each in functions if each.name == "train"):
        loops = [line for line in function.body if isinstance(line, ast.For)]
        yield from ((function, loop) for loop in loops if "rounds" in text_of(loop.iter))


# What the traps look for


def _scored(checkout: Checkout, source: Source, before: bool) -> Nodes:
    """Yield where a round's model is scored, before or after its training is called or handed on."""
    for _, loop in _round_loops(checkout, source):
        named = sorted((node for node in ast.walk(loop) if isinstance(node, ast.Attribute)), key=position)
        scored = next((node for node in named if node.attr in ("evaluate", "_test_")), None)
        trained = next((node for node in named if node.attr == "train"), None)
        if scored and trained and (scored.lineno < trained.lineno) == before:
            yield scored


def _seeds(where: Callable[[str], bool], constant: bool | None = None) -> Find:
    """Find the calls that seed a generator in some functions, with a constant or another value."""

    def fits(source: Source, call: ast.Call) -> bool:
        is_constant = bool(call.args) and isinstance(call.args[0], ast.Constant)
        seeds = last_name(call.func) in ("manual_seed", "seed")
        return seeds and where(source.function(call)) and constant in (None, is_constant)

    return _nodes(ast.Call, fits)


def _never_seeded(checkout: Checkout, source: Source) -> Nodes:
    """Yield each draw of NumPy or of Python's own generator, if nothing in the release seeds it."""
    for module in {"np.random", "random"} - _seeded(checkout):
        for call in source.all(ast.Call):
            if isinstance(call.func, ast.Attribute) and text_of(call.func.value) == module:
                yield call


@cache
def _seeded(checkout: Checkout) -> set[str]:
    """Return the modules whose generator something in the release seeds."""
    calls = [call for every in checkout.sources.values() for call in _calls(every, "seed")]
    return {text_of(call.func).removesuffix(".seed") for call in calls}


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


def _is_live(call: ast.Call) -> bool:
    """Return whether a server keeps a part of a client's own model there, not a copy of it."""
    kept = _first_argument(call)
    return kept.startswith(("client.model", "client.heads", "self.clients[")) and "(" not in kept


def _written_argument(source: Source, node: ast.Attribute) -> bool:
    """Return whether the arguments are written, which clients read from the same object."""
    written = isinstance(node.ctx, ast.Store) and source.function(node) != "__init__"
    return written and last_name(node.value) == "args"


def _lasting_optimiser(checkout: Checkout, source: Source) -> Nodes:
    """Yield where a client makes its optimiser once, if the server keeps its clients."""
    if _keeps_clients(checkout):
        for node in (node for file in _of_clients(checkout, source) for node in file.all(ast.Assign)):
            if source.function(node) == "__init__" and text_of(node.targets[0]) == "self.optimizer":
                yield node


@cache
def _keeps_clients(checkout: Checkout) -> bool:
    calls = [call for every in checkout.sources.values() for call in _calls(every, "append")]
    return any(text_of(call.func) == "self.clients.append" for call in calls)


def _own_rate(_: Source, node: ast.Dict) -> bool:
    given = {text_of(key): text_of(value) for key, value in zip(node.keys, node.values, strict=True)}
    return "'params'" in given and any(sign in given.get("'lr'", "") for sign in "*/")


def _of_rounds(source: Source, node: ast.BinOp) -> bool:
    """Return whether a number is computed from the number of rounds, but not how often their loop turns."""
    used = {last_name(side) for side in (node.left, node.right)} & {"global_rounds", "comm_rounds"}
    return bool(used) and not (text_of(node.right) == "1" and source.function(node) == "train")


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


def _sends_parameters_alone(_: Source, node: ast.FunctionDef) -> bool:
    """Return whether a client takes over the parameters that it gets, and nothing else of a model."""
    text = text_of(node) if node.name == "set_parameters" else ""
    return ".parameters()" in text and "buffers" not in text and "state_dict" not in text


def _softmax_stays(checkout: Checkout, source: Source) -> Nodes:
    """Yield each softmax in a forward function, if the main file takes off last layers."""
    assigned = [text_of(node.value) for node in checkout.entry.all(ast.Assign)]
    if "nn.Identity()" in assigned:
        calls = _calls(source, "log_softmax", "softmax")
        yield from (call for call in calls if source.function(call) == "forward")


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


def _decays(call: ast.Call) -> bool:
    return _given(call, "weight_decay") not in ("", "0") and last_name(call.func) in ("SGD", "Adam", "AdamW")


def _by_the_name(_: Source, node: ast.Compare) -> bool:
    named = isinstance(node.ops[0], ast.In) and isinstance(node.left, ast.Constant)
    return named and "dataset" in text_of(node.comparators[0])


def _of_all(source: Source, loop: ast.For) -> bool:
    return text_of(loop.iter) == "self.clients" and source.function(loop).startswith("send")


def _one_by_one(_: Source, node: ast.Compare) -> bool:
    return "ratio" in text_of(node) and isinstance(node.ops[0], ast.LtE | ast.Lt)


def _weighs_samples(call: ast.Call) -> bool:
    return "weights" in text_of(call.func) and _first_argument(call).endswith(".train_samples")


def _of_client_0(_: Source, node: ast.Subscript) -> bool:
    return text_of(node) == "self.datasets.client_x[0]"


FINDS: dict[str, Find] = {
    "scored-before": partial(_scored, before=True),
    "scored-after": partial(_scored, before=False),
    "best-round": _call("max", lambda call: "test" in _first_argument(call), _of_servers),
    "last-batch-dropped": _loaders(False, "drop_last", "True"),
    "last-batch-kept": _loaders(False, "drop_last", "", "False"),
    "tests-dropped": _loaders(True, "drop_last", "True"),
    "not-shuffled": _loaders(False, "shuffle", "", "False"),
    "tests-draw": _loaders(True, "shuffle", "True"),
    "seeded-by-clients": _seeds(lambda name: name == "__init__"),
    "one-seed": _seeds(lambda name: name == "", constant=True),
    "not-seeded": _never_seeded,
    "seeded-by-round": _seeds(lambda name: name not in ("", "__init__"), constant=False),
    "drawn-one-by-one": _nodes(ast.Compare, _one_by_one, _of_servers),
    "all-are-sent": _nodes(ast.For, _of_all, _of_servers),
    "mean-by-samples": _call("append", _weighs_samples),
    "mean-uniform": _call(
        "mean", lambda call: _given(call, "dim") == "0" and "clients" in text_of(call), _of_servers
    ),
    "two-orders": _other_order,
    "live-parts": _call("append", _is_live, _of_servers),
    "shared-arguments": _nodes(ast.Attribute, _written_argument, _of_servers),
    "shared-messages": _call("copy_", lambda call: "comm_vecs" in text_of(call.func), _of_servers),
    "statistics-stay": _nodes(ast.FunctionDef, _sends_parameters_alone, _of_clients),
    "softmax-stays": _softmax_stays,
    "optimiser-stays": _lasting_optimiser,
    "rates-by-layer": _nodes(ast.Dict, _own_rate),
    "clipped": _call("clip_grad_norm_", lambda call: True),
    "weight-decay": _nodes(ast.Call, lambda _, call: _decays(call)),
    "looks-ahead": _nodes(ast.BinOp, _of_rounds),
    "steps-of-client-0": _nodes(ast.Subscript, _of_client_0),
    "carried-over": carried,
    "trains-after": _after_the_loop,
    "bool-flags": _call("add_argument", lambda call: _given(call, "type") == "bool"),
    "by-data-name": _nodes(ast.Compare, _by_the_name),
    "equal-sizes": _call("asarray", lambda call: _first_argument(call) in ("client_x", "clnt_x")),
}
