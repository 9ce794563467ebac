"""Decide which experiments of a task may be compared.

A difference between two methods is due to the methods only if everything else is equal: the partition (by its
hash, not its name), the network, the data and their preprocessing, the budget and the precision. If something
else differs, it is named, and no difference is tested. Runs that differ in rounding alone may be compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ..table import in_four_digits
from .conditions import EVALUATED, PARTITION_NAMES, ROUNDING, conditions, tuned_fields
from .experiment import experiment, value_of
from .groups import Group, groups, lost_seeds
from .load import Runs, flatten, section
from .method_names import scored
from .origins import changed_roles, continued, origin, unlike_parts, versions

PREFIX = "not comparable: "
MARK = " ≠"
OF_CLIENTS = ("between", "personal", "local", "downloaded")  # what the names of such measures begin with
UNLIKE = "≠: not comparable with the others; the table says why."


class Differing(NamedTuple):
    """A difference between two experiments: a field in words, and its value in each of them."""

    what: str
    one: str
    other: str

    def __str__(self) -> str:
        return f"{self.what} differs ({self.one} / {self.other})"


def differences(
    runs: Runs, left: Group, other: Group, declared: frozenset[str] = frozenset(), measure: str = ""
) -> list[Differing]:
    """Return the differences that keep two experiments from being compared.

    The result is empty if only the method and its arguments differ. `declared` names fields that differ on
    purpose. If `measure` depends on which rounds were evaluated, these must be the same.
    """
    differing = [*_partitions(runs, left, other), *_own_code(runs, left, other)]
    if "federation.rounds" not in declared:
        differing += _rounds_done(runs, left, other)
    differing += _evaluated(runs, left, other, [name for name in schedule(measure) if name not in declared])
    a, b = conditions(runs, left), conditions(runs, other)
    chosen = declared | ROUNDING | (tuned_fields(runs, left) & tuned_fields(runs, other))
    names = a.keys() | b.keys()
    if a["engine"] != b["engine"]:  # then each has networks, inputs and optimisers of its own
        names = {name for name in a.keys() & b.keys() if not name.startswith(("model.", "data.transform"))}
    for name in sorted(names):
        one_value, other_value = str(value_of(a, name)), str(value_of(b, name))
        if one_value != other_value and name not in chosen:
            differing.append(Differing(_words(name), one_value, other_value))
    return differing


def schedule(measure: str) -> tuple[str, ...]:
    """Return the fields that decide from which rounds a measure is read; none if from the last one alone.

    The best round and means over rounds depend on when the global model is evaluated, and those of the
    clients' own models also on the survey of the last rounds.
    """
    if not any(word in measure for word in ("best", "mean", "rounds_to")):
        return ()
    return EVALUATED if measure.startswith(OF_CLIENTS) else EVALUATED[:1]


def _own_code(runs: Runs, left: Group, other: Group) -> list[Differing]:
    """Return which own code differs, except that of the methods."""
    return [
        Differing(f"the own code of {change.what}", change.one, change.other)
        for change in changed_roles(runs.files[left.used[0]], runs.files[other.used[0]])
        if not change.shared
    ]


def _evaluated(runs: Runs, left: Group, other: Group, fields: Iterable[str]) -> list[Differing]:
    """Return which of these fields differ."""
    a, b = (flatten(experiment(runs.files[group.used[0]])) for group in (left, other))
    pairs = [(name, str(value_of(a, name)), str(value_of(b, name))) for name in fields]
    return [Differing(*field) for field in pairs if field[1] != field[2]]


def side_notes(runs: Runs, left: Group, other: Group) -> list[str]:
    """Return what differs or is unknown without keeping two experiments from being compared."""
    notes: list[str] = []
    pairs = _hash_pairs(runs, left, other)
    if pairs and not all(all(pair) for pair in pairs):
        notes.append(
            "the partition's hash is not recorded for all runs: they are compared by the partition's name"
        )
    elif left.partition != other.partition:
        notes.append(f"the partition has two names ({left.partition} / {other.partition}) and is the same")
    a, b = (flatten(experiment(runs.files[group.used[0]])) for group in (left, other))
    for name in sorted(tuned_fields(runs, left) & tuned_fields(runs, other)):
        if a.get(name) != b.get(name):
            values = " / ".join(in_four_digits(value_of(config, name)) for config in (a, b))
            notes.append(f"{name} differs ({values}): it was chosen for each method by the sweep")
    notes += [
        f"{told}: best rounds and means over rounds are of other rounds, so they are not compared"
        for told in _evaluated(runs, left, other, schedule("accuracy_best"))
    ]
    notes += [*role_notes(runs, left, other), *_scored(runs, left, other)]
    for name in sorted(ROUNDING):
        pair = [str(value_of(conditions(runs, group), name)) for group in (left, other)]
        if pair[0] != pair[1]:
            notes.append(f"{Differing(name, *pair)}: this changes rounding only")
    return notes


def _scored(runs: Runs, left: Group, other: Group) -> list[str]:
    """Return a note if clients' own models are scored before training in one of the two alone."""
    methods = [section(runs.files[group.used[0]], "config").get("method") for group in (left, other)]
    first, second = map(scored, methods)
    if first == second or "–" in (first, second):
        return []
    return [f"its clients' own models are scored {first}, and those of {other.label} {second}"]


