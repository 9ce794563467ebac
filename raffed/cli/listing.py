"""`raffed methods`, `datasets`, `models`, `metrics`: lists of what there is, and what was read of own data.

Neither torch nor pandas is imported, unless something of the user's own must be loaded.
"""

from __future__ import annotations

import inspect
import json
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from raffed.cli.messages import counted, percent
from raffed.cli.options import AsJson, completed, documented
from raffed.cli.tables import show, show_pairs
from raffed.config.source import described
from raffed.errors import check_choice
from raffed.methods import METHODS, method_name
from raffed.results.text import tell

if TYPE_CHECKING:
    from raffed.config.validation import Declaration
    from raffed.data.dataset import Dataset
    from raffed.data.importers.imported import EncodedColumn
    from raffed.own.gate import EntryPoint
    from raffed.results.run_list import RunLine

# `raffed datasets TEXT` for data of one's own: what was read, and how.


MethodName = Annotated[str | None, typer.Argument(autocompletion=completed(METHODS))]
SHOWN = 50
SHOWN_CATEGORIES = 8
THINGS = {"images": "image", "table": "row", "arrays": "sample"}


def show_own(text: str) -> None:
    """Read data of one's own, and show their size, classes, clients and columns.

    Raises:
        UsageError: They cannot be used.
    """
    from raffed.data.own_data import read_own

    data = read_own(text)
    facts = data.facts
    show_pairs(_about(data), title=text)
    classes = Counter(data.y.tolist()), Counter(data.y_test.tolist())
    names = data.class_names or tuple(map(str, range(data.num_classes)))
    _show_counts("class", names, *classes)
    if data.clients is not None:
        count = int(data.clients.max()) + 1
        tests = Counter(data.test_clients.tolist()) if data.test_clients is not None else None
        owners = facts.client_names or tuple(map(str, range(count)))
        _show_counts("client", owners, Counter(data.clients.tolist()), tests)
    if facts.columns:
        kinds = [(one, "categories" if one.categories else "numbers") for one in facts.columns[:SHOWN]]
        rows = [(one.name, kind, _encoding(one)) for one, kind in kinds]
        show(("column", "read as", "what the network gets"), rows)
        _more(len(facts.columns), "column")
    for note in facts.notes:
        tell(f"note: {note}")
    split = "iid:10" if data.clients is None else "natural"
    tell(f"Use it: raffed run --dataset '{text}' --split {split}")


def _about(data: Dataset) -> list[tuple[str, str]]:
    thing = THINGS[data.facts.kind]
    shape = "x".join(map(str, data.input_shape))
    held = {"uint8": "pixels", "float32": "numbers", "int64": "ids"}[str(data.x.dtype)]
    tests = f", in the test part {data.x_test.min():g} to {data.x_test.max():g}" if len(data.x_test) else ""
    found = [
        ("training part", counted(len(data.x), thing)),
        ("test part", counted(len(data.x_test), thing) if len(data.x_test) else "none"),
        ("one input", f"{shape} {held} ({data.x.dtype}), {data.x.min():g} to {data.x.max():g}{tests}"),
        ("classes", f"{data.num_classes}" + (f", in column {data.facts.label}" if data.facts.label else "")),
    ]
    if data.clients is not None:
        column = f", in column {data.facts.client}" if data.facts.client else ""
        found.append(("clients", f"{int(data.clients.max()) + 1}{column}"))
    else:
        found.append(("clients", "none are named; every split but natural can be used"))
    return found


def _show_counts(
    what: str,
    names: tuple[str, ...],
    train: Counter[int],
    test: Counter[int] | None,
) -> None:
    rows = [
        (str(number), name, f"{train[number]:,}", "" if test is None else f"{test[number]:,}")
        for number, name in enumerate(names[:SHOWN])
    ]
    show(("number", what, "training", "test"), rows, right="number|training|test")
    _more(len(names), what)


def _more(count: int, what: str) -> None:
    if count > SHOWN:
        plural = "classes" if what == "class" else f"{what}s"
        tell(f"The first {SHOWN} of {count:,} {plural} are shown.")


