"""Say at the top of a report what was run, when, by which version, and with which commands."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from .metrics.compare import LEVEL, MethodDifference, differences_to, p_text, signed
from .metrics.intervals import LEAST_SEEDS
from .metrics.targets import baseline_of
from .reproduction.item_runs import Reproduction
from .runs.comparable import differences, partition_hashes
from .runs.files import JsonObject
from .runs.groups import Group, groups, lost_seeds, method_titles
from .runs.load import Runs, section

NAMED = 4  # methods, tasks or items that are named one by one
COMMIT = 10  # letters of a commit
TESTED = {"accuracy_last": "aggregation", "personal_last": "personalization"}


class Heading(NamedTuple):
    """What a report says of itself.

    Attributes:
        title: what was run.
        when: when the runs began; empty if no run says so.
        versions: the versions of raffed that computed the runs, with their commits.
        commands: the commands that made the runs, in the order of time.
        unnamed: how many runs name no command.
    """

    title: str
    when: str
    versions: list[str]
    commands: list[str]
    unnamed: int


def heading(runs: Runs, items: Sequence[Reproduction] = (), whole: Runs | None = None) -> Heading:
    """Return what stands above a report on these runs and items; `whole` also has the trials of sweeps, whose
    command may be the first request that the others continue.
    """
    files = [runs.files[str(name)] for name in runs.runs.index]
    begun = [started for part in _parts(files) if (started := _text(part, "started"))]
    return Heading(
        title(runs, items),
        _span(begun),
        few_versions(_each(_version(part, file) for file in files for part in segments(file)[-1:])),
        _each(_text(part, "command") for part in _parts((whole or runs).files.values())),
        sum(not any(_text(part, "command") for part in segments(file)) for file in files),
    )


def _parts(files: Iterable[JsonObject]) -> list[JsonObject]:
    """Return the parts of runs in the order of time."""
    return sorted(
        (part for file in files for part in segments(file)), key=lambda part: _text(part, "started")
    )


def first_lines(runs: Runs) -> list[tuple[str, list[str]]]:
    """Return for each task the sentences with which a report begins: who is above FedAvg and who is below."""
    tasks: dict[tuple[str, str], list[Group]] = {}
    for group in groups(runs):
        tasks.setdefault(group.task, []).append(group)
    told = ((" · ".join(task), _verdicts(runs, members)) for task, members in tasks.items())
    return [(task, lines) for task, lines in told if lines]


def _verdicts(runs: Runs, members: Sequence[Group]) -> list[str]:
    """Return a sentence about each of the two accuracies, and one about what so few seeds cannot show."""
    baseline = baseline_of(runs, members)
    if len(members) < 2 or baseline is None:
        return ["FedAvg was not run, so no method is tested against a baseline."] if len(members) > 1 else []
    unlike = [group.label for group in members if differences(runs, group, baseline)]
    failed = [group.label for group in members if lost_seeds(runs, group)]
    barred = {group.label for group in (members if baseline.label in failed else [baseline])}
    sound = {group.label: group for group in members if group.label not in {*barred, *unlike, *failed}}
    tests = {name: differences_to(runs, members, metric, baseline.label) for metric, name in TESTED.items()}
    known = {name: [row for row in rows if row.label in sound] for name, rows in tests.items()}
    lines = [_verdict(name, rows, baseline.label) for name, rows in known.items() if rows]
    if unlike:
        lines.append(f"Not comparable with {baseline.label}: {listed(unlike, 'rows')}.")
    if failed:
        lines.append(f"Not tested, because of failed runs: {listed(failed, 'rows')}.")
    if not sound:
        return lines
    mine = partition_hashes(runs, baseline).keys()
    seeds = max(len(mine & partition_hashes(runs, group).keys()) for group in sound.values())
    if seeds < LEAST_SEEDS:
        few = ("they share no seed", "one seed is too few for a test", "two seeds are too few for a test")
        return [*lines, f"What differs cannot be known: {few[seeds]}, and three are the least."]
    least = 2 / 2**seeds
    if least > LEVEL:
        lines.append(f"With {seeds} seeds the p-value of the sign test cannot be below {least:.2g}.")
    return lines


def _verdict(name: str, rows: Sequence[MethodDifference], baseline: str) -> str:
    sure = [row for row in rows if row.p_holm < LEVEL]
    above = [_numbers(row) for row in sure if row.difference.mean > 0]
    below = [_numbers(row) for row in sure if row.difference.mean < 0]
    parts = [
        f"{listed(those, 'methods', '; ')} {'is' if len(those) == 1 else 'are'} {where} {baseline}"
        for those, where in ((above, "above"), (below, "below"))
        if those
    ]
    rest = [row for row in rows if not row.p_holm < LEVEL]
    if rest:
        least = min((row.p_holm for row in rest if row.p_holm == row.p_holm), default=math.nan)
        tested = "not tested" if math.isnan(least) else f"p ≥ {p_text(least)}"
        seeds = _each(f"{row.difference.seeds}" for row in rest)
        who = listed([row.label for row in rest], "methods")
        parts.append(
            f"no difference to {baseline} is shown for {who} ({tested}, {' or '.join(seeds)} seed"
            f"{'' if seeds == ['1'] else 's'})"
        )
    return f"In {name}, {'; '.join(parts)}."


def _numbers(row: MethodDifference) -> str:
    p = p_text(row.p_holm)
    equal = "" if p.startswith("<") else "= "
    return f"{row.label} ({signed(row.difference.mean)} points, p {equal}{p}, {row.difference.seeds} seeds)"


def title(runs: Runs, items: Sequence[Reproduction] = ()) -> str:
    """Return what was run, in a few words: the items, or the methods and the tasks."""
    if items:
        return listed([item.title for item in items], "items of papers", "; ")
    return f"{_methods(runs)} on {_tasks(groups(runs))}"


def _methods(runs: Runs) -> str:
    titles = method_titles(runs)
    methods = dict.fromkeys(str(method) for method in runs.runs["method"])
    return listed([titles.get(method, method) or "an unknown method" for method in methods], "methods")


def _tasks(members: Sequence[Group]) -> str:
    tasks = dict.fromkeys(group.task for group in members)
    texts = [f"{data or 'unknown data'} · {partition or 'unknown partition'}" for data, partition in tasks]
    return listed(texts, "tasks")


def listed(names: Sequence[str], what: str, between: str = ", ") -> str:
    """Write a few names one by one, and many as their number."""
    if len(names) > NAMED:
        return f"{len(names)} {what}"
    *before, last = names
    return f"{between.join(before)} and {last}" if before else last


def segments(file: JsonObject) -> list[JsonObject]:
    """Return the parts in which a run was computed."""
    parts = file.get("segments")
    return [part for part in parts if isinstance(part, Mapping)] if isinstance(parts, list) else []


def _version(part: JsonObject, file: JsonObject) -> str:
    version, commit = _text(section(part, "versions"), "raffed"), _text(file, "commit")
    short = commit[:COMMIT] + ("+" if commit.endswith("+") and len(commit) > COMMIT else "")
    return f"raffed {version or 'of an unknown version'}" + (f", commit {short}" if short else "")


def few_versions(names: Sequence[str]) -> list[str]:
    """Return versions with their commits, or of many commits their number. Each run names its own."""
    if len(names) <= NAMED:
        return list(names)
    counts = Counter(name.partition(",")[0] for name in names)
    return [f"{name}, {count} commits" if count > 1 else name for name, count in counts.items()]


def _span(begun: Sequence[str]) -> str:
    first, last = (_minute(begun[0]), _minute(begun[-1])) if begun else ("", "")
    return first if first == last else f"{first} to {last}"


def _minute(moment: str) -> str:
    """Write 2026-11-25T10:12:33+00:00 as 2026-11-25 10:12 UTC, and leave other texts as they are."""
    day, at, time = moment.partition("T")
    return f"{day} {time[:5]} UTC" if at and moment.endswith(("+00:00", "Z")) else moment


def _text(about: JsonObject, name: str) -> str:
    text = about.get(name)
    return text if isinstance(text, str) else ""


def _each(texts: Iterable[str]) -> list[str]:
    return [text for text in dict.fromkeys(texts) if text]