def classes(
    runs: Runs, members: Sequence[Group], declared: frozenset[str] = frozenset(), measure: str = ""
) -> list[list[Group]]:
    """Sort experiments into sets within which all may be compared, in one measure if it is named.

    The largest set comes first, and last are those without a finished run; equal ones stay in the order of
    appearance.
    """
    sets: list[list[Group]] = []
    for group in members:
        fits = (
            alike
            for alike in sets
            if not any(differences(runs, group, member, declared, measure) for member in alike)
        )
        place = next(fits, None)
        if place is None:
            sets.append([group])
        else:
            place.append(group)
    done = {name for name, file in runs.files.items() if file.get("state") == "finished"}
    return sorted(sets, key=lambda alike: (done.isdisjoint(group.used[0] for group in alike), -len(alike)))


class Verdict(NamedTuple):
    """Whether an experiment may be compared with the others of its task.

    Attributes:
        against: the reason why it may not be compared with the largest set, or "".
        notes: what else differs or is unknown.
        set: the number of the set to which it belongs.
        rivals: how many other experiments are in that set.
    """

    against: str
    notes: tuple[str, ...]
    set: int
    rivals: int


def comparability(runs: Runs, members: Sequence[Group]) -> dict[str, Verdict]:
    """Map the label of each experiment of a task to its verdict."""

    def compute() -> dict[str, Verdict]:
        sets = classes(runs, members)
        verdicts = {}
        for number, alike in enumerate(sets):
            for group in alike:
                against = _why_not(runs, group, sets[0]) if number else ""
                notes = side_notes(runs, group, alike[0]) if group is not alike[0] else []
                notes += origin_notes(runs, group, members)
                verdicts[group.label] = Verdict(against, tuple(notes), number, len(alike) - 1)
        return verdicts

    told: dict[str, Verdict] = runs.once(("comparable", tuple(members)), compute) if members else {}
    return told


def _why_not(runs: Runs, group: Group, first: Sequence[Group]) -> str:
    told, label = next((told, member.label) for member in first if (told := differences(runs, group, member)))
    return f"{PREFIX}{'; '.join(map(str, told))}; the second value is that of {label}"


def why_not(runs: Runs, group: Group) -> str:
    """Return why an experiment may not be compared with the largest set of its task; "" if it may."""
    return _verdict(runs, group).against


def stated(runs: Runs, group: Group) -> tuple[str, int]:
    """Return what a table says about comparing an experiment, and the number of the set to which it belongs.

    The text is "yes" or the reason why not, and further notes.
    """
    verdict, several = (
        _verdict(runs, group),
        len({verdict.set for verdict in comparability(runs, _task(runs, group)).values()}) > 1,
    )
    said = verdict.against or ("with none of these" if several and not verdict.rivals else "yes")
    which = "other row" if verdict.rivals == 1 else f"{verdict.rivals} others"
    others = f"comparable with the {which} of which this is said"
    return "; ".join(
        [said, *([others] if verdict.against and verdict.rivals else []), *verdict.notes]
    ), verdict.set


def unlike(runs: Runs, members: Sequence[Group]) -> str:
    """Return a sentence for the caption of a figure whose experiments may not all be compared; else ""."""
    return f" {UNLIKE}" if any(verdict.against for verdict in comparability(runs, members).values()) else ""


def apart(runs: Runs, members: Sequence[Group]) -> str:
    """Return a sentence about how many rows of a task's table carry the mark; "" if none does."""
    count = sum(bool(verdict.against) for verdict in comparability(runs, members).values())
    if not count:
        return ""
    they, rest = "it" if count == 1 else "they", len(members) - count
    other = f"the other {rest}" if rest > 1 else "the other one"
    return f"≠ marks {count} of {len(members)} rows: {they} may not be compared with {other}."


def marked(runs: Runs, group: Group) -> str:
    """Return the label for a figure, with a mark if the experiment may not be compared with others."""
    return group.label + (MARK if why_not(runs, group) else "")


def notices(runs: Runs, members: Sequence[Group]) -> list[tuple[str, str]]:
    """Return (experiment, remark) for a task's tables: what may not be compared, differs, or has failed."""
    remarks = [
        (label, said)
        for label, verdict in comparability(runs, members).items()
        for said in (verdict.against, *verdict.notes)
        if said
    ]
    for group in members:
        lost = lost_seeds(runs, group)
        if lost:
            seeds = f"seed{'' if len(lost) == 1 else 's'} {', '.join(map(str, lost))}"
            remarks.append((group.label, f"it has no finished run of {seeds}, which failed"))
    return remarks


def _task(runs: Runs, group: Group) -> list[Group]:
    members: list[Group] = runs.once(
        ("task", group.task), lambda: [member for member in groups(runs) if member.task == group.task]
    )
    return members


def _verdict(runs: Runs, group: Group) -> Verdict:
    return comparability(runs, _task(runs, group))[group.label]


