"""Views by class: what is forgotten, and the accuracy on classes that are rare, held or missing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from raffed.results.metrics import TEST_ACCURACY

from ..runs.comparable import marked
from ..runs.groups import Group
from ..runs.load import Runs, rows_of
from ..table import TextTable
from .intervals import reported_interval

HEAD, TAIL = 1 / 3, 1 / 3  # The shares of the classes that count as head and tail.
ClassCurve = npt.NDArray[np.float64]


def class_curves(runs: Runs, run: str) -> pd.DataFrame:
    """Return the accuracy of the global model, rounds x classes.

    It is empty if the run measured no classes.
    """
    part = runs.once("class rows", lambda: _class_rows(runs)).get(run)
    if part is None:
        return pd.DataFrame()
    rounds, classes, values = part
    names = np.unique(classes)
    if len(values) % len(names) == 0 and np.array_equal(classes, np.resize(names, len(values))):
        # This is much faster than pivot.
        return pd.DataFrame(values.reshape(-1, len(names)), rounds[:: len(names)], names)
    frame = pd.DataFrame({"round": rounds, "class": classes, "value": values})
    return frame.pivot_table(index="round", columns="class", values="value")


def _class_rows(runs: Runs) -> dict[str, tuple[ClassCurve, ClassCurve, ClassCurve]]:
    """Map each run to rounds, classes and test accuracies of its global model, sorted by round and class."""
    rows = runs.metrics
    rows = rows[rows_of(rows, TEST_ACCURACY) & rows["class"].notna()]
    names, codes = rows["run"].cat.categories, rows["run"].cat.codes.to_numpy()
    columns = [rows[name].to_numpy(np.float64) for name in ("round", "class", "value")]
    order = np.lexsort((columns[1], columns[0], codes))
    edges = np.searchsorted(codes[order], np.arange(len(names) + 1))
    parts = [np.split(column[order], edges[1:-1]) for column in columns]
    return {str(name): (a, b, c) for name, a, b, c in zip(names, *parts, strict=True) if len(a)}


def forgetting(curves: ClassCurve) -> float:
    """Return the mean over classes of (best accuracy of an earlier round − last accuracy).

    The input is rounds x classes. A result of 0 or less means that nothing was forgotten. NaN for one round.
    Classes without test samples, which are NaN, do not count. This is the measure of continual learning
    (Chaudhry et al. 2018) with rounds in place of tasks.
    """
    known = curves[:, ~np.isnan(curves[-1]) & ~np.isnan(curves[:-1]).all(axis=0)]
    return _mean(np.nanmax(known[:-1], axis=0) - known[-1]) if known.size else math.nan


def class_groups(samples: Sequence[int]) -> dict[str, list[int]]:
    """Return the classes with the most, middling and fewest training samples, a third each.

    The result is empty if all classes have the same number of samples.
    """
    if not samples or max(samples) < 1.5 * max(min(samples), 1):
        return {}
    order = sorted(range(len(samples)), key=lambda c: (-samples[c], c))
    head, tail = round(HEAD * len(order)), len(order) - round(TAIL * len(order))
    return {"head": sorted(order[:head]), "medium": sorted(order[head:tail]), "tail": sorted(order[tail:])}


def held_and_missing(accuracy: Sequence[float], holders: Sequence[int], clients: int) -> tuple[float, float]:
    """Return the mean accuracy over all pairs of a client and a class it holds, and over all other pairs.

    Classes without test samples, whose accuracy is NaN, do not count. A mean without pairs is NaN.
    """
    scores, held = np.asarray(accuracy, float), np.asarray(holders, float)
    known = ~np.isnan(scores)
    scores, held = scores[known], held[known]
    return _weighted(scores, held), _weighted(scores, clients - held)


def _weighted(scores: ClassCurve, weights: ClassCurve) -> float:
    total = float(weights.sum())
    return float((scores * weights).sum() / total) if total else math.nan


def _mean(values: ClassCurve) -> float:
    """Return the mean of the numbers; NaN without any."""
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else math.nan


def class_table(runs: Runs, members: Sequence[Group]) -> TextTable | None:
    """Return a table of accuracy by kind of class, and of forgetting, for each method.

    Return None if no run measured classes.
    """
    rows = [(marked(runs, group), [_views(runs, name) for name in group.used]) for group in members]
    names = [
        name
        for name in ("head", "medium", "tail", "held", "missing", "forgetting")
        if any(name in view for _, views in rows for view in views)
    ]
    if not names:
        return None
    lines = [
        [label, *(_cell([view[name] for view in views if name in view]) for name in names)]
        for label, views in rows
    ]
    return TextTable(
        ["Method", *(f"{name} %" if name != "forgetting" else "forgetting, points" for name in names)],
        lines,
        frozenset({"Method"}),
    )


def _views(runs: Runs, name: str) -> dict[str, float]:
    curves = class_curves(runs, name)
    if curves.empty:
        return {}
    last = curves.to_numpy(np.float64)[-1]
    views = {"forgetting": forgetting(curves.to_numpy(np.float64))}
    about = _said(runs, name, len(last))
    if about:
        for word, classes in class_groups(about["samples"]).items():
            views[word] = _mean(last[classes])
        views["held"], views["missing"] = held_and_missing(last.tolist(), about["holders"], about["clients"])
    return {word: 100 * value for word, value in views.items() if not math.isnan(value)}


def _said(runs: Runs, name: str, classes: int) -> dict[str, Any]:
    """Return the samples and the holders of every class, from run.json.

    They are left out if they are not there or their number is wrong.
    """
    counts = runs.files[name].get("classes")
    clients = runs.files[name].get("clients")
    if (
        not isinstance(counts, dict)
        or not isinstance(clients, int)
        or not {"samples", "holders"} <= set(counts)
    ):
        return {}
    if not all(_counts(counts[what], classes) for what in ("samples", "holders")):
        return {}
    return {"samples": counts["samples"], "holders": counts["holders"], "clients": clients}


def _counts(values: object, classes: int) -> bool:
    return (
        isinstance(values, list)
        and len(values) == classes
        and all(type(value) is int and value >= 0 for value in values)
    )


def _cell(values: Sequence[float]) -> str:
    if not values:
        return "–"
    mean, half = sum(values) / len(values), reported_interval(values)
    text = f"{mean:.1f}".replace("-", "−")
    return text if math.isnan(half) else f"{text} ± {half:.1f}"
