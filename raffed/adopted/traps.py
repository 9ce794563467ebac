"""What a release does that changes its numbers and that a table of methods does not show.

Each trap is a sentence and a function that finds its places in a syntax tree. A trap names what the code
does, never whether it is wrong: what is scored, weighted, dropped, drawn, and kept from round to round.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeAlias

from raffed.adopted.checkout import Checkout, CodeLine, Source, last_name, position, text_of

Nodes: TypeAlias = Iterator[ast.AST]


class Trap(NamedTuple):
    """A kind of trap.

    Attributes:
        key: Its short name.
        says: What the code does there, in one sentence.
        find: Yields the places in a file of a checkout.
    """

    key: str
    says: str
    find: Callable[[Checkout, Source], Nodes]


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


def _is_client(checkout: Checkout, source: Source) -> bool:
    return source.path.startswith(checkout.family.clients.replace(".", "/") + "/")


def _is_server(checkout: Checkout, source: Source) -> bool:
    return source.path.startswith(checkout.family.servers.replace(".", "/") + "/")


def _loaders(source: Source, part: str) -> Iterator[ast.Call]:
    """Yield the loaders in functions, or of attributes, whose name says for which part they are."""
    for call in _calls(source, "DataLoader"):
        where = source.function(call)
        tests = "test" in where or "valid" in where
        if (part == "test") == tests:
            yield call


def _round_loops(checkout: Checkout, source: Source) -> Iterator[tuple[ast.FunctionDef, ast.For]]:
    """Yield the loop over rounds in each `train` of a server."""
    if not _is_server(checkout, source):
        return
    for function in source.all(ast.FunctionDef):
        if function.name == "train":
            loops = [line for line in function.body if isinstance(line, ast.For)]
            yield from ((function, loop) for loop in loops if "rounds" in text_of(loop.iter))


def _first(loop: ast.For, *names: str) -> ast.Attribute | None:
    """Return the first mention of a method in a loop, such as `client.train`, called or handed on."""
    found = [node for node in ast.walk(loop) if isinstance(node, ast.Attribute) and node.attr in names]
    return min(found, key=lambda node: node.lineno, default=None)


# The traps


def _scored_before(checkout: Checkout, source: Source) -> Nodes:
    yield from (scored for scored, trained in _scored(checkout, source) if scored.lineno < trained.lineno)


def _scored_after(checkout: Checkout, source: Source) -> Nodes:
    yield from (scored for scored, trained in _scored(checkout, source) if scored.lineno > trained.lineno)


def _scored(checkout: Checkout, source: Source) -> Iterator[tuple[ast.Attribute, ast.Attribute]]:
    for _, loop in _round_loops(checkout, source):
        scored, trained = _first(loop, "evaluate", "_test_"), _first(loop, "train")
        if scored is not None and trained is not None:
            yield scored, trained


def _best_round(checkout: Checkout, source: Source) -> Nodes:
    if _is_server(checkout, source):
        yield from (call for call in _calls(source, "max") if call.args and "test" in text_of(call.args[0]))


def _threads(checkout: Checkout, source: Source) -> Nodes:
    if _is_server(checkout, source):
        yield from (call for call in _calls(source, "Thread") if _given(call, "target").endswith(".train"))


def _drops_training(checkout: Checkout, source: Source) -> Nodes:
    yield from (call for call in _loaders(source, "train") if _given(call, "drop_last") == "True")


def _keeps_training(checkout: Checkout, source: Source) -> Nodes:
    if _is_client(checkout, source):
        yield from (call for call in _loaders(source, "train") if _given(call, "drop_last") in ("", "False"))


def _drops_tests(checkout: Checkout, source: Source) -> Nodes:
    yield from (call for call in _loaders(source, "test") if _given(call, "drop_last") == "True")


def _same_order(checkout: Checkout, source: Source) -> Nodes:
    if _is_client(checkout, source):
        yield from (call for call in _loaders(source, "train") if _given(call, "shuffle") in ("", "False"))


def _tests_draw(checkout: Checkout, source: Source) -> Nodes:
    yield from (call for call in _loaders(source, "test") if _given(call, "shuffle") == "True")


def _seeds_again(checkout: Checkout, source: Source) -> Nodes:
    for call in _calls(source, "manual_seed", "seed"):
        if source.function(call) == "__init__" and source.around[call]:
            yield call


def _seed_of_the_file(checkout: Checkout, source: Source) -> Nodes:
    for call in _calls(source, "manual_seed", "seed"):
        if not source.around[call] and call.args and isinstance(call.args[0], ast.Constant):
            yield call


def _never_seeded(checkout: Checkout, source: Source) -> Nodes:
    """Yield each draw of NumPy or of Python's own generator, if nothing in the release seeds it."""
    for module, known in (("np.random", "numpy.random"), ("random", "random")):
        seeded = any(
            text_of(call.func) in (f"{module}.seed", f"{known}.seed")
            for every in checkout.sources.values()
            for call in _calls(every, "seed")
        )
        if not seeded:
            for call in source.all(ast.Call):
                if isinstance(call.func, ast.Attribute) and text_of(call.func.value) == module:
                    yield call


