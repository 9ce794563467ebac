"""A rule of one's own that chooses the participants, by reference."""

from __future__ import annotations

from pathlib import Path

import pytest

import raffed
from raffed.errors import UsageError
from raffed.runtime.setup import prepare_run
from tests.laws.test_selected_runs import config, took_part

OWN = "def last(round, sizes, count):\n    return range(len(sizes) - count, len(sizes))\n"
LOSSY = (
    "def easiest(sizes, count, losses):\n"
    "    found = losses(range(len(sizes)))\n"
    "    return sorted(range(len(sizes)), key=lambda c: found[c])[:count]\n"
)


def test_a_rule_of_one_s_own_is_found_by_reference(tmp_path: Path, lab: Path) -> None:
    (lab / "rules.py").write_text(OWN + LOSSY)
    run = config("./rules.py:last", rounds=2)
    result = raffed.run(run, tmp_path / "run")
    assert took_part(result) == [[7, 8, 9], [7, 8, 9]]
    easiest = raffed.run(config("./rules.py:easiest", rounds=2))
    assert [len(one) for one in took_part(easiest)] == [3, 3]


def test_arguments_that_a_rule_of_one_s_own_does_not_have_are_refused(lab: Path) -> None:
    (lab / "rules.py").write_text(OWN)
    with pytest.raises(UsageError, match="wide"):
        prepare_run(config("./rules.py:last", wide=2))
