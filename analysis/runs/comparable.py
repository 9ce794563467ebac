"""Which experiments of a task may be compared: what differs between them, besides the method and its
arguments.

A difference of two methods is theirs alone only where everything else is equal: the partition (by its hash,
not its name), the network, the data and their preprocessing, the budget and the numerics. Where it is not,
the difference is named and never tested.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from .groups import Group, experiment, groups
from .load import Runs, flatten, section

PREFIX = "not comparable: "
MARK = " ≠"
UNLIKE = "≠: not comparable with the others; the table says why."
_MEASURED = {
    "federation.survey",
    "federation.measures",
    "federation.eval_every",
}  # decide what is measured, not what is trained
_PARTITION = {"data.split", "data.local_test"}  # names of what the partition's hash decides
# Data set → styles of preprocessing that give the same images; a test compares with raffed/data/transforms.py
ALIKE = {
    **dict.fromkeys(("digits", "femnist", "femnist-letters"), ("fedmr map map-authors plain",)),
    **dict.fromkeys(("mnist", "fashion-mnist"), ("fedmr plain",)),
    **dict.fromkeys(("cifar10", "cifar100", "cinic10", "svhn"), ("map map-authors",)),
    **dict.fromkeys(("isic2019", "tiny-imagenet"), ("fedmr map map-authors",)),
}


class Differing(NamedTuple):
    """What differs between two experiments: a field in words, its values for the one and the other."""

    what: str
    one: str
    other: str

    def __str__(self) -> str:
        return f"{self.what} differs ({self.one} / {self.other})"


def differences(
    runs: Runs, one: Group, other: Group, declared: frozenset[str] = frozenset()
) -> list[Differing]:
    """What keeps two experiments from being compared; empty where only the method and its arguments differ.

    declared: fields that are meant to differ, and are said to.
    """
    found = [*_partitions(runs, one, other), *_rounds_done(runs, one, other)]
    a, b = _setting(runs, one), _setting(runs, other)
    chosen = declared | (_tuned(runs, one) & _tuned(runs, other))
    for name in sorted(a.keys() | b.keys()):
        if a.get(name, "none") != b.get(name, "none") and name not in chosen:
            found.append(Differing(_words(name), a.get(name, "none"), b.get(name, "none")))
    return found


def side_notes(runs: Runs, one: Group, other: Group) -> list[str]:
    """What differs, or is not known, and does not keep two experiments from being compared."""
    found, pairs = [], _hash_pairs(runs, one, other)
    if pairs and not all(all(pair) for pair in pairs):
        found.append(
            "the partition's hash is not recorded for all runs: they are compared by the partition's name"
        )
    elif one.partition != other.partition:
        found.append(f"the partition has two names ({one.partition} / {other.partition}) and is the same")
    a, b = (flatten(experiment(runs.files[group.used[0]])) for group in (one, other))
    for name in sorted(_tuned(runs, one) & _tuned(runs, other)):
        if a.get(name) != b.get(name):
            values = f"{a.get(name, 'none')} / {b.get(name, 'none')}"
            found.append(f"{name} differs ({values}): it was chosen for each method by the sweep")
    return found


def classes(
    runs: Runs, members: Sequence[Group], declared: frozenset[str] = frozenset()
) -> list[list[Group]]:
    """Experiments in sets within which all may be compared, the largest first, then the one met first."""
    found: list[list[Group]] = []
    for group in members:
        fits = (one for one in found if not any(differences(runs, group, member, declared) for member in one))
        place = next(fits, None)
        if place is None:
            found.append([group])
        else:
            place.append(group)
    return sorted(found, key=lambda one: -len(one))


class Verdict(NamedTuple):
    """Of an experiment among those of its task. against: why it may not be compared with the largest set of
    them, or "". notes: what else differs, or is not known. set: number of the set it belongs to; rivals: how
    many others are in it.
    """

    against: str
    notes: tuple[str, ...]
    set: int
    rivals: int


def judge(runs: Runs, members: Sequence[Group]) -> dict[str, Verdict]:
    """Label → verdict, for the experiments of a task."""

    def made() -> dict[str, Verdict]:
        sets = classes(runs, members)
        found = {}
        for number, one in enumerate(sets):
            for group in one:
                against = _why_not(runs, group, sets[0]) if number else ""
                notes = side_notes(runs, group, one[0]) if group is not one[0] else []
                found[group.label] = Verdict(against, tuple(notes), number, len(one) - 1)
        return found

    told: dict[str, Verdict] = runs.once(("comparable", tuple(members)), made) if members else {}
    return told


def _why_not(runs: Runs, group: Group, first: Sequence[Group]) -> str:
    found, label = next((found, one.label) for one in first if (found := differences(runs, group, one)))
    return f"{PREFIX}{'; '.join(map(str, found))}; the second value is that of {label}"


def why_not(runs: Runs, group: Group) -> str:
    """Why an experiment may not be compared with the largest set of its task; "" for one of that set."""
    return _verdict(runs, group).against


def stated(runs: Runs, group: Group) -> tuple[str, int]:
    """What a table says of an experiment: what keeps it from being compared, or "yes", and what else there is
    to say; and the number of the set of its task within which it may be compared.
    """
    verdict, several = (
        _verdict(runs, group),
        len({one.set for one in judge(runs, _task(runs, group)).values()}) > 1,
    )
    said = verdict.against or ("with none of these" if several and not verdict.rivals else "yes")
    others = f"comparable with the {verdict.rivals} others of which this is said"
    return "; ".join(
        [said, *([others] if verdict.against and verdict.rivals else []), *verdict.notes]
    ), verdict.set


def unlike(runs: Runs, members: Sequence[Group]) -> str:
    """A sentence for the caption of a figure that shows experiments which may not be compared; empty
    where there is none.
    """
    return f" {UNLIKE}" if any(one.against for one in judge(runs, members).values()) else ""


def marked(runs: Runs, group: Group) -> str:
    """The label for a figure: with a mark where the experiment may not be compared with the others of its
    task.
    """
    return group.label + (MARK if why_not(runs, group) else "")


def notices(runs: Runs, members: Sequence[Group]) -> list[tuple[str, str]]:
    """(experiment, what is to be said) for a reader of a task's tables: what may not be compared, and
    what differs besides.
    """
    return [
        (label, said)
        for label, one in judge(runs, members).items()
        for said in (one.against, *one.notes)
        if said
    ]


def _task(runs: Runs, group: Group) -> list[Group]:
    members: list[Group] = runs.once(
        ("task", group.task), lambda: [one for one in groups(runs) if one.task == group.task]
    )
    return members


def _verdict(runs: Runs, group: Group) -> Verdict:
    return judge(runs, _task(runs, group))[group.label]


def _hash_pairs(runs: Runs, one: Group, other: Group) -> list[tuple[str, str]]:
    """The hashes of both partitions for every seed that both have; "" where one is not recorded."""
    a, b = partition_hashes(runs, one), partition_hashes(runs, other)
    return [(a[seed], b[seed]) for seed in sorted(a.keys() & b.keys())]


def partition_hashes(runs: Runs, group: Group) -> dict[int, str]:
    """Seed → SHA-256 of the partition of that seed's run; "" in runs from before it was recorded."""
    seeds, hashes = runs.runs["seed"], runs.runs["partition_sha256"]
    return {int(seeds[name]): str(hashes[name]) for name in group.used if seeds[name] == seeds[name]}