def _seed_of_the_round(checkout: Checkout, source: Source) -> Nodes:
    for call in _calls(source, "seed", "manual_seed"):
        later = source.function(call) not in ("", "__init__")
        if later and call.args and not isinstance(call.args[0], ast.Constant):
            yield call


def _drawn_one_by_one(checkout: Checkout, source: Source) -> Nodes:
    if _is_server(checkout, source):
        for node in source.all(ast.Compare):
            if "ratio" in text_of(node) and isinstance(node.ops[0], ast.LtE | ast.Lt):
                yield node


def _all_get_it(checkout: Checkout, source: Source) -> Nodes:
    if _is_server(checkout, source):
        for node in source.all(ast.For):
            if text_of(node.iter) == "self.clients" and source.function(node).startswith("send"):
                yield node


def _by_samples(checkout: Checkout, source: Source) -> Nodes:
    for call in _calls(source, "append"):
        if "weights" in text_of(call.func) and call.args and last_name(call.args[0]) == "train_samples":
            yield call


def _uniform(checkout: Checkout, source: Source) -> Nodes:
    if _is_server(checkout, source):
        for call in _calls(source, "mean"):
            if _given(call, "dim") == "0" and "clients" in text_of(call):
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
    if _is_server(checkout, source):
        for call in _calls(source, "append"):
            kept = text_of(call.args[0]) if call.args else ""
            if kept.startswith(("client.model", "client.heads", "self.clients[")) and "(" not in kept:
                yield call


def _shared_arguments(checkout: Checkout, source: Source) -> Nodes:
    """Yield where a server writes into the arguments, which its clients read from the same object."""
    if _is_server(checkout, source):
        for node in source.all(ast.Attribute):
            written = isinstance(node.ctx, ast.Store) and source.function(node) != "__init__"
            if written and last_name(node.value) == "args":
                yield node


def _shared_messages(checkout: Checkout, source: Source) -> Nodes:
    """Yield where what all clients are sent is one object that is filled again for each of them."""
    if _is_server(checkout, source):
        for call in _calls(source, "copy_"):
            if isinstance(call.func, ast.Attribute) and "comm_vecs" in text_of(call.func.value):
                yield call


def _lasting_optimiser(checkout: Checkout, source: Source) -> Nodes:
    keeps = any(
        text_of(call.func) == "self.clients.append"
        for every in checkout.sources.values()
        for call in _calls(every, "append")
    )
    if keeps and _is_client(checkout, source):
        for node in source.all(ast.Assign):
            if source.function(node) == "__init__" and text_of(node.targets[0]) == "self.optimizer":
                yield node


def _rates_by_layer(checkout: Checkout, source: Source) -> Nodes:
    for node in source.all(ast.Dict):
        given = {text_of(key): text_of(value) for key, value in zip(node.keys, node.values, strict=True)}
        if "'params'" in given and any(sign in given.get("'lr'", "") for sign in "*/"):
            yield node


def _clips(checkout: Checkout, source: Source) -> Nodes:
    yield from _calls(source, "clip_grad_norm_")


def _decays(checkout: Checkout, source: Source) -> Nodes:
    if _is_client(checkout, source):
        for call in _calls(source, "SGD", "Adam", "AdamW"):
            if _given(call, "weight_decay") not in ("", "0"):
                yield call


def _looks_ahead(checkout: Checkout, source: Source) -> Nodes:
    """Yield where a number that the method uses is computed from the number of rounds."""
    for node in source.all(ast.BinOp):
        used = {last_name(side) for side in (node.left, node.right)}
        if used & {"global_rounds", "comm_rounds"} and not _counts_rounds(source, node):
            yield node


def _counts_rounds(source: Source, node: ast.BinOp) -> bool:
    """Return whether a sum is the number of times that the loop over rounds turns."""
    one_more = isinstance(node.op, ast.Add) and text_of(node.right) == "1"
    return one_more and source.function(node) == "train"


def _steps_of_one(checkout: Checkout, source: Source) -> Nodes:
    yield from (node for node in source.all(ast.Subscript) if text_of(node) == "self.datasets.client_x[0]")


def _carried(checkout: Checkout, source: Source) -> Nodes:
    """Yield a local variable that the loop over rounds reads before it sets it."""
    for function, loop in _round_loops(checkout, source):
        names = sorted((node for node in ast.walk(loop) if isinstance(node, ast.Name)), key=position)
        lines = [line for line in function.body if line.lineno < loop.lineno]
        before = {
            node.id
            for line in lines
            for node in ast.walk(line)
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
        }
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


