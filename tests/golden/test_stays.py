"""The names that scripts depend on are those of the stored list (docs/stays.md)."""

from __future__ import annotations

from tests.golden.stays import STAYS, names


def test_no_name_that_scripts_depend_on_goes_or_comes_unseen() -> None:
    """Whoever changes one writes the list anew: `python -m tests.golden.stays`."""
    stored = STAYS.read_text(encoding="utf-8").splitlines()
    assert names() == stored
    assert {"public run", "option run --method", "key local.lr", "event round", "exit 2"} <= set(stored)