def _encoding(column: EncodedColumn) -> str:
    if not column.categories:
        return f"(value - {column.mean:.6g}) / {column.std:.6g}"
    shown = ", ".join(column.categories[:SHOWN_CATEGORIES])
    more = ", …" if len(column.categories) > SHOWN_CATEGORIES else ""
    return f"0 or 1 for each of {len(column.categories)} categories: {shown}{more}"


def methods(name: MethodName = None) -> None:
    """List the methods, those of installed packages too, or show the arguments of one.

    Args:
        name: Method, or reference to yours, whose arguments are shown.
    """
    from raffed.methods.own import GROUP

    if name is not None:
        _show_method(method_name(name))
        return
    rows = [(key, info.title, info.source, info.idea, info.scored) for key, info in METHODS.items()]
    rows += [
        (one.name, one.reference, f"package {one.package}", "", "") for one in _installed(GROUP, METHODS)
    ]
    show(("name", "method", "source", "idea", "scored"), rows)
    tell(
        "scored: where clients download models of their own, whether accuracy is taken before training.",
        "raffed methods NAME shows arguments and defaults.",
    )


def _installed(group: str, known: Collection[str]) -> list[EntryPoint]:
    """Return the short names of installed packages that do not stand for something of raffed's."""
    from raffed.own.gate import entry_points

    return [one for one in entry_points(group).values() if one.name not in known]


def show_installed(group: str, known: Collection[str], title: str) -> None:
    """Show the short names of installed packages, if there are any."""
    rows = [(one.name, one.reference, one.package) for one in _installed(group, known)]
    if rows:
        tell("Of installed packages:")
        show((title, "reference", "package"), rows)


def _show_method(name: str) -> None:
    from raffed.methods import method_info

    info = method_info(name)
    found = info.described()
    about = f"{info.title} ({info.source}): {info.idea}\n\n{found.paper}\n\n{found.doc}"
    tell(*about.splitlines())
    if found.arguments:
        _show_arguments(found.arguments)
        first = found.arguments[0]
        tell(f"Set one: raffed run --method {name} --set {first.name}={first.shown_default or 'VALUE'}")
    else:
        tell("", f"No arguments: raffed run --method {name}")


def _show_arguments(arguments: Sequence[Declaration]) -> None:
    rows = [(one.name, one.shown_kind, str(one.range or ""), one.shown_default, one.doc) for one in arguments]
    show(("argument", "type or choices", "range", "default", "meaning"), rows)


def datasets(name: str | None = None) -> None:
    """List the data sets and where their files come from, or show one.

    Data of your own are read, and their classes, clients, test part and columns are shown.

    Args:
        name: Data set to show; also your own, such as csv:FILE?label=y.
    """
    from raffed.data.catalogue import ALIASES, DATASETS, GROUP
    from raffed.data.importers.reference import KINDS

    rows = {}
    for key, info in DATASETS.items():
        also = [alias for alias, of in ALIASES.items() if of == key]
        sizes = (f"{n:,}" if n else "as found" for n in (info.num_train, info.num_test))
        shape = "x".join(map(str, info.shape))
        rows[key] = (key, ", ".join(also), str(info.num_classes), shape, *sizes, info.origin)
    titles = ("name", "also", "classes", "image", "train", "test", "origin")
    if name is None:
        show(titles, rows.values(), right="classes|train|test")
        tell("`raffed doctor` says which of them can be used here; digits always can.")
        show_installed(GROUP, {*DATASETS, *ALIASES}, "--dataset")
        tell("Data of your own (docs/own_data.md):")
        show(("--dataset", "what it reads"), [(one.example, one.meaning) for one in KINDS.values()])
        return
    key = name.strip().lower()
    key = ALIASES.get(key, key)
    if key not in DATASETS:
        from raffed.data.own_data import checked_name  # late, because it loads NumPy

        key = checked_name(name)

        show_own(key)
        return
    files = ", ".join(file.path for file in DATASETS[key].files) or DATASETS[key].folder
    about = [
        *zip(titles, rows[key], strict=True),
        ("class names", ", ".join(DATASETS[key].class_names)),
        ("files", files),
    ]
    show_pairs(((title, text) for title, text in about if text), title=DATASETS[key].title)
    tell(f"Use it: raffed run --dataset {key}")


