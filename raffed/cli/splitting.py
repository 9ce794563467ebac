"""`raffed splits`: list the ways to divide data, or show, draw, save or export one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from raffed.cli.config import assignments
from raffed.cli.listing import show_installed
from raffed.cli.options import DataRoot
from raffed.cli.tables import show, show_pairs
from raffed.config.run import RunConfig
from raffed.errors import UsageError, writing
from raffed.results.text import tell

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from raffed.data.dataset import Dataset
    from raffed.data.partition_file import Partition
    from raffed.data.split import Split

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
    from raffed.data.importers.pfllib import export

    split = str(partition.recipe.get("split", "from a file"))
    divided = pool.divided(partition.train, partition.test, partition.test_pool, split)
    tell(f"exported: {export(divided, target)}")


def _list_splits() -> None:
    from raffed.data.own_split import GROUP, OwnSplit
    from raffed.data.splits import SPLITS

    every: list[type[Split]] = [*SPLITS.values(), OwnSplit]
    show(("split", "write", "meaning"), [(one.name, one.syntax, one.meaning) for one in every])
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
    sizes, held = counts.sum(1), (counts > 0).sum(1)
    more = f" (first {SHOWN_CLIENTS} above)" if len(counts) > SHOWN_CLIENTS else ""
    pairs = [
        ("split", f"{partition.recipe.get('split', 'from a file')}"),
        ("clients", f"{len(counts)}{more}"),
        ("training samples", f"{sizes.sum():,}: {_range(sizes)} a client"),
        ("classes", f"{_range(held)} a client, of {partition.num_classes}"),
        *_stages(partition),
        ("sha256", partition.sha256()),
        ("sha256 of the training lists", partition.lists_sha256()),
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


def _classes(row: NDArray[np.int64], names: Sequence[str]) -> str:
    found = [f"{name}:{n}" for name, n in zip(names, row.tolist(), strict=True) if n]
    return "  ".join(found[:12]) + (" …" if len(found) > 12 else "")


def _draw(partition: Partition, pool: Dataset, path: Path) -> None:
    from raffed.data.picture import draw_partition

    if path.suffix.lower() not in (".png", ".svg", ".pdf"):
        raise UsageError(f"--draw {path}: the name must end in .png, .svg or .pdf")
    with writing(path, "--draw"):
        path.parent.mkdir(parents=True, exist_ok=True)
        draw_partition(partition, pool.y, path, pool.class_names or None, pool.facts.client_names)
    tell(f"drawing: {path}")
