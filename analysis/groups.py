"""Which runs are one experiment repeated with other seeds, which of them count, and how to call them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from .load import Runs, flatten, section

_NOT_THE_EXPERIMENT = ("seed", "runtime", "name", "run_id", "out")
_WHERE_DATA_ARE = ("root", "download")
_USUAL = {  # what stands in run.json where nothing was asked for, or, in runs of before it could be, does not
    "data": {"validation": 0, "samples": 0, "transform": "auto"},
    "federation": {"survey": 0, "measures": "", "weighting": ""},
    "numerics": {"cohort": 0, "precision": "fp32"},
    "faults": {"drop": 0, "late": 0, "corrupt": 0, "straggle": 0, "straggle_share": 0.5, "corrupt_kind": "nan", "at": ""},
    "privacy": {"noise": 0, "noise_at": "server", "delta": 1e-05, "masks": False},
}
_NEEDED = ["method", "dataset", "partition", "seed", "state", "rounds_done"]
_THE_TASK = ("method", "data.dataset", "data.split")


class Group(NamedTuple):
    """Runs whose configuration differs in the seed (and in how it was executed) only.

    label: the method, and the settings that tell it from the same method's other groups on this task.
    used: names of the runs behind the numbers: one a seed, and the finished ones only, if there are any.
    state: how many runs are in which state, all of them counted.
    left_out: (run, why) of the group's other runs.
    """

    label: str
    dataset: str
    partition: str
    used: tuple[str, ...]
    state: str
    left_out: tuple[tuple[str, str], ...] = ()

    @property
    def task(self) -> tuple[str, str]:
        """(dataset, partition): only groups of one task are comparable."""
        return self.dataset, self.partition


def groups(runs: Runs) -> list[Group]:
    """Every group, by task and label."""
    found: list[Group] = runs.once("groups", lambda: _groups(runs))
    return found


def _groups(runs: Runs) -> list[Group]:
    members: dict[tuple[str, str, str, str], list[str]] = {}
    about = {str(row["run"]): row for row in runs.runs[_NEEDED].reset_index().to_dict("records")}
    for name, row in about.items():
        experiment = _experiment(runs.files[name])
        key = (row["dataset"], row["partition"], row["method"], json.dumps(experiment, sort_keys=True, default=str))
        members.setdefault(key, []).append(name)
    labels = _labels(list(members), [flatten(_experiment(runs.files[names[0]])) for names in members.values()])
    found = []
    for (dataset, partition, _, _), names, label in zip(members, members.values(), labels, strict=True):
        rows = {name: about[name] for name in names}
        used = _used(rows)
        others = tuple((name, _why_not(name, rows)) for name in names if name not in used)
        found.append(Group(label, dataset, partition, used, _state(rows), others))
    return sorted(found)


def differing(runs: Runs, members: Sequence[Group]) -> list[tuple[str, str]]:
    """Fields of the configuration in which the methods of a task differ, but for the method and its arguments: (field, who has
    what). A difference of two methods is theirs alone only where this is empty."""
    configs = {group.label: flatten(_experiment(runs.files[group.used[0]])) for group in members}
    found = []
    for name in sorted({name for config in configs.values() for name in config}):
        values: dict[str, list[str]] = {}
        for label, config in configs.items():
            values.setdefault(str(config.get(name, "none")), []).append(label)
        if len(values) > 1 and name != "method" and not name.startswith(("args.", "method_args.")):
            found.append((name, "; ".join(f"{value}: {', '.join(labels)}" for value, labels in values.items())))
    return found


def _experiment(file: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration, but for what does not tell experiments apart: 5 for 5.0, a setting at none or not there, where the
    data are, and settings that older runs do not have, where they are as usual."""
    config = {key: _spelt(value) for key, value in section(file, "config").items() if key not in _NOT_THE_EXPERIMENT}
    for name, usual in _USUAL.items():
        config[name] = {key: value for key, value in section(config, name).items() if value != usual.get(key)}
    config["data"] = {key: value for key, value in config["data"].items() if key not in _WHERE_DATA_ARE}
    return config


def _spelt(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _spelt(one) for key, one in value.items() if one is not None}
    if isinstance(value, list):
        return [_spelt(one) for one in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _labels(keys: Sequence[tuple[str, str, str, str]], configs: Sequence[Mapping[str, Any]]) -> list[str]:
    labels = []
    met: dict[tuple[str, str, str], list[Mapping[str, Any]]] = {}
    for key, config in zip(keys, configs, strict=True):
        met.setdefault(key[:3], []).append(config)
    for key, config in zip(keys, configs, strict=True):
        rivals = met[key[:3]]
        names = sorted({name for rival in rivals for name in rival} - set(_THE_TASK))
        telling = [name for name in names if any(rival.get(name) != rivals[0].get(name) for rival in rivals)]
        short = Counter(name.rpartition(".")[2] for name in telling)
        said = {n if short[n.rpartition(".")[2]] > 1 else n.rpartition(".")[2]: config[n] for n in telling if n in config}
        labels.append(" ".join([key[2] or "?", *(f"{name}={value}" for name, value in said.items())]))
    return [_numbered(label, key[:2], labels[:i], keys[:i]) for i, (label, key) in enumerate(zip(labels, keys, strict=True))]


def _numbered(label: str, task: tuple[str, str], labels: Sequence[str], keys: Sequence[tuple[str, str, str, str]]) -> str:
    """A label that an earlier group of the same task has is numbered: tables go by labels."""
    earlier = sum(one == label and key[:2] == task for one, key in zip(labels, keys, strict=True))
    return f"{label} ({earlier + 1})" if earlier else label


_Rows = Mapping[str, Mapping[Any, Any]]


def _used(rows: _Rows) -> tuple[str, ...]:
    """One run a seed: the one with most rounds. Unfinished runs count only where no run is finished."""
    best: dict[Any, str] = {}
    for name in _finished(rows) or rows:
        seed = rows[name]["seed"]
        if seed not in best or rows[name]["rounds_done"] > rows[best[seed]]["rounds_done"]:
            best[seed] = name
    return tuple(sorted(best.values(), key=lambda name: (rows[name]["seed"], name)))


def _finished(rows: _Rows) -> list[str]:
    return [name for name, row in rows.items() if row["state"] == "finished"]


def _why_not(name: str, rows: _Rows) -> str:
    row = rows[name]
    if row["state"] != "finished" and _finished(rows):
        return f"{row['state'] or 'state unknown'} after {row['rounds_done']:.0f} rounds, while others are finished"
    return f"seed {row['seed']:.0f} is there already, with at least as many rounds"


def _state(rows: _Rows) -> str:
    counts = Counter(row["state"] or "state unknown" for row in rows.values())
    return next(iter(counts)) if len(counts) == 1 else ", ".join(f"{n} {state}" for state, n in sorted(counts.items()))