def _hash_pairs(runs: Runs, left: Group, other: Group) -> list[tuple[str, str]]:
    """Return the hashes of both partitions for every common seed; "" if a hash was not recorded."""
    a, b = partition_hashes(runs, left), partition_hashes(runs, other)
    return [(a[seed], b[seed]) for seed in sorted(a.keys() & b.keys())]


def partition_hashes(runs: Runs, group: Group) -> dict[int, str]:
    """Map each seed to the SHA-256 of its run's partition; "" in runs that do not say it."""
    seeds, hashes = runs.runs["seed"], runs.runs["partition_sha256"]
    return {int(seeds[name]): str(hashes[name]) for name in group.used if seeds[name] == seeds[name]}


def _partitions(runs: Runs, left: Group, other: Group) -> list[Differing]:
    pairs = _hash_pairs(runs, left, other)
    unlike = [pair for pair in pairs if all(pair) and pair[0] != pair[1]]
    if unlike:
        many = "" if len(unlike) == len(pairs) else f", in {len(unlike)} of {len(pairs)} seeds"
        return [Differing("the partition", f"{unlike[0][0][:8]}…", f"{unlike[0][1][:8]}…{many}")]
    if pairs and all(all(pair) for pair in pairs):
        return []  # The partitions are equal in all seeds, whatever their names are.
    a, b = (
        {
            name: str(value_of(flatten(experiment(runs.files[group.used[0]])), name))
            for name in PARTITION_NAMES
        }
        for group in (left, other)
    )
    known = (set(partition_hashes(runs, left).values()) - {""}) & (
        set(partition_hashes(runs, other).values()) - {""}
    )
    if a == b or known:  # of other seeds: the same recipe, or the very same partition
        return []
    return [Differing("the partition", left.partition, other.partition)]


def _rounds_done(runs: Runs, left: Group, other: Group) -> list[Differing]:
    """Return that the numbers of rounds differ, unless a rule that both have in common ended runs early."""
    done, planned = (runs.runs[name] for name in ("rounds_done", "rounds_planned"))

    def rounds(name: str) -> int:
        return int((planned if "ended_early" in runs.files[name] else done)[name])

    a, b = (sorted({rounds(name) for name in group.used}) for group in (left, other))
    if a == b:
        return []
    return [
        Differing(
            "the number of rounds done", *("–".join(map(str, dict.fromkeys((n[0], n[-1])))) for n in (a, b))
        )
    ]


def _words(name: str) -> str:
    return {
        "model.name": "the network",
        "engine": "the engine",
        "data.dataset": "the data set",
        "data.transform": "the preprocessing",
    }.get(name, name)


def origin_notes(runs: Runs, group: Group, members: Sequence[Group]) -> list[str]:
    """Return what a reader of a row must know about its runs; `members` are the rows of its task."""
    notes = [*_unlike_an_earlier(runs, group, members), continued(origin(runs.files[group.used[0]]))]
    notes += [_versions(runs, group)]
    if group.contradicted_by:
        others = ", ".join(group.contradicted_by)
        notes.append(
            f"another run of the same seed has other results ({others}): one of the two was changed, or they "
            "were computed on machines with different arithmetic"
        )
    return [note for note in notes if note]


def _unlike_an_earlier(runs: Runs, group: Group, members: Sequence[Group]) -> list[str]:
    """Return in which code or revision a row differs from the first one with the same references.

    Rows with other data may not be compared, which is said elsewhere.
    """
    first = next((other for other in members if _references(runs, other) == _references(runs, group)), group)
    mine, its = (origin(runs.files[member.used[0]]) for member in (group, first))
    told = unlike_parts(mine, its._replace(data=mine.data))
    return [f"{'; '.join(told)}; the second value is that of {first.label}"] if told else []


def _references(runs: Runs, group: Group) -> list[tuple[str, str]]:
    """Return the method, and each role of own code with its reference."""
    name = group.used[0]
    roles = [(str(code["role"]), str(code["reference"])) for code in runs.files[name].get("code") or []]
    return [("method", str(runs.runs.at[name, "method"])), *roles]


def _versions(runs: Runs, group: Group) -> str:
    """Return a sentence about a row whose runs were computed by several versions of raffed; else ""."""
    by_version: dict[str, list[str]] = {}
    for name, seed in runs.runs.loc[list(group.used), "seed"].items():
        for version in versions(runs.files[str(name)]):
            by_version.setdefault(version, []).append(f"{seed:.0f}")
    if len(by_version) < 2:
        return ""
    told = [
        f"{version} (seed{'' if len(seeds) == 1 else 's'} {', '.join(seeds)})"
        for version, seeds in by_version.items()
    ]
    return f"its seeds were computed by several versions of raffed: {', '.join(told)}"


def role_notes(runs: Runs, left: Group, other: Group) -> list[str]:
    """Return of which parts it is not known whether their own code differs."""
    return [
        f"the file of the own code of {change.what} differs ({change.one} / {change.other}); it also holds a "
        f"method, so it is not known whether {change.what} differs"
        for change in changed_roles(runs.files[left.used[0]], runs.files[other.used[0]])
        if change.shared
    ]
