"""Compute what a method needs to match the best accuracy of a baseline: rounds, bytes, virtual time."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pandas as pd

from raffed.results.metrics import TEST_ACCURACY, TRAINING_LOSS, VIRTUAL_SECONDS

from ..runs.comparable import differences, why_not
from ..runs.groups import Group
from ..runs.load import Runs, named
from ..table import TextTable

BASELINE = "fedavg"


def is_baseline(group: Group) -> bool:
    """Return whether a group's method is FedAvg, by whatever name it is shown."""
    return (group.reference or group.label.split()[0]) == BASELINE


def baseline_of(runs: Runs, members: Sequence[Group]) -> Group | None:
    """Return the experiment with FedAvg; of several the first one that is comparable with most of its task.

    None if FedAvg was not run.
    """
    return _first([group for group in members if is_baseline(group)], runs)


def _first(members: Sequence[Group], runs: Runs) -> Group | None:
    """Return the first experiment that may be compared with most of its task, or the first one at all."""
    return next((group for group in members if not why_not(runs, group)), next(iter(members), None))


def first_reaching(curve: pd.Series[float], target: float) -> float:
    """Return the first round at which a curve is at or above the target; NaN if there is none."""
    reached = curve.index[curve >= target]
    return float(reached[0]) if len(reached) else math.nan


def target_table(runs: Runs, members: Sequence[Group]) -> TextTable | None:
    """Return the rounds and MB to the baseline's best accuracy of the same seed; None without a baseline.

    The MB count both directions and all participants. Runs with a virtual clock also have the seconds on it.
    The baseline is FedAvg, or the first method of the task if FedAvg was not run. The baseline's own line is
    noisy, because it crosses its own maximum. A method that may not be compared with the baseline, or that
    does not reach its accuracy in every seed, has no numbers.
    """
    if len(members) < 2:
        return None
    matrix, sent = runs.matrix(TEST_ACCURACY), runs.once("bytes by round", lambda: sent_bytes(runs))
    baseline = baseline_of(runs, members) or _first(members, runs) or members[0]
    seeds = {str(name): seed for name, seed in runs.runs["seed"].items()}
    targets = {seeds[name]: float(matrix[name].max()) for name in baseline.used if name in matrix}
    if not targets:
        return None
    lines, clock = [], runs.matrix(VIRTUAL_SECONDS)
    timed = any(name in clock for group in members for name in group.used)
    for group in members:
        if differences(runs, group, baseline, measure="rounds_to_baseline"):
            lines.append([group.label, "–", "not comparable", "–", *["–"] * timed])
            continue
        pairs = [
            (name, targets[seeds[name]]) for name in group.used if name in matrix and seeds[name] in targets
        ]
        if not pairs:
            why = "no common seed" if any(name in matrix for name in group.used) else "not measured"
            lines.append([group.label, "–", why, "–", *["–"] * timed])
            continue
        rounds = {name: first_reaching(matrix[name], target) for name, target in pairs}
        reached = {name: number for name, number in rounds.items() if not math.isnan(number)}
        line = [group.label, f"{len(reached)}/{len(rounds)}"]
        if len(reached) < len(rounds):  # a mean over the seeds that reach it would favour who seldom does
            lines.append([*line, "not by all" if reached else "never", "–", *["–"] * timed])
            continue
        line += _means(reached, sent)
        lines.append([*line, _seconds(reached, clock)] if timed else line)
    titles = ["Method", "Seeds that reach it", f"Rounds to {baseline.label}'s best", "MB to it"]
    titles += ["Virtual seconds to it"] * timed
    return TextTable(titles, lines, frozenset({"Method"}))


def _means(reached: dict[str, float], sent: pd.DataFrame) -> list[str]:
    """Return mean rounds and bytes over the seeds, all of which reach the target."""
    totals = [sent[name].loc[:number].sum() for name, number in reached.items() if name in sent]
    rounds = sum(reached.values()) / len(reached)
    return [f"{rounds:.1f}", _in_digits(sum(totals) / len(totals) / 1e6) if totals else "–"]


def _seconds(reached: dict[str, float], clock: pd.DataFrame) -> str:
    """Return the mean seconds on the virtual clock over the seeds, all of which reach the target."""
    seconds = [float(clock[name].loc[number]) for name, number in reached.items() if name in clock]
    return _in_digits(sum(seconds) / len(seconds)) if seconds else "–"


def _in_digits(value: float) -> str:
    """Write a number with one digit after the point, and a small one with three digits, never as nothing."""
    return f"{value:.1f}" if value >= 10 or not value else f"{value:.3g}"


def sent_bytes(runs: Runs) -> pd.DataFrame:
    """Return round × run: the bytes of all participants in both directions, in that round."""
    rows = runs.series(TRAINING_LOSS)
    rows = rows.assign(bytes=rows["bytes_up"].fillna(0) + rows["bytes_down"].fillna(0))
    frame: pd.DataFrame = named(rows).pivot_table(index="round", columns="run", values="bytes", observed=True)
    return frame
