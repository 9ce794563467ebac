"""`raffed methods`, `datasets`, `models`, `metrics` and `splits`: lists of what there is.

Neither torch nor pandas is imported, unless data must be loaded.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from raffed.config.source import described
from raffed.errors import UsageError, check_choice
from raffed.results.visible import visible

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from raffed.config.validation import Declaration
    from raffed.data.dataset import Dataset
    from raffed.data.partition import Partition

SHOWN_CLIENTS = 20


def methods(
    name: Annotated[
        str | None, typer.Argument(help="Method, or reference to yours, whose arguments are shown.")
    ] = None,
) -> None:
    """List the methods, those of installed packages too, or show the arguments of one."""
    from raffed.cli.tables import show
    from raffed.methods import METHODS, method_name
    from raffed.methods.own import GROUP
    from raffed.references.names import entry_points

    if name is not None:
        _show_method(method_name(name))
        return
    rows = [(key, info.title, info.source, info.idea) for key, info in METHODS.items()]
    rows += [
        (one.name, one.reference, f"package {one.package}", "")
        for one in entry_points(GROUP).values()
        if one.name not in METHODS
    ]
    show(("name", "method", "source", "idea"), rows)
    typer.echo("raffed methods NAME shows arguments and defaults.")


def _show_method(name: str) -> None:
    from raffed.methods import method_info

    info = method_info(name)
    found = info.described()
    about = f"{info.title} ({info.source}): {info.idea}\n\n{found.paper}\n\n{found.doc}"
    typer.echo(visible(about))
    if found.arguments:
        _show_arguments(found.arguments)
        first = found.arguments[0]
        typer.echo(f"Set one: raffed run --method {name} --set {first.name}={first.shown_default or 'VALUE'}")
    else:
        typer.echo(f"\nNo arguments: raffed run --method {name}")


def _show_arguments(arguments: Sequence[Declaration]) -> None:
    from raffed.cli.tables import show

    rows = [(one.name, one.shown_kind, str(one.range or ""), one.shown_default, one.doc) for one in arguments]
    show(("argument", "type or choices", "range", "default", "meaning"), rows)


def datasets(
    name: Annotated[str | None, typer.Argument(help="Data set whose files are shown.")] = None,
) -> None:
    """List the data sets and where their files come from, or show one."""
    from raffed.cli.tables import show, show_pairs
    from raffed.data.catalogue import ALIASES, DATASETS, dataset_name
    from raffed.data.importers.kinds import KINDS

    rows = {}
    for key, info in DATASETS.items():
        also = [alias for alias, of in ALIASES.items() if of == key]
        sizes = (f"{n:,}" if n else "as found" for n in (info.num_train, info.num_test))
        shape = "x".join(map(str, info.shape))
        rows[key] = (key, ", ".join(also), str(info.num_classes), shape, *sizes, info.origin)
    titles = ("name", "also", "classes", "image", "train", "test", "origin")
    if name is None:
        show(titles, rows.values(), right="classes|train|test")
        typer.echo("`raffed doctor` says which of them can be used here; digits always can.")
        typer.echo("Data of your own (docs/own_data.md):")
        show(("--dataset", "what it reads"), [(one.example, one.meaning) for one in KINDS.values()])
        return
    key = dataset_name(name)
    files = ", ".join(file.path for file in DATASETS[key].files) or DATASETS[key].folder
    about = [
        *zip(titles, rows[key], strict=True),
        ("class names", ", ".join(DATASETS[key].class_names)),
        ("files", files),
    ]
    show_pairs(((title, text) for title, text in about if text), title=DATASETS[key].title)
    typer.echo(f"Use it: raffed run --dataset {key}")


def models(name: Annotated[str | None, typer.Argument(help="Network to show.")] = None) -> None:
    """List the networks and their layers, or show one."""
    from raffed.cli.tables import show, show_pairs
    from raffed.models import MODELS

    rows = {
        key: (
            key,
            info.title,
            " ".join("x".join(map(str, shape)) for shape in info.in_shapes),
            info.layers,
            info.source,
        )
        for key, info in MODELS.items()
    }
    titles = ("name", "network", "inputs in papers", "layers (C: classes)", "source")
    if name is None:
        show(titles, rows.values())
        typer.echo("raffed models NAME shows arguments and defaults.")
    else:
        key = check_choice("model", name.strip().lower(), MODELS)
        found = described(f"raffed.models.{MODELS[key].module}", key)
        show_pairs(zip(titles, rows[key], strict=True))
        typer.echo(f"\n{found.doc.partition('Args:')[0].strip()}")
        _show_arguments(found.arguments)
        first = found.arguments[0]
        typer.echo(f"Use it: raffed run --model {key} --model-arg {first.name}={first.shown_default}")


def metrics(
    name: Annotated[str | None, typer.Argument(help="Metric whose rows are explained.")] = None,
) -> None:
    """List what runs measure, or show one metric: unit, rows and meaning."""
    from raffed.cli.tables import show, show_pairs
    from raffed.results.metrics import METRICS, metric_lines

    titles = ("name", "model", "split", "rows", "unit", "better", "when", "meaning")
    if name is None:
        show(titles[:-2], [line[:-2] for line in metric_lines()])
        typer.echo("raffed metrics NAME shows when a metric is measured, and what its values mean.")
        return
    known = [f"{one.name}N" if one.numbered else one.name for one in METRICS]
    key = check_choice("metric", name.strip(), dict.fromkeys(known))
    for line in metric_lines(METRICS.named(key.removesuffix("N"))):
        show_pairs(zip(titles, line, strict=True))


def splits(
    split: Annotated[str | None, typer.Argument(help="Split to show, such as p10c2.")] = None,
    dataset: Annotated[str, typer.Option("--dataset", help="Data set to divide.")] = "digits",
    seed: Annotated[int, typer.Option("--seed", help="Seed of the split.")] = 0,
    local_test: Annotated[
        float | None, typer.Option("--local-test", help="Fraction of samples held out for local tests.")
    ] = None,
    data_root: Annotated[str | None, typer.Option("--data-root", help="Folder of the data sets.")] = None,
    download: Annotated[bool, typer.Option("--download", help="Download missing data files.")] = False,
    draw: Annotated[
        Path | None, typer.Option("--draw", help="File for a drawing of the split: png, svg or pdf.")
    ] = None,
    save: Annotated[
        Path | None, typer.Option("--save", help="File to save the split in, for --split file:PATH.")
    ] = None,
    export_to: Annotated[
        str | None,
        typer.Option(
            "--export",
            metavar="KIND:PLACE",
            help="Write the samples for pfllib:DIR, flwr:DIR or csv:FILE.csv.",
        ),
    ] = None,
) -> None:
    """List the ways to divide data, or show one: who has what."""
    if split is None:
        if draw or save or export_to:
            raise UsageError(
                "--draw, --save and --export need a split, as in: raffed splits p10c2 --draw out.png"
            )
        _list_splits()
        return
    from raffed.data.partition import make_partition
    from raffed.data.splits import parse_split

    parsed, pool = parse_split(split), _pool(dataset, data_root, download)
    tests = pool.y_test, pool.test_clients
    partition = make_partition(parsed, pool.y, pool.num_classes, pool.clients, seed, local_test, *tests)
    _show_split(partition, pool.y)
    if draw is not None:
        _draw(partition, pool, draw)
    if save is not None:
        with _writing(save):
            partition.save(save)
        typer.echo(visible(f"saved: {save}; use it with --split file:{save}"))
    if export_to is not None:
        _export(partition, pool, export_to)


def _pool(dataset: str, root: str | None, download: bool) -> Dataset:
    from raffed.config.run import Data, RunConfig
    from raffed.data.own_data import checked_name
    from raffed.runtime.data_source import load_data

    return load_data(RunConfig(data=Data(dataset=checked_name(dataset), root=root, download=download)))[0]


def _export(partition: Partition, pool: Dataset, target: str) -> None:
    from raffed.data.export import DividedData, export

    pools = {"train": (pool.x, pool.y), "test": (pool.x_test, pool.y_test)}
    split = str(partition.recipe.get("split", "from a file"))
    lists = partition.train, partition.test, partition.test_pool
    divided = DividedData.of(pools, *lists, pool.num_classes, split)
    typer.echo(visible(f"exported: {export(divided, target)}"))


def _list_splits() -> None:
    from raffed.cli.tables import show
    from raffed.data.splits import SPLITS

    show(("split", "write", "meaning"), [(one.name, one.syntax, one.meaning) for one in SPLITS.values()])
    typer.echo(
        "raffed splits p10c2 --dataset digits --draw out.png divides a data set in this way and draws "
        "the result."
    )


def _show_split(partition: Partition, labels: NDArray[np.int64]) -> None:
    """Show one line per client (the first ones only), then sizes and hash."""
    from raffed.cli.tables import show, show_pairs

    counts = partition.class_counts(labels)
    rows = [
        (str(client), str(row.sum()), str(len(partition.test[client])), str((row > 0).sum()), _classes(row))
        for client, row in enumerate(counts[:SHOWN_CLIENTS])
    ]
    show(
        ("client", "train", "local test", "classes", "samples of class"),
        rows,
        right="client|train|local test|classes",
    )
    sizes, held = counts.sum(1), (counts > 0).sum(1)
    more = f" (first {SHOWN_CLIENTS} above)" if len(counts) > SHOWN_CLIENTS else ""
    pairs = [
        ("split", f"{partition.recipe.get('split', 'from a file')}"),
        ("clients", f"{len(counts)}{more}"),
        ("training samples", f"{sizes.sum():,}: {_range(sizes)} a client"),
        ("classes", f"{_range(held)} a client, of {partition.num_classes}"),
        *_stages(partition),
        ("sha256", partition.sha256()),
    ]
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


def _classes(row: NDArray[np.int64]) -> str:
    found = [f"{label}:{n}" for label, n in enumerate(row.tolist()) if n]
    return "  ".join(found[:12]) + (" …" if len(found) > 12 else "")


def _draw(partition: Partition, pool: Dataset, path: Path) -> None:
    from raffed.data.picture import draw_partition

    if path.suffix.lower() not in (".png", ".svg", ".pdf"):
        raise UsageError(f"--draw {path}: the name must end in .png, .svg or .pdf")
    with _writing(path):
        draw_partition(partition, pool.y, path, pool.class_names or None)
    typer.echo(visible(f"drawing: {path}"))


@contextlib.contextmanager
def _writing(path: Path) -> Iterator[None]:
    """Turn a failure to write a file into a one-line error that names it."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        raise UsageError(f"{path}: cannot be written ({error.strerror})") from error
