"""`raffed methods`, `datasets`, `models`, `metrics`, `splits`: what there is, and what was read of own data.

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

from raffed.cli.config import assignments
from raffed.cli.messages import counted, percent
from raffed.cli.options import AsJson, DataRoot, completed
from raffed.cli.tables import show, show_pairs
from raffed.config.run import RunConfig
from raffed.config.source import described
from raffed.errors import UsageError, check_choice, writing
from raffed.methods import METHODS, method_info, method_name
from raffed.results.text import tell

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from raffed.config.validation import Declaration
    from raffed.data.dataset import Dataset
    from raffed.data.importers.imported import EncodedColumn
    from raffed.data.partition_file import Partition
    from raffed.data.split import Split
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
        kinds = [(field, "categories" if field.categories else "numbers") for field in facts.columns[:SHOWN]]
        rows = [(column.name, kind, _encoding(column)) for column, kind in kinds]
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
    rows = [
        ("training part", counted(len(data.x), thing)),
        ("test part", counted(len(data.x_test), thing) if len(data.x_test) else "none"),
        ("one input", f"{shape} {held} ({data.x.dtype}), {data.x.min():g} to {data.x.max():g}{tests}"),
        ("classes", f"{data.num_classes}" + (f", in column {data.facts.label}" if data.facts.label else "")),
    ]
    if data.clients is not None:
        column = f", in column {data.facts.client}" if data.facts.client else ""
        rows.append(("clients", f"{int(data.clients.max()) + 1}{column}"))
    else:
        rows.append(("clients", "none are named; every split but natural can be used"))
    return rows


def _show_counts(what: str, names: tuple[str, ...], train: Counter[int], test: Counter[int] | None) -> None:
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
        (code.name, code.reference, f"package {code.package}", "", "") for code in _installed(GROUP, METHODS)
    ]
    show(("name", "method", "source", "idea", "scored"), rows)
    tell(
        "scored: where clients download models of their own, whether accuracy is taken before training.",
        "raffed methods NAME shows arguments and defaults.",
    )


def _installed(group: str, known: Collection[str]) -> list[EntryPoint]:
    """Return the short names of installed packages that do not stand for something of raffed's."""
    from raffed.own.gate import entry_points

    return [entry for entry in entry_points(group).values() if entry.name not in known]


def show_installed(group: str, known: Collection[str], title: str) -> None:
    """Show the short names of installed packages, if there are any."""
    rows = [(entry.name, entry.reference, entry.package) for entry in _installed(group, known)]
    if rows:
        tell("Of installed packages:")
        show((title, "reference", "package"), rows)


def _show_method(name: str) -> None:

    info = method_info(name)
    description = info.described()
    about = f"{info.title} ({info.source}): {info.idea}\n\n{description.paper}\n\n{description.doc}"
    tell(*about.splitlines())
    if description.arguments:
        _show_arguments(description.arguments)
        first = description.arguments[0]
        tell(f"Set one: raffed run --method {name} --set {first.name}={first.shown_default or 'VALUE'}")
    else:
        tell("", f"No arguments: raffed run --method {name}")


def _show_arguments(arguments: Sequence[Declaration]) -> None:
    rows = [(arg.name, arg.shown_kind, str(arg.range or ""), arg.shown_default, arg.doc) for arg in arguments]
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
        show(("--dataset", "what it reads"), [(kind.example, kind.meaning) for kind in KINDS.values()])
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
    from raffed.models import MODELS, is_own, model_name
    from raffed.models.own import GROUP

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
        description = MODELS[key].described
        show_pairs(zip(titles, row(key), strict=True))
        tell("", *description.doc.partition("Layers:")[0].strip().splitlines())
        every = described("raffed.models.last_layers", "last_layers").arguments
        _show_arguments([*description.arguments, *every])
        first = description.arguments[0]
        tell(f"Use it: raffed run --model {key} --model-arg {first.name}={first.shown_default}")


