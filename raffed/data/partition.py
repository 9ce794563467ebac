"""Make and draw partitions: a split and a seed determine which samples each client holds, and the server.

The picture has clients across, classes down, totals in the margins, and missing classes left blank.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from raffed.data.files import IntArray
from raffed.data.partition_file import Lists, Partition, Recipe, labels_sha256, repeats
from raffed.data.randomness import stream
from raffed.data.split import LabelPool, Split
from raffed.errors import UsageError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def make_partition(
    split: Split,
    labels: IntArray,
    num_classes: int,
    groups: IntArray | None,
    seed: int,
    local_test: float | None = None,
    test_labels: IntArray | None = None,
    test_groups: IntArray | None = None,
) -> Partition:
    """Divide a training pool among clients. Code of the user's divides it twice, and must repeat itself.

    Args:
        split: The split, from `parse_split` or made by its class.
        labels: Labels of the training pool, int64 [N], values 0 to num_classes - 1.
        num_classes: Number of classes C.
        groups: The natural client of every sample, int64 [N]. Used by `natural` only.
        seed: Decides everything that is random; at least 0.
        local_test: Share f in [0, 0.9] of each client's samples that is kept for testing: the first max(int(f
            n), 1) of its n shuffled samples, not stratified. 0 keeps none. None means the split's
            `default_local_test`. A split that brings its own test parts accepts only None.
        test_labels: Labels of the benchmark's test set, from which `equal` and `stages` take their test
            parts.
        test_groups: The natural client of every test sample, int64, -1 for none. `natural` clients then test
            on their own test samples, unless `local_test` is given.

    Returns:
        The partition, with its recipe.

    Raises:
        UsageError: These data cannot be divided in this way, an argument is out of range, or a split of the
            user's draws other lists from the same seed.

    Example:
        >>> import numpy as np
        >>> labels = np.arange(100) % 10
        >>> make_partition(parse_split("iid:5"), labels, 10, None, seed=0).num_clients
        5
    """
    return divided(split, LabelPool(labels, num_classes, groups, test_labels, test_groups), seed, local_test)


def divided(split: Split, pool: LabelPool, seed: int, local_test: float | None) -> Partition:
    """Do what `make_partition` does, with labels and natural clients in one record."""
    pool.check(seed)
    if split.brings_tests and local_test is not None:
        raise UsageError(f"{split.text} brings its own local test parts; leave local_test out")
    partition = split.partition(pool, seed, local_test)
    if split.is_own and split.partition(pool, seed, local_test).sha256() != partition.sha256():
        raise UsageError(
            f"{split.seed_rule}: seed {seed} gave other lists the second time, so the run could not be "
            "resumed or verified"
        )
    return partition


def held_out(partition: Partition, share: float, seed: int) -> Partition:
    """Move a share of each client's training samples to its validation part.

    A client moves max(int(share n), 1) of its n samples. They are drawn from the seed alone and are not
    stratified; the others keep their order. A client with one training sample keeps it. A partition that
    already has validation parts is returned as it is.

    Args:
        partition: The partition without validation parts.
        share: Share of the samples; 0 returns the partition as it is.
        seed: Decides which samples are moved.

    Raises:
        UsageError: The data come in stages, clients have samples twice, or no client has two training
            samples.
    """
    if share == 0 or partition.val:
        return partition
    if partition.recipe.get("doubled"):
        raise UsageError(
            f"data.validation = {share}: clients have samples twice, and train on what is held out; use 0"
        )
    if partition.stages is not None:
        raise UsageError(
            f"data.validation = {share}: clients whose data come in stages have no validation part; use 0"
        )
    draws = stream(seed, "validation")
    train, val = [], []
    for indices in partition.train:
        count = min(max(int(share * len(indices)), 1), len(indices) - 1)
        chosen = np.zeros(len(indices), dtype=bool)
        chosen[draws.permutation(len(indices))[:count]] = True
        train.append(indices[~chosen])
        val.append(indices[chosen])
    if not any(len(part) for part in val):
        raise UsageError(
            f"data.validation = {share}: no client has two training samples, so none can be held out; use 0"
        )
    recipe: Recipe = {**partition.recipe, "validation": share}
    return replace(partition, train=tuple(train), val=tuple(val), recipe=recipe)


# Labelled samples that the server holds and no client has. They are removed before the pool is divided.


def draw_server_holdout(labels: IntArray, num_classes: int, per_class: int, seed: int) -> IntArray:
    """Return the ascending indices of `per_class` samples of every class, drawn from the seed alone.

    A class keeps at least one sample for the clients.
    """
    if per_class == 0:  # returns early, also if a class has no sample
        return np.empty(0, np.int64)
    draws, chosen = stream(seed, "reserve"), []
    for label in range(num_classes):
        held = np.flatnonzero(labels == label)
        if per_class >= len(held):
            raise UsageError(
                f"the server needs {per_class} samples of class {label}, but there are only {len(held)}; "
                "ask for fewer"
            )
        chosen.append(draws.permutation(held)[:per_class])
    return np.sort(np.concatenate(chosen)).astype(np.int64)


def partition_beside(
    holdout: IntArray, split: Split, pool: LabelPool, seed: int, local_test: float | None = None
) -> Partition:
    """Apply `make_partition` to a pool without the samples `holdout`. Indices are those of the whole pool.

    A split that stores its lists loses these samples afterwards. `recipe["reserved"]` is the number of
    samples removed.
    """
    if not len(holdout):
        return divided(split, pool, seed, local_test)
    if split.stores_lists:
        return _without(divided(split, pool, seed, local_test), holdout)
    rest = np.setdiff1d(np.arange(len(pool.labels)), holdout)
    who = pool.clients
    owners = None if who is None else who[rest]
    if split.name == "natural" and who is not None and len(gone := np.setdiff1d(who, who[rest])):
        raise UsageError(
            f"the server's rule would take all training samples of client {gone[0]}; let it ask for fewer"
        )
    few = divided(split, replace(pool, labels=pool.labels[rest], clients=owners), seed, local_test)
    recipe = few.recipe | {
        "samples": len(pool.labels),
        "labels_sha256": labels_sha256(pool.labels),
        "reserved": len(holdout),
    }
    test = tuple(rest[part] for part in few.test) if few.test_pool == "train" else few.test
    return replace(few, train=tuple(rest[part] for part in few.train), test=test, recipe=recipe)


def _without(whole: Partition, holdout: IntArray) -> Partition:
    """Return the partition without `holdout` in the lists of the training pool, with the lengths of its
    stages.
    """
    kept = [~np.isin(part, holdout) for part in whole.train]
    train = tuple(part[stays] for part, stays in zip(whole.train, kept, strict=True))
    test = _less(whole.test, holdout) if whole.test_pool == "train" else whole.test
    val, when = _less(whole.val, holdout), whole.stages
    if when is not None:
        starts = np.cumsum(when.train, axis=1) - when.train
        lengths = [
            np.add.reduceat(stays.astype(np.int64), at) for stays, at in zip(kept, starts, strict=True)
        ]
        when = replace(when, train=np.stack(lengths))
        if when.train.min() < 1:
            raise UsageError(
                "the server's rule would take all training samples of a client's stage; let it ask for fewer"
            )
    listed = np.concatenate([*train, *val, *(test if whole.test_pool == "train" else ())])
    recipe: Recipe = {**whole.recipe, "reused": repeats([listed]), "reserved": len(holdout)}
    if "doubled" in whole.recipe:
        recipe["doubled"] = repeats(train)
    return replace(whole, train=train, test=test, val=val, stages=when, recipe=recipe)


def _less(lists: Lists, holdout: IntArray) -> Lists:
    return tuple(part[~np.isin(part, holdout)] for part in lists)


MISSING = "#ffffff"  # colour of a class that the client does not have
FEW, MANY = 0.28, 1.0  # the used part of the colour map, in which even one sample is clearly not white
BAR = "#5b7f95"
LONG = 5  # characters of a client's name that stand beside each other
MAX_NUMBERED = 20  # with more clients, counts no longer fit into the cells


def draw_partition(
    partition: Partition,
    labels: IntArray,
    path: str | Path,
    class_names: Sequence[str] | None = None,
    client_names: Sequence[str] = (),
) -> None:
    """Draw how many training samples of each class each client has.

    Args:
        partition: The partition.
        labels: Labels of the training pool, int64 [N].
        path: The picture's file; its ending (png, svg or pdf) decides the format.
        class_names: One name for each class, in label order; by default the numbers.
        client_names: Names of the natural clients of the data. They are shown if these are the clients.

    Raises:
        UsageError: The number of names is wrong.
    """
    import matplotlib.style

    counts = partition.class_counts(labels).T
    names = [str(label) for label in range(len(counts))] if class_names is None else list(class_names)
    if len(names) != len(counts):
        raise UsageError(f"{len(names)} class names for {len(counts)} classes")
    # Whatever the user's own settings are. Names are texts and no formulas
    with matplotlib.style.context(["default", {"text.parse_math": False}]):
        figure, heat, above, right = _canvas(*counts.shape)
        _draw_counts(figure, heat, counts)
        _label_axes(heat, names, partition.client_names(client_names))
        above.bar(np.arange(counts.shape[1]), counts.sum(axis=0), color=BAR, width=0.85)
        above.set_ylabel("samples\nper client", fontsize=9)
        right.barh(np.arange(counts.shape[0]), counts.sum(axis=1), color=BAR, height=0.85)
        right.set_xlabel("samples per class", fontsize=9)
        figure.suptitle(_title(partition, counts), fontsize=10)
        figure.savefig(Path(path), dpi=150)


def _canvas(classes: int, clients: int) -> tuple[Figure, Axes, Axes, Axes]:
    """Make a figure with the heat map, the bars above it and the bars to its right."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    numbered = clients <= MAX_NUMBERED
    width = min(max(clients * (0.55 if numbered else 0.11), 4.5), 16.0)
    height = min(max(classes * (0.36 if classes <= 20 else 0.14), 2.6), 10.0)
    figure = Figure(figsize=(width + 3.6, height + 2.2), layout="constrained")
    FigureCanvasAgg(figure)
    grid = figure.add_gridspec(2, 2, width_ratios=[width, 1.4], height_ratios=[0.9, height])
    heat = figure.add_subplot(grid[1, 0])
    above = figure.add_subplot(grid[0, 0], sharex=heat)
    right = figure.add_subplot(grid[1, 1], sharey=heat)
    for axes in (above, right):
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(labelsize=8)
        axes.tick_params(which="minor", length=0)
    above.tick_params(labelbottom=False)
    right.tick_params(labelleft=False, axis="y")
    return figure, heat, above, right


