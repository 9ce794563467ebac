"""Titles of the users' own methods, which run.json names, in the place of their references."""

from __future__ import annotations

from collections import Counter

from .load import Runs

BASELINE = "fedavg"  # tables look for it by its name, so nothing else may be called so


def method_titles(runs: Runs) -> dict[str, str]:
    """Return reference → title of the users' own methods, where the title can stand for the method.

    It cannot if two methods have the same title, or if it is the name of another one.
    """
    found: dict[str, set[str]] = {}
    for name, file in runs.files.items():
        title = " ".join(str(file.get("title") or "").split())
        found.setdefault(str(runs.runs.at[name, "method"]), set()).add(title)
    titles = {method: next(iter(several)) for method, several in found.items() if len(several) == 1}
    count = Counter(title.lower() for title in titles.values())
    taken = {*found, BASELINE}
    return {
        method: title
        for method, title in titles.items()
        if title and count[title.lower()] == 1 and title.lower() not in taken
    }


__all__ = ["method_titles"]