def metrics(name: str | None = None) -> None:
    """List what runs measure, or show one metric: unit, rows and meaning.

    Args:
        name: Metric whose rows are explained, or reference to yours.
    """
    from raffed.core.own_functions import METRIC_GROUP, own_metric
    from raffed.own.located import is_reference
    from raffed.results.metrics import METRICS, metric_lines

    titles = ("name", "model", "split", "rows", "unit", "better", "when", "meaning")
    if name is None:
        show(titles[:-2], [line[:-2] for line in metric_lines()])
        show_installed(METRIC_GROUP, (), "--metric")
        tell("raffed metrics NAME shows when a metric is measured, and what its values mean.")
        return
    if is_reference(reference := name.strip()):
        show_pairs(own_metric(reference).described().items())
        tell(f"Measure it: raffed run --metric {reference}")
        return
    known = {metric.name if metric.named else metric.title: metric.name for metric in METRICS}
    key = check_choice("metric", name.strip(), known)
    for line in metric_lines(METRICS.named(known[key])):
        show_pairs(zip(titles, line, strict=True))


# `raffed splits`: list the ways to divide data, or show, draw, save or export one.


SHOWN_CLIENTS = 20


def splits(
    split: str | None = None,
    *,
    split_arg: list[str] | None = None,
    dataset: str = "digits",
    pool_of: str = "train",
    seed: int = 0,
    local_test: float | None = None,
    data_root: DataRoot = None,
    download: bool = False,
    draw: Path | None = None,
    save: Path | None = None,
    export_to: str | None = None,
) -> None:
    """List the ways to divide data, or show one: who has what.

    Args:
        split: Split to show, such as p10c2.
        split_arg (NAME=VALUE): Argument of your own split; repeat.
        dataset: Data set to divide.
        pool_of (--pool): Samples to divide: train, or joined with the test part.
        seed: Seed of the split.
        local_test: Fraction of samples held out for local tests.
        download: Download missing data files.
        draw: File for a drawing of the split: png, svg or pdf.
        save: File to save the split in, for --split file:PATH.
        export_to (--export KIND:PLACE): Write the samples for pfllib:DIR or flwr:DIR.
    """
    if split is None:
        if draw or save or export_to:
            raise UsageError(
                "--draw, --save and --export need a split, as in: raffed splits p10c2 --draw out.png"
            )
        _list_splits()
        return
    from raffed.data.partition import make_partition
    from raffed.data.splits import parse_split

    parsed = parse_split(split, assignments(split_arg or []))
    pool = _pool(dataset, data_root, download, pool_of)
    tests = pool.y_test, pool.test_clients
    with pool.naming(split):
        partition = make_partition(parsed, pool.y, pool.num_classes, pool.clients, seed, local_test, *tests)
    _show_split(partition, pool)
    if draw is not None:
        _draw(partition, pool, draw)
    if save is not None:
        with writing(save, "--save"):
            save.parent.mkdir(parents=True, exist_ok=True)
            partition.save(save)
        tell(f"saved: {save}; use it with --split file:{save}")
    if export_to is not None:
        _export(partition, pool, export_to)


def _pool(dataset: str, root: str | None, download: bool, part: str) -> Dataset:
    from raffed.data.own_data import checked_name
    from raffed.runtime.setup_model import load_data

    data = {"dataset": checked_name(dataset), "root": root, "download": download, "pool": part}
    return load_data(RunConfig.from_dict({"data": data}).data)[0]


def _export(partition: Partition, pool: Dataset, target: str) -> None:
    from raffed.data.importers.client_folders import export

    split = str(partition.recipe.get("split", "from a file"))
    divided = pool.divided(partition.train, partition.test, partition.test_pool, split)
    tell(f"exported: {export(divided, target)}")


def _list_splits() -> None:
    from raffed.data.splits import GROUP, SPLITS, OwnSplit

    every: list[type[Split]] = [*SPLITS.values(), OwnSplit]
    show(("split", "write", "meaning"), [(split.name, split.syntax, split.meaning) for split in every])
    show_installed(GROUP, SPLITS, "--split")
    tell(
        "raffed splits p10c2 --dataset digits --draw out.png divides a data set in this way and draws "
        "the result."
    )