def _true_for_false(checkout: Checkout, source: Source) -> Nodes:
    if source is checkout.entry:
        yield from (call for call in _calls(source, "add_argument") if _given(call, "type") == "bool")


def _by_the_name(checkout: Checkout, source: Source) -> Nodes:
    for node in source.all(ast.Compare):
        named = isinstance(node.ops[0], ast.In) and isinstance(node.left, ast.Constant)
        if named and "dataset" in text_of(node.comparators[0]):
            yield node


def _whole_models(checkout: Checkout, source: Source) -> Nodes:
    for call in _calls(source, "load"):
        if text_of(call.func) == "torch.load" and not _given(call, "weights_only"):
            yield call


def _needs_cuda(checkout: Checkout, source: Source) -> Nodes:
    for call in _calls(source, "cuda"):
        if isinstance(call.func, ast.Attribute) and text_of(call.func.value) != "torch":
            yield call


def _equal_sizes(checkout: Checkout, source: Source) -> Nodes:
    for call in _calls(source, "asarray"):
        if call.args and text_of(call.args[0]) in ("clnt_x", "client_x", "self.client_x", "self.clnt_x"):
            yield call


TRAPS = (
    Trap(
        "scored-before",
        "A round's model is scored before its training, so the last is never scored.",
        _scored_before,
    ),
    Trap("scored-after", "A round's model is scored after its training.", _scored_after),
    Trap("best-round", "The best round on the test data is reported.", _best_round),
    Trap("last-batch-dropped", "The last batch of training is dropped if it is not full.", _drops_training),
    Trap("last-batch-kept", "The last batch of training is kept if it is not full.", _keeps_training),
    Trap(
        "tests-dropped", "The last batch of tests is dropped, so some samples are never scored.", _drops_tests
    ),
    Trap("not-shuffled", "The samples of training keep their order.", _same_order),
    Trap("tests-draw", "The tests are shuffled: how often one tests changes what is trained.", _tests_draw),
    Trap("threads", "Clients train in threads that draw from one generator, so two runs differ.", _threads),
    Trap(
        "seeded-by-clients", "Each new object seeds the generator of the whole process again.", _seeds_again
    ),
    Trap("one-seed", "The seed is written in the file, so repetitions draw the same.", _seed_of_the_file),
    Trap("not-seeded", "Draws from a generator that nothing seeds, so two runs differ.", _never_seeded),
    Trap("seeded-by-round", "A generator is seeded again during the run.", _seed_of_the_round),
    Trap(
        "drawn-one-by-one",
        "Each client takes part with a probability, so their number varies.",
        _drawn_one_by_one,
    ),
    Trap("all-are-sent", "All clients get the model, also those that do not take part.", _all_get_it),
    Trap("mean-by-samples", "The mean weighs clients by their training samples.", _by_samples),
    Trap("mean-uniform", "The mean weighs all clients alike.", _uniform),
    Trap(
        "two-orders", "Uploads are put in a second random order beside lists in the first one.", _other_order
    ),
    Trap(
        "live-parts", "The server keeps parts of clients' own models, which later changes reach.", _live_parts
    ),
    Trap("shared-arguments", "The server changes the arguments that its clients read.", _shared_arguments),
    Trap("shared-messages", "One message is filled again for client after client.", _shared_messages),
    Trap(
        "optimiser-stays",
        "The optimiser lives as long as the client: momentum is carried over.",
        _lasting_optimiser,
    ),
    Trap("rates-by-layer", "Layers have learning rates of their own.", _rates_by_layer),
    Trap("clipped", "Gradients are clipped.", _clips),
    Trap("weight-decay", "Weights decay.", _decays),
    Trap(
        "looks-ahead", "A setting depends on the number of rounds, so a run cannot be extended.", _looks_ahead
    ),
    Trap(
        "steps-of-client-0",
        "The number of local steps of all clients is made from client 0's size.",
        _steps_of_one,
    ),
    Trap(
        "carried-over",
        "A local variable is carried from round to round, so a resumed run may differ.",
        _carried,
    ),
    Trap(
        "trains-after", "After the last round the models are trained once more, then scored.", _after_the_loop
    ),
    Trap("bool-flags", "A flag of type bool is true for every word, also for False.", _true_for_false),
    Trap(
        "by-data-name", "The name of the data set decides, for example which network is built.", _by_the_name
    ),
    Trap(
        "pickled-models",
        "Whole models are loaded, which torch refuses since 2.6 unless it is told to.",
        _whole_models,
    ),
    Trap("needs-cuda", "A GPU is required whatever the device is.", _needs_cuda),
    Trap("equal-sizes", "All clients must have equally many samples.", _equal_sizes),
)