def models(name: str | None = None) -> None:
    """List the networks and their layers, or show one.

    Args:
        name: Network to show, or reference to yours.
    """
    from raffed.models import MODELS
    from raffed.models.catalogue import GROUP, is_own, model_name

    def row(key: str) -> tuple[str, ...]:
        info = MODELS[key]
        shapes = " ".join("x".join(map(str, shape)) for shape in info.in_shapes)
        return key, shapes, info.layers, info.source

    titles = ("name", "inputs in papers", "layers (C: classes)", "source")
    if name is None:
        show(titles, map(row, MODELS))
        show_installed(GROUP, MODELS, "--model")
        tell("raffed models NAME shows arguments and defaults.")
    elif is_own(key := model_name(name)):
        from raffed.models.own.factories import factory_of

        tell(f"{key}{inspect.signature(factory_of(key))}")
        tell(f"Check it: raffed check {key}", f"Use it: raffed run --model {key}")
    else:
        found = MODELS[key].described
        show_pairs(zip(titles, row(key), strict=True))
        tell("", *found.doc.partition("Layers:")[0].strip().splitlines())
        every = described("raffed.models.last_layers", "last_layers").arguments
        _show_arguments([*found.arguments, *every])
        first = found.arguments[0]
        tell(f"Use it: raffed run --model {key} --model-arg {first.name}={first.shown_default}")


def metrics(name: str | None = None) -> None:
    """List what runs measure, or show one metric: unit, rows and meaning.

    Args:
        name: Metric whose rows are explained, or reference to yours.
    """
    from raffed.core.measures.own_metric import GROUP, own_metric
    from raffed.own.located import is_reference
    from raffed.results.metrics import METRICS, metric_lines

    titles = ("name", "model", "split", "rows", "unit", "better", "when", "meaning")
    if name is None:
        show(titles[:-2], [line[:-2] for line in metric_lines()])
        show_installed(GROUP, (), "--metric")
        tell("raffed metrics NAME shows when a metric is measured, and what its values mean.")
        return
    if is_reference(reference := name.strip()):
        show_pairs(own_metric(reference).described().items())
        tell(f"Measure it: raffed run --metric {reference}")
        return
    known = {one.name if one.named else one.title: one.name for one in METRICS}
    key = check_choice("metric", name.strip(), known)
    for line in metric_lines(METRICS.named(known[key])):
        show_pairs(zip(titles, line, strict=True))


runs = typer.Typer(no_args_is_help=True, help="Show what a folder of runs holds.")


@runs.command(
    "list", help="List the runs at or below a folder: method, data, split, seed, state, rounds and accuracy."
)
@documented
def list_runs(folder: Path = Path("runs"), *, as_json: AsJson = False) -> None:
    """List the runs at or below a folder: method, data, split, seed, state, rounds and accuracy.

    Args:
        folder (DIR): Folder that holds runs.
    """
    from raffed.results.run_list import run_lines

    found = list(run_lines(folder))
    if as_json:
        for line in found:
            tell(json.dumps(asdict(line)))
        return
    titles = ("run", "method", "data", "split", "seed", "state", "rounds", "accuracy")
    if found:
        show(titles, [_cells(line) for line in found], right="seed|rounds|accuracy")
    for line in found:
        if line.note:
            tell(f"{line.path}: {line.note}", error=True)
    tell(f"{counted(len(found), 'run')} in {folder}")


def _cells(line: RunLine) -> tuple[str, ...]:
    seed = "" if line.seed is None else str(line.seed)
    rounds = f"{line.done}/{line.rounds}" if line.rounds else ""
    accuracy = "" if line.accuracy is None else percent(line.accuracy)
    return line.path, line.method, line.data, line.split, seed, line.state, rounds, accuracy
