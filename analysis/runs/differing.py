"""Name the settings in which the experiments of a task differ, and what may not be compared, in few lines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from .comparable import notices
from .experiment import experiment, value_of
from .groups import Group
from .load import Runs, flatten


class DifferingField(NamedTuple):
    """A field of the configuration, and the experiments that have each of its values."""

    name: str
    values: dict[str, list[str]]


def differing(runs: Runs, members: Sequence[Group]) -> list[DifferingField]:
    """Return each field of the configuration in which the methods of a task differ.

    The method and its arguments are not among them. A difference between two methods is due to them alone
    only if the result is empty.
    """
    configs = {group.label: flatten(experiment(runs.files[group.used[0]])) for group in members}
    fields = []
    for name in sorted({name for config in configs.values() for name in config}):
        values: dict[str, list[str]] = {}
        for label, config in configs.items():
            values.setdefault(str(value_of(config, name)), []).append(label)
        if len(values) > 1 and name != "method" and not name.startswith(("args.", "method_args.")):
            fields.append(DifferingField(name, values))
    return fields


def grouped_notices(runs: Runs, members: Sequence[Group]) -> list[tuple[str, list[str]]]:
    """Return each remark on what may be compared, with the experiments of which it is made."""
    by_remark: dict[str, list[str]] = {}
    for label, said in notices(runs, members):
        by_remark.setdefault(said, []).append(label)
    return list(by_remark.items())
