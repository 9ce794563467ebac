"""What a release does that changes its numbers and that a table of methods does not show.

Each trap is a sentence and a function that finds its places in a syntax tree. A trap names what the code
does, never whether it is wrong: what is scored, weighted, dropped, drawn, and kept from round to round.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple, TypeAlias

from raffed.adopted.checkout import Checkout, CodeLine, Source, last_name, position, text_of

Nodes: TypeAlias = Iterator[ast.AST]
Find: TypeAlias = Callable[[Checkout, Source], Nodes]


class Trap(NamedTuple):
    """A kind of trap.

    Attributes:
        key: Its short name.
        says: What the code does there, in one sentence.
        find: Yields the places in a file of a checkout.
    """

    key: str
    says: str
    find: Find


def traps_of(checkout: Checkout) -> dict[str, list[CodeLine]]:
    """Return the places of every trap that a checkout has, in the order of `TRAPS`."""
    found: dict[str, list[CodeLine]] = {}
    for trap in TRAPS:
        for source in checkout.sources.values():
            for node in trap.find(checkout, source):
                found.setdefault(trap.key, []).append(source.at(node))
    return {key: sorted(set(places)) for key, places in found.items()}


# Small questions


def _calls(source: Source, *names: str) -> Iterator[ast.Call]:
    yield from (call for call in source.all(ast.Call) if last_name(call.func) in names)


def _given(call: ast.Call, name: str) -> str:
    """Return a keyword of a call as it is written, or ""."""
    return next((text_of(keyword.value) for keyword in call.keywords if keyword.arg == name), "")


def _first_argument(call: ast.Call) -> str:
    return text_of(call.args[0]) if call.args else ""


def _of_clients(checkout: Checkout, source: Source) -> list[Source]:
    """Return the file in a list if it holds clients, otherwise an empty list."""
    return [source] if source.path.startswith(checkout.family.clients.replace(".", "/") + "/") else []


def _of_servers(checkout: Checkout, source: Source) -> list[Source]:
    """Return the file in a list if it holds servers, otherwise an empty list."""
    return [source] if source.path.startswith(checkout.family.servers.replace(".", "/") + "/") else []


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


# The traps that take more than a line


def _scored(checkout: Checkout, source: Source, before: bool) -> Nodes:
    """Yield where a round's model is scored, before or after its training is called or handed on."""
    for _, loop in _round_loops(checkout, source):
        named = sorted((node for node in ast.walk(loop) if isinstance(node, ast.Attribute)), key=position)
        scored = next((node for node in named if node.attr in ("evaluate", "_test_")), None)
        trained = next((node for node in named if node.attr == "train"), None)
        if scored and trained and (scored.lineno < trained.lineno) == before:
            yield scored


def _seeds(source: Source, where: Callable[[str], bool], constant: bool | None = None) -> Nodes:
    """Yield the calls that seed a generator in some functions, with a constant or another value."""
    for call in _calls(source, "manual_seed", "seed"):
        is_constant = bool(call.args) and isinstance(call.args[0], ast.Constant)
        if where(source.function(call)) and constant in (None, is_constant):
            yield call


def _never_seeded(checkout: Checkout, source: Source) -> Nodes:
    """Yield each draw of NumPy or of Python's own generator, if nothing in the release seeds it."""
    calls = [text_of(call.func) for every in checkout.sources.values() for call in _calls(every, "seed")]
    for module in ("np.random", "random"):
        if f"{module}.seed" not in calls:
            for call in source.all(ast.Call):
                if isinstance(call.func, ast.Attribute) and text_of(call.func.value) == module:
                    yield call


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


def _live_parts(checkout: Checkout, source: Source) -> Nodes:
    """Yield where a server keeps a part of a client's own model, not a copy of it."""
    for call in (call for file in _of_servers(checkout, source) for call in _calls(file, "append")):
        kept = _first_argument(call)
        if kept.startswith(("client.model", "client.heads", "self.clients[")) and "(" not in kept:
            yield call


def _shared_arguments(checkout: Checkout, source: Source) -> Nodes:
    """Yield where a server writes into the arguments, which its clients read from the same object."""
    for node in (node for file in _of_servers(checkout, source) for node in file.all(ast.Attribute)):
        written = isinstance(node.ctx, ast.Store) and source.function(node) != "__init__"
        if written and last_name(node.value) == "args":
            yield node