def _show_split(partition: Partition, pool: Dataset) -> None:
    """Show one line per client (the first ones only), then sizes and hash."""
    counts = partition.class_counts(pool.y)
    names = pool.class_names or tuple(map(str, range(pool.num_classes)))
    clients = partition.client_names(pool.facts.client_names)
    rows = [
        (clients[client], str(row.sum()), str(len(tests)), str((row > 0).sum()), _classes(row, names))
        for client, (row, tests) in enumerate(zip(counts[:SHOWN_CLIENTS], partition.test, strict=False))
    ]
    show(
        ("client", "train", "local test", "classes", "samples of class"),
        rows,
        right="client|train|local test|classes",
    )
    sizes, held, reused = counts.sum(1), (counts > 0).sum(1), partition.recipe.get("reused")
    more = f" (first {SHOWN_CLIENTS} above)" if len(counts) > SHOWN_CLIENTS else ""
    pairs = (
        ("split", f"{partition.recipe.get('split', 'from a file')}"),
        ("clients", f"{len(counts)}{more}"),
        ("training samples", f"{sizes.sum():,}: {_range(sizes)} a client"),
        ("classes", f"{_range(held)} a client, of {partition.num_classes}"),
        *_stages(partition),
        *([("samples reused", f"{reused:,} times")] if reused else []),
        ("sha256", partition.sha256()),
        ("sha256 of the training lists", partition.lists_sha256()),
    )
    show_pairs(pairs)


def _stages(partition: Partition) -> list[tuple[str, str]]:
    """Describe how a client's data change over the stages, if they do."""
    stages = partition.stages
    if stages is None:
        return []
    stale = partition.recipe.get("stale")
    note = f"; {stale} of the later ones bring no new class" if stale else ""
    return [("stages", f"{stages.count} of {_range(stages.train)} samples, {stages.order} order{note}")]


def _range(values: NDArray[np.int64]) -> str:
    low, high = int(values.min()), int(values.max())
    return f"{low}" if low == high else f"{low} to {high}"


def _classes(row: NDArray[np.int64], names: Sequence[str]) -> str:
    counts = [f"{name}:{n}" for name, n in zip(names, row.tolist(), strict=True) if n]
    return "  ".join(counts[:12]) + (" …" if len(counts) > 12 else "")


def _draw(partition: Partition, pool: Dataset, path: Path) -> None:
    from raffed.data.partition import draw_partition

    if path.suffix.lower() not in (".png", ".svg", ".pdf"):
        raise UsageError(f"--draw {path}: the name must end in .png, .svg or .pdf")
    with writing(path, "--draw"):
        path.parent.mkdir(parents=True, exist_ok=True)
        draw_partition(partition, pool.y, path, pool.class_names or None, pool.facts.client_names)
    tell(f"drawing: {path}")


# `raffed runs`.


runs = typer.Typer(no_args_is_help=True, help="Show what a folder of runs holds.")


def list_runs(folder: Path = Path("runs"), *, as_json: AsJson = False) -> None:
    """List the runs at or below a folder: method, data, split, seed, state, rounds and accuracy.

    Args:
        folder (DIR): Folder that holds runs.
    """
    from raffed.results.run_list import run_lines

    lines = list(run_lines(folder))
    if as_json:
        for line in lines:
            tell(json.dumps(asdict(line)))
        return
    titles = ("run", "method", "data", "split", "seed", "state", "rounds", "accuracy")
    if lines:
        show(titles, [_cells(line) for line in lines], right="seed|rounds|accuracy")
    for line in lines:
        if line.note:
            tell(f"{line.path}: {line.note}", error=True)
    tell(f"{counted(len(lines), 'run')} in {folder}")


def _cells(line: RunLine) -> tuple[str, ...]:
    seed = "" if line.seed is None else str(line.seed)
    rounds = f"{line.done}/{line.rounds}" if line.rounds else ""
    accuracy = "" if line.accuracy is None else percent(line.accuracy)
    return line.path, line.method, line.data, line.split, seed, line.state, rounds, accuracy
