"""Names of methods in the place of their references.

They are the titles of the users' own methods, which run.json has, and what `Runs.names` says of others.
"""

from __future__ import annotations

from collections import Counter

from .load import Runs

BASELINE = "fedavg"  # tables look for it by its name, so nothing else may be called so


def method_titles(runs: Runs) -> dict[str, str]:
    """Return reference → name of the methods that are shown by another name than their reference.

    The title of a user's own method stands for it, unless two methods have the same title or it is the name
    of another one.
    """
    found: dict[str, set[str]] = {}
    for name, file in runs.files.items():
        title = " ".join(str(file.get("title") or "").split())
        found.setdefault(str(runs.runs.at[name, "method"]), set()).add(title)
    titles = {method: next(iter(several)) for method, several in found.items() if len(several) == 1}
    count = Counter(title.lower() for title in titles.values())
    taken = {*found, BASELINE, *(name.lower() for name in runs.names.values())}
    known = {method: runs.names[method] for method in found if method in runs.names}
    return known | {
        method: title
        for method, title in titles.items()
        if title and count[title.lower()] == 1 and title.lower() not in taken
    }