def _lasting_optimiser(checkout: Checkout, source: Source) -> Nodes:
    """Yield where a client makes its optimiser once, if the server keeps its clients."""
    calls = [call for every in checkout.sources.values() for call in _calls(every, "append")]
    if any(text_of(call.func) == "self.clients.append" for call in calls):
        for node in (node for file in _of_clients(checkout, source) for node in file.all(ast.Assign)):
            if source.function(node) == "__init__" and text_of(node.targets[0]) == "self.optimizer":
                yield node


def _rates_by_layer(checkout: Checkout, source: Source) -> Nodes:
    for node in source.all(ast.Dict):
        given = {text_of(key): text_of(value) for key, value in zip(node.keys, node.values, strict=True)}
        if "'params'" in given and any(sign in given.get("'lr'", "") for sign in "*/"):
            yield node


def _looks_ahead(checkout: Checkout, source: Source) -> Nodes:
    """Yield where a number is computed from the number of rounds, but not how often their loop turns."""
    for node in source.all(ast.BinOp):
        used = {last_name(side) for side in (node.left, node.right)} & {"global_rounds", "comm_rounds"}
        turns = text_of(node.right) == "1" and source.function(node) == "train"
        if used and not turns:
            yield node


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


def _statistics_stay(checkout: Checkout, source: Source) -> Nodes:
    """Yield where a client takes over the parameters that it gets, and nothing else of a model."""
    for file in _of_clients(checkout, source):
        for node in (node for node in file.all(ast.FunctionDef) if node.name == "set_parameters"):
            text = text_of(node)
            if ".parameters()" in text and "buffers" not in text and "state_dict" not in text:
                yield node


def _softmax_stays(checkout: Checkout, source: Source) -> Nodes:
    """Yield each softmax in a forward function, if the main file takes off last layers."""
    assigned = [text_of(node.value) for node in checkout.entry.all(ast.Assign)]
    if "nn.Identity()" in assigned:
        calls = _calls(source, "log_softmax", "softmax")
        yield from (call for call in calls if source.function(call) == "forward")


def _by_the_name(checkout: Checkout, source: Source) -> Nodes:
    for node in source.all(ast.Compare):
        named = isinstance(node.ops[0], ast.In) and isinstance(node.left, ast.Constant)
        if named and "dataset" in text_of(node.comparators[0]):
            yield node


def _server_calls(name: str, fits: Callable[[ast.Call], bool]) -> Find:
    """Find the calls of one function in the files of servers."""
    return lambda checkout, source: (
        call for file in _of_servers(checkout, source) for call in _calls(file, name) if fits(call)
    )


def _every_call(*names: str, fits: Callable[[ast.Call], bool] = lambda call: True) -> Find:
    """Find the calls of some functions in all files."""
    return lambda checkout, source: (call for call in _calls(source, *names) if fits(call))


