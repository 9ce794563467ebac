"""Group runs that repeat one experiment with other seeds, choose those that count, and label the groups."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from .experiment import experiment
from .files import JsonObject
from .load import Runs, flatten, section
from .origins import origin
from .repeated import Row, Rows, chosen, contradictions, states, why_left_out
from .titles import method_titles

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
        made = [experiment(runs.files[name]), origins[name]]
        text = json.dumps(made, sort_keys=True, default=str)
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
    found = []
    for (dataset, partition, method, *_), names, label in zip(members, members.values(), labels, strict=True):
        rows = {name: about[name] for name in names}
        used = chosen(rows)
        others = tuple((name, why_left_out(name, rows)) for name in names if name not in used)
        found.append(
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
    return sorted(found)


def by_partition(split: str, rows: Rows) -> dict[str, list[str]]:
    """Separate runs of one configuration whose partitions only share a name.

    The keys are marks, and "" if all runs have the same partition. A partition that is drawn has another hash
    for each seed. A partition from a file has the same hash for all seeds. Two runs of one seed must agree.
    """
    found: list[dict[float, str]] = []  # seed → hash
    sets: list[list[str]] = []
    from_file = split.startswith("file:")
    for name, row in rows.items():
        seed, digest = (0 if from_file else row["seed"]), str(row["partition_sha256"])
        unknown = () if from_file else ("",)
        fits = (
            i
            for i, one in enumerate(found)
            if one.get(seed, digest) in (digest, *unknown) or digest in unknown
        )
        place = next(fits, None)
        if place is None:
            place = len(found)
            found.append({})
            sets.append([])
        found[place].setdefault(seed, digest)
        sets[place].append(name)
    if len(sets) == 1 and not (from_file and next(iter(found[0].values()))):
        return {"": sets[0]}
    return {
        next(iter(one.values()))[:8] or "not recorded": names for one, names in zip(found, sets, strict=True)
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
                and any(one.startswith("file:") for one in (partition, other))
            ):
                joined = names[dataset, partition] | names[dataset, other]
                names |= {(dataset, one): joined for one in joined}
    return {
        key: " = ".join(sorted(one, key=lambda name: (name.startswith("file:"), name)))
        if len(one) > 1
        else ""
        for key, one in names.items()
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
    found = []
    for label, place in zip(labels, places, strict=True):
        times_met[(*place, label)] += 1
        count = times_met[(*place, label)]
        found.append(f"{label} ({count})" if count > 1 else label)
    return found


def lost_seeds(runs: Runs, group: Group) -> list[int]:
    """Return the seeds of a group whose run failed, such as by diverging, while others are finished.

    A seed that another run has finished is not lost.
    """
    states, seeds = runs.runs["state"], runs.runs["seed"]
    there = {seeds[name] for name in group.used}
    failed = {seeds[name] for name, _ in group.left_out if states[name] == "failed"}
    return sorted(int(seed) for seed in failed - there)
