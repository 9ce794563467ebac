"""Draw a partition: clients across, classes down, totals in the margins, and missing classes left blank."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from raffed.data.files import IntArray
from raffed.data.partition_file import Partition
from raffed.errors import UsageError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

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