TRAPS = (
    Trap(
        "scored-before",
        "A round's model is scored before its training, so the last is never scored.",
        partial(_scored, before=True),
    ),
    Trap("scored-after", "A round's model is scored after its training.", partial(_scored, before=False)),
    Trap(
        "best-round",
        "The best round on the test data is reported.",
        _server_calls("max", lambda call: "test" in _first_argument(call)),
    ),
    Trap(
        "last-batch-dropped",
        "The last batch of training is dropped if it is not full.",
        _loaders(False, "drop_last", "True"),
    ),
    Trap(
        "last-batch-kept",
        "The last batch of training is kept if it is not full.",
        _loaders(False, "drop_last", "", "False"),
    ),
    Trap(
        "tests-dropped",
        "The last batch of tests is dropped, so some samples are never scored.",
        _loaders(True, "drop_last", "True"),
    ),
    Trap(
        "not-shuffled", "The samples of training keep their order.", _loaders(False, "shuffle", "", "False")
    ),
    Trap(
        "tests-draw",
        "The tests are shuffled: how often one tests changes what is trained.",
        _loaders(True, "shuffle", "True"),
    ),
    Trap(
        "threads",
        "Clients train in threads that draw from one generator, so two runs differ.",
        _server_calls("Thread", lambda call: _given(call, "target").endswith(".train")),
    ),
    Trap(
        "seeded-by-clients",
        "Each new object seeds the generator of the whole process again.",
        lambda _, source: _seeds(source, lambda name: name == "__init__"),
    ),
    Trap(
        "one-seed",
        "The seed is written in the file, so repetitions draw the same.",
        lambda _, source: _seeds(source, lambda name: name == "", constant=True),
    ),
    Trap("not-seeded", "Draws from a generator that nothing seeds, so two runs differ.", _never_seeded),
    Trap(
        "seeded-by-round",
        "A generator is seeded again during the run.",
        lambda _, source: _seeds(source, lambda name: name not in ("", "__init__"), constant=False),
    ),
    Trap(
        "drawn-one-by-one",
        "Each client takes part with a probability, so their number varies.",
        lambda checkout, source: (
            node
            for file in _of_servers(checkout, source)
            for node in file.all(ast.Compare)
            if "ratio" in text_of(node) and isinstance(node.ops[0], ast.LtE | ast.Lt)
        ),
    ),
    Trap(
        "all-are-sent",
        "All clients get the model, also those that do not take part.",
        lambda checkout, source: (
            node
            for file in _of_servers(checkout, source)
            for node in file.all(ast.For)
            if text_of(node.iter) == "self.clients" and source.function(node).startswith("send")
        ),
    ),
    Trap(
        "mean-by-samples",
        "The mean weighs clients by their training samples.",
        _every_call(
            "append",
            fits=lambda call: (
                "weights" in text_of(call.func) and _first_argument(call).endswith(".train_samples")
            ),
        ),
    ),
    Trap(
        "mean-uniform",
        "The mean weighs all clients alike.",
        _server_calls("mean", lambda call: _given(call, "dim") == "0" and "clients" in text_of(call)),
    ),
    Trap(
        "two-orders", "Uploads are put in a second random order beside lists in the first one.", _other_order
    ),
    Trap(
        "live-parts", "The server keeps parts of clients' own models, which later changes reach.", _live_parts
    ),
    Trap("shared-arguments", "The server changes the arguments that its clients read.", _shared_arguments),
    Trap(
        "shared-messages",
        "One message is filled again for client after client.",
        _server_calls("copy_", lambda call: "comm_vecs" in text_of(call.func)),
    ),
    Trap(
        "statistics-stay",
        "Only parameters are sent: each client keeps the running statistics of BatchNorm.",
        _statistics_stay,
    ),
    Trap(
        "softmax-stays",
        "The network's softmax stays when the last layer is taken off, and so comes before the head.",
        _softmax_stays,
    ),
    Trap(
        "optimiser-stays",
        "The optimiser lives as long as the client: momentum is carried over.",
        _lasting_optimiser,
    ),
    Trap("rates-by-layer", "Layers have learning rates of their own.", _rates_by_layer),
    Trap("clipped", "Gradients are clipped.", _every_call("clip_grad_norm_")),
    Trap(
        "weight-decay",
        "Weights decay.",
        _every_call("SGD", "Adam", "AdamW", fits=lambda call: _given(call, "weight_decay") not in ("", "0")),
    ),
    Trap(
        "looks-ahead", "A setting depends on the number of rounds, so a run cannot be extended.", _looks_ahead
    ),
    Trap(
        "steps-of-client-0",
        "The number of local steps of all clients is made from client 0's size.",
        lambda _, source: (
            node for node in source.all(ast.Subscript) if text_of(node) == "self.datasets.client_x[0]"
        ),
    ),
    Trap(
        "carried-over",
        "A local variable of the loop is carried from round to round.",
        carried,
    ),
    Trap(
        "trains-after", "After the last round the models are trained once more, then scored.", _after_the_loop
    ),
    Trap(
        "bool-flags",
        "A flag of type bool is true for every word, also for False.",
        _every_call("add_argument", fits=lambda call: _given(call, "type") == "bool"),
    ),
    Trap(
        "by-data-name", "The name of the data set decides, for example which network is built.", _by_the_name
    ),
    Trap(
        "pickled-models",
        "Whole models are loaded, which torch refuses since 2.6 unless it is told to.",
        _every_call(
            "load", fits=lambda call: text_of(call.func) == "torch.load" and not _given(call, "weights_only")
        ),
    ),
    Trap(
        "needs-cuda",
        "A GPU is required whatever the device is.",
        _every_call("cuda", fits=lambda call: text_of(call.func) not in ("cuda", "torch.cuda")),
    ),
    Trap(
        "equal-sizes",
        "All clients must have equally many samples.",
        _every_call("asarray", fits=lambda call: _first_argument(call) in ("client_x", "clnt_x")),
    ),
)
