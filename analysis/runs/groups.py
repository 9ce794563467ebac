"""Group runs that repeat one experiment with other seeds, choose one for each seed, and label the groups."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, NamedTuple

from .experiment import experiment
from .files import JsonObject
from .load import Runs, flatten, section
from .origins import origin

_NEEDED = ["method", "dataset", "partition", "seed", "state", "rounds_done", "partition_sha256", "damage"]
_THE_TASK = ("method", "data.dataset", "data.split")

# Data set, partition, method, configuration with own code and data, mark of the partition where one is needed
_Key = tuple[str, str, str, str, str]


class Group(NamedTuple):
    """Runs whose configurations differ only in the seed and in the way they were executed.

    They also have the same own code and data, and the same revision of their method.

    Attributes:
        label: the method, and the settings that distinguish it from its other groups of the same task.
        used: the runs behind the numbers, one for each seed. Only finished runs with all their rows are used
            if there are any.
        state: how many runs are in each state. All runs of the group are counted.
        left_out: (run, reason) of the group's other runs.
        names: all names of the partition, if it has several.
        reference: the method's reference, if the label has its title instead.
        contradicted_by: the runs that repeat a seed of `used` and have other results.
    """

    label: str
    dataset: str
    partition: str
    used: tuple[str, ...]
    state: str
    left_out: tuple[tuple[str, str], ...] = ()
    names: str = ""
    reference: str = ""
    contradicted_by: tuple[str, ...] = ()

    @property
    def task(self) -> tuple[str, str]:
        """The data set and the partition, which together make up one table.

        analysis/runs/comparable.py decides which groups of a table may be compared.
        """
        return self.dataset, self.names or self.partition


def groups(runs: Runs) -> list[Group]:
    """Return every group, ordered by task and label."""
    return runs.once("groups", lambda: _groups(runs))


def _groups(runs: Runs) -> list[Group]:
    members: dict[_Key, list[str]] = {}
    about: dict[str, Row] = {
        str(row["run"]): {**row, "hashes": section(runs.files[str(row["run"])], "hashes")}
        for row in runs.runs[_NEEDED].reset_index().to_dict("records")
    }
    origins = {name: origin(runs.files[name]) for name in about}
    for name, row in about.items():
        parts = [experiment(runs.files[name]), origins[name]]
        text = json.dumps(parts, sort_keys=True, default=str)
        members.setdefault((row["dataset"], row["partition"], row["method"], text, ""), []).append(name)
    members = {
        (*key[:4], mark): names
        for key, all_names in members.items()
        for mark, names in by_partition(key[1], {name: about[name] for name in all_names}).items()
    }
    configs = [
        flatten(experiment(runs.files[names[0]]))
        | origins[names[0]].marks
        | ({"partition": key[4]} if key[4] else {})
        for key, names in members.items()
    ]
    titles = method_titles(runs)
    one_task = _one_task(
        [
            (key[0], key[1], {str(about[name]["partition_sha256"]) for name in names})
            for key, names in members.items()
        ]
    )
    labels = _labels(list(members), configs, titles, one_task)
    grouped = []
    for (dataset, partition, method, *_), names, label in zip(members, members.values(), labels, strict=True):
        rows = {name: about[name] for name in names}
        used = chosen(rows)
        others = tuple((name, why_left_out(name, rows)) for name in names if name not in used)
        grouped.append(
            Group(
                label,
                dataset,
                partition,
                used,
                states(rows),
                others,
                one_task[dataset, partition],
                method if method in titles else "",
                tuple(contradictions(used, rows)),
            )
        )
    return sorted(grouped)


def by_partition(split: str, rows: Rows) -> dict[str, list[str]]:
    """Separate runs of one configuration whose partitions only share a name.

    The keys are marks, and "" if all runs have the same partition. A partition that is drawn has another hash
    for each seed. A partition from a file has the same hash for all seeds. Two runs of one seed must agree.
    """
    seen: list[dict[float, str]] = []  # seed → hash
    sets: list[list[str]] = []
    from_file = split.startswith("file:")
    for name, row in rows.items():
        seed, digest = (0 if from_file else row["seed"]), str(row["partition_sha256"])
        unknown = () if from_file else ("",)
        fits = (
            i
            for i, shas in enumerate(seen)
            if shas.get(seed, digest) in (digest, *unknown) or digest in unknown
        )
        place = next(fits, None)
        if place is None:
            place = len(seen)
            seen.append({})
            sets.append([])
        seen[place].setdefault(seed, digest)
        sets[place].append(name)
    if len(sets) == 1 and not (from_file and next(iter(seen[0].values()))):
        return {"": sets[0]}
    return {
        next(iter(shas.values()))[:8] or "not recorded": names for shas, names in zip(seen, sets, strict=True)
    }


def _one_task(known: Sequence[tuple[str, str, set[str]]]) -> dict[tuple[str, str], str]:
    """Map (data set, partition) to all names of that partition, drawn ones first.

    The text is "" unless one of the names is a file.
    """
    names: dict[tuple[str, str], set[str]] = {
        (dataset, partition): {partition} for dataset, partition, _ in known
    }
    for dataset, partition, hashes in known:
        for other_set, other, also in known:
            if (
                dataset == other_set
                and (hashes & also) - {""}
                and any(name.startswith("file:") for name in (partition, other))
            ):
                joined = names[dataset, partition] | names[dataset, other]
                names |= {(dataset, name): joined for name in joined}
    return {
        key: " = ".join(sorted(several, key=lambda name: (name.startswith("file:"), name)))
        if len(several) > 1
        else ""
        for key, several in names.items()
    }


def _labels(
    keys: Sequence[_Key],
    configs: Sequence[JsonObject],
    titles: Mapping[str, str],
    one_task: Mapping[tuple[str, str], str],
) -> list[str]:
    """Return the label of each group. No two groups of a task have the same, because tables use it as a key.

    `one_task` is that of `_one_task`: partitions of several names make up one task.
    """
    labels = []
    met: dict[tuple[str, ...], list[JsonObject]] = {}
    for key, config in zip(keys, configs, strict=True):
        met.setdefault(key[:3], []).append(config)
    for key, config in zip(keys, configs, strict=True):
        rivals = met[key[:3]]
        names = sorted({name for rival in rivals for name in rival} - set(_THE_TASK))
        telling = [name for name in names if any(rival.get(name) != rivals[0].get(name) for rival in rivals)]
        short = Counter(name.rpartition(".")[2] for name in telling)
        said = {
            n if short[n.rpartition(".")[2]] > 1 else n.rpartition(".")[2]: config[n]
            for n in telling
            if n in config
        }
        named = titles.get(key[2], key[2]) or "?"
        labels.append(" ".join([named, *(f"{name}={value}" for name, value in said.items())]))
    places = [(dataset, one_task[dataset, partition] or partition) for dataset, partition, *_ in keys]
    times_met = Counter[tuple[str, ...]]()
    unique = []
    for label, place in zip(labels, places, strict=True):
        times_met[(*place, label)] += 1
        count = times_met[(*place, label)]
        unique.append(f"{label} ({count})" if count > 1 else label)
    return unique


def lost_seeds(runs: Runs, group: Group) -> list[int]:
    """Return the seeds of a group whose run failed, such as by diverging.

    A seed that another run has finished, or goes on with, is not lost.
    """
    states, seeds = runs.runs["state"], runs.runs["seed"]
    failed = [name for name in (*group.used, *dict(group.left_out)) if states[name] == "failed"]
    there = {seeds[name] for name in group.used if name not in failed}
    return sorted({int(seeds[name]) for name in failed} - there)


Row = Mapping[Hashable, Any]
Rows = Mapping[str, Row]
"""Run → its row of `Runs.runs`, with its `hashes` of results from run.json."""


def chosen(rows: Rows) -> tuple[str, ...]:
    """Return one run for each seed.

    Only finished runs whose rows are all there count, if there is one. Among the others, a run with all its
    rows goes before one whose rows are damaged or lacking, and then the one with most rounds.
    """
    best: dict[float, str] = {}
    for name in _results(rows) or rows:
        seed = rows[name]["seed"]
        if seed not in best or _rank(rows[name]) > _rank(rows[best[seed]]):
            best[seed] = name
    return tuple(sorted(best.values(), key=lambda name: (rows[name]["seed"], name)))


def _results(rows: Rows) -> list[str]:
    return [name for name, row in rows.items() if row["state"] == "finished" and not row["damage"]]


def _rank(row: Row) -> tuple[bool, float]:
    return not row["damage"], row["rounds_done"]


def why_left_out(name: str, rows: Rows) -> str:
    """Return why a run is not among the chosen ones."""
    row, seed = rows[name], f"seed {rows[name]['seed']:.0f}"
    other = next((run for run in chosen(rows) if rows[run]["seed"] == row["seed"]), "")
    if row["damage"]:
        than = f"{other} has the same seed" if other else "others are finished and whole"
        return f"its rows are not as the run wrote them ({row['damage']}), and {than}"
    if row["state"] != "finished" and _results(rows):
        return (
            f"{row['state'] or 'state unknown'} after {row['rounds_done']:.0f} rounds, while others are "
            "finished"
        )
    if not other:
        return f"{seed} is there already"
    if rows[other]["rounds_done"] > row["rounds_done"]:
        return (
            f"{seed} is there already with more rounds: {other} has {rows[other]['rounds_done']:.0f}, this "
            f"run {row['rounds_done']:.0f}"
        )
    if unlike := differing_hashes(row, rows[other]):
        return (
            f"{seed} is there already, and the results differ: {other} has as many rounds, but other hashes "
            f"of {' and '.join(unlike)}. One of the two was changed, or they were computed on machines with "
            "different arithmetic; `raffed verify` computes a run again"
        )
    if row["hashes"] and row["hashes"] == rows[other]["hashes"]:
        return f"the same run again: {other} has the same seed, as many rounds and equal results"
    return f"{seed} is there already: {other} has as many rounds"


def differing_hashes(left: Row, other: Row) -> list[str]:
    """Return which recorded hashes of the results differ between two runs of one seed and equal length."""
    a, b = left["hashes"], other["hashes"]
    if left["rounds_done"] != other["rounds_done"] or left["damage"] or other["damage"]:
        return []
    names = {"weights": "weights", "metrics": "metric rows", "vaults": "client states"}
    return [told for name, told in names.items() if name in a and name in b and a[name] != b[name]]


def contradictions(used: tuple[str, ...], rows: Rows) -> list[str]:
    """Return the runs that repeat the seed of a used run and have other results."""
    seeds = {rows[name]["seed"]: name for name in used}
    return [
        name
        for name, row in rows.items()
        if name not in used and row["seed"] in seeds and differing_hashes(row, rows[seeds[row["seed"]]])
    ]


def states(rows: Rows) -> str:
    """Return how many runs are in each state."""
    counts = Counter(row["state"] or "state unknown" for row in rows.values())
    return (
        next(iter(counts))
        if len(counts) == 1
        else ", ".join(f"{n} {state}" for state, n in sorted(counts.items()))
    )


BASELINE = "fedavg"  # tables look for it by its name, so nothing else may be called so


def method_titles(runs: Runs) -> dict[str, str]:
    """Return reference → name of the methods that are shown by another name than their reference.

    The title of a user's own method stands for it, unless two methods have the same title or it is the name
    of another one.
    """
    by_method: dict[str, set[str]] = {}
    for name, file in runs.files.items():
        title = " ".join(str(file.get("title") or "").split())
        by_method.setdefault(str(runs.runs.at[name, "method"]), set()).add(title)
    titles = {method: next(iter(several)) for method, several in by_method.items() if len(several) == 1}
    count = Counter(title.lower() for title in titles.values())
    taken = {*by_method, BASELINE, *(name.lower() for name in runs.names.values())}
    known = {method: runs.names[method] for method in by_method if method in runs.names}
    return known | {
        method: title
        for method, title in titles.items()
        if title and count[title.lower()] == 1 and title.lower() not in taken
    }