def _draw_counts(figure: Figure, heat: Axes, counts: IntArray) -> None:
    """Draw the cells on a logarithmic scale, blank for missing classes, with numbers if there is room."""
    import matplotlib
    from matplotlib.colors import LinearSegmentedColormap, LogNorm

    shades = matplotlib.colormaps["YlGnBu"](np.linspace(FEW, MANY, 256))
    colours = LinearSegmentedColormap.from_list("few to many", shades)
    most = max(int(counts.max()), 2)
    least = min(int(counts[counts > 0].min()), max(most // 4, 1))  # so that 140 and 147 look alike
    image = heat.imshow(
        np.ma.masked_equal(counts, 0),
        cmap=colours,
        norm=LogNorm(least, most),
        aspect="auto",
        interpolation="nearest",
    )
    heat.set_facecolor(MISSING)
    bar = figure.colorbar(image, ax=figure.axes, fraction=0.03, pad=0.02, aspect=30, format="{x:.0f}")
    bar.set_label("training samples (white: class missing)", fontsize=9)
    bar.set_ticks(_round_numbers(least, most))
    bar.ax.tick_params(labelsize=8)
    bar.ax.minorticks_off()
    if max(counts.shape) <= MAX_NUMBERED:
        _write_counts(heat, counts, dark=float(least * most) ** 0.5)


def _write_counts(heat: Axes, counts: IntArray, dark: float) -> None:
    """Write the number into each cell, white above `dark`, and a faint dash for a missing class."""
    for (label, client), count in np.ndenumerate(counts):
        colour = "#c0c0c0" if count == 0 else "white" if count > dark else "black"
        heat.text(
            client, label, str(count) if count else "–", ha="center", va="center", fontsize=8, color=colour
        )


def _round_numbers(least: int, most: int) -> list[int]:
    """Return those of the numbers 1, 2, 5, 10, 20, ... that lie in least..most, or both ends if they are too
    few.
    """
    candidates = [digit * 10**power for power in range(len(str(most))) for digit in (1, 2, 5)]
    inside = [number for number in candidates if least <= number <= most]
    return inside if len(inside) > 1 else [least, most]


def _label_axes(heat: Axes, names: Sequence[str], owners: Sequence[str]) -> None:
    clients = len(owners)
    heat.set_xticks(np.arange(-0.5, clients), minor=True)
    heat.set_yticks(np.arange(-0.5, len(names)), minor=True)
    heat.grid(which="minor", color="#d8d8d8", linewidth=0.6 if clients <= MAX_NUMBERED else 0.25)
    heat.tick_params(which="minor", length=0)
    every = 1 if clients <= MAX_NUMBERED else 10 if clients <= 200 else 50
    long = max(map(len, owners)) > LONG
    heat.set_xticks(np.arange(0, clients, every), owners[::every], rotation=90 if long else 0)
    heat.set_yticks(np.arange(len(names)), names)
    heat.tick_params(which="major", labelsize=8 if len(names) <= 20 else 6)
    heat.set_xlabel("client", fontsize=9)
    heat.set_ylabel("class", fontsize=9)


def _title(partition: Partition, counts: IntArray) -> str:
    """Describe the partition and give the numbers that a reader would otherwise count by hand."""
    held = np.count_nonzero(counts, axis=0).astype(np.int64)
    sizes = counts.sum(axis=0)
    recipe = partition.recipe
    label = f"{recipe['split']}, seed {recipe['seed']}" if {"split", "seed"} <= recipe.keys() else "partition"
    return (
        f"{label} · {len(held)} clients × {len(counts)} classes · sha256 {partition.sha256()[:12]}\n"
        f"classes per client: {_range(held)} · training samples per client: {_range(sizes)}"
    )


def _range(values: IntArray) -> str:
    low, high = int(values.min()), int(values.max())
    return f"{low}" if low == high else f"{low} to {high}, mean {values.mean():.1f}"