def _partitions(runs: Runs, one: Group, other: Group) -> list[Differing]:
    pairs = _hash_pairs(runs, one, other)
    unlike = [pair for pair in pairs if all(pair) and pair[0] != pair[1]]
    if unlike:
        many = "" if len(unlike) == len(pairs) else f", in {len(unlike)} of {len(pairs)} seeds"
        return [Differing("the partition", f"{unlike[0][0][:8]}…", f"{unlike[0][1][:8]}…{many}")]
    if pairs and all(all(pair) for pair in pairs):
        return []  # equal in all seeds, whatever it is called
    a, b = (
        {name: str(flatten(experiment(runs.files[group.used[0]])).get(name, "none")) for name in _PARTITION}
        for group in (one, other)
    )
    known = (set(partition_hashes(runs, one).values()) - {""}) & (
        set(partition_hashes(runs, other).values()) - {""}
    )
    if a == b or known:  # of other seeds: the same recipe, or the very same partition
        return []
    return [Differing("the partition", one.partition, other.partition)]


def _rounds_done(runs: Runs, one: Group, other: Group) -> list[Differing]:
    done = runs.runs["rounds_done"]
    a, b = (sorted({int(done[name]) for name in group.used}) for group in (one, other))
    if a == b:
        return []
    return [
        Differing(
            "the number of rounds done", *("–".join(map(str, dict.fromkeys((n[0], n[-1])))) for n in (a, b))
        )
    ]


def _setting(runs: Runs, group: Group) -> dict[str, str]:
    """Everything that must be equal, by its name in the configuration, as text."""

    def made() -> dict[str, str]:
        file = runs.files[group.used[0]]
        config = flatten(experiment(file))
        aside = {"method", *_MEASURED, *_PARTITION}
        found = {
            name: str(value)
            for name, value in config.items()
            if name not in aside and not name.startswith(("args.", "method_args."))
        }
        if "auto" in file:
            found.pop(
                "numerics.cohort", None
            )  # chosen by a probe of the machine; it decides on rounding alone
        found["data.transform"] = _preprocessing(section(section(file, "config"), "data"))
        found |= {
            name: str(value)
            for name, value in file.items()
            if name.startswith(("data_", "dataset_")) and "sha256" in name
        }
        return found

    setting: dict[str, str] = runs.once(("setting", group.used[0]), made)
    return setting


def _preprocessing(data: Mapping[str, object]) -> str:
    """What a run did to its images: `auto` resolved as raffed/runtime/setup.py does, equal styles of a
    data set as one.
    """
    style, split = str(data.get("transform") or "auto"), str(data.get("split")).lower()
    if style == "auto":
        style = (
            "map"
            if split.startswith(("incomplete", "dirichlet"))
            else "fedmr"
            if split.startswith(("p", "iid"))
            else "plain"
        )
    alike = ALIKE.get(str(data.get("dataset")), ())
    return next((one for one in alike if style in one.split()), style)


def _tuned(runs: Runs, group: Group) -> frozenset[str]:
    """The fields of local training that a sweep chose for each method by itself: they are the method's,
    as its arguments are.
    """

    def made() -> frozenset[str]:
        folder = Path(str(runs.runs.at[group.used[0], "folder"])).resolve()
        sweeps = (above / "sweep.json" for above in folder.parents[:3])
        return next((_searched(sweep) for sweep in sweeps if sweep.is_file()), frozenset())

    tuned: frozenset[str] = runs.once(("tuned", group.used[0]), made)
    return tuned


def _searched(path: Path) -> frozenset[str]:
    try:
        about = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return frozenset()
    about = about if isinstance(about, dict) else {}
    methods = section(about, "methods")
    names = [*section(section(about, "request"), "grid")]
    for method in methods:
        one = section(methods, method)
        names += [*section(one, "space"), *section(section(one, "chosen"), "settings")]
    return frozenset(str(name) for name in names if str(name).startswith("local."))


def _words(name: str) -> str:
    return {
        "model.name": "the network",
        "data.dataset": "the data set",
        "data.transform": "the preprocessing",
    }.get(name, name)
