"""Remarks on where the runs of a row come from: changed code, versions of raffed, unequal repetitions."""

from __future__ import annotations

from collections.abc import Sequence

from .groups import Group
from .load import Runs
from .origins import changed_roles, continued, origin, unlike_parts, versions


def origin_notes(runs: Runs, group: Group, members: Sequence[Group]) -> list[str]:
    """Return what a reader of a row must know about its runs; `members` are the rows of its task."""
    found = [*_unlike_an_earlier(runs, group, members), continued(origin(runs.files[group.used[0]]))]
    found += [_versions(runs, group)]
    if group.contradicted_by:
        others = ", ".join(group.contradicted_by)
        found.append(
            f"another run of the same seed has other results ({others}): one of the two was changed, or they "
            "were computed on machines with different arithmetic"
        )
    return [one for one in found if one]


def _unlike_an_earlier(runs: Runs, group: Group, members: Sequence[Group]) -> list[str]:
    """Return in which code or revision a row differs from the first one with the same references.

    Rows with other data may not be compared, which is said elsewhere.
    """
    first = next((one for one in members if _references(runs, one) == _references(runs, group)), group)
    mine, its = (origin(runs.files[one.used[0]]) for one in (group, first))
    told = unlike_parts(mine, its._replace(data=mine.data))
    return [f"{'; '.join(told)}; the second value is that of {first.label}"] if told else []


def _references(runs: Runs, group: Group) -> list[tuple[str, str]]:
    """Return the method, and each role of own code with its reference."""
    name = group.used[0]
    own = [(str(one["role"]), str(one["reference"])) for one in runs.files[name].get("code") or []]
    return [("method", str(runs.runs.at[name, "method"])), *own]


def _versions(runs: Runs, group: Group) -> str:
    """Return a sentence about a row whose runs were computed by several versions of raffed; else ""."""
    found: dict[str, list[str]] = {}
    for name, seed in runs.runs.loc[list(group.used), "seed"].items():
        for version in versions(runs.files[str(name)]):
            found.setdefault(version, []).append(f"{seed:.0f}")
    if len(found) < 2:
        return ""
    told = [
        f"{version} (seed{'' if len(seeds) == 1 else 's'} {', '.join(seeds)})"
        for version, seeds in found.items()
    ]
    return f"its seeds were computed by several versions of raffed: {', '.join(told)}"


def role_notes(runs: Runs, one: Group, other: Group) -> list[str]:
    """Return of which parts it is not known whether their own code differs."""
    return [
        f"the file of the own code of {change.what} differs ({change.one} / {change.other}); it also holds a "
        f"method, so it is not known whether {change.what} differs"
        for change in changed_roles(runs.files[one.used[0]], runs.files[other.used[0]])
        if change.shared
    ]
