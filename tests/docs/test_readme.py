"""README says what the code does."""

from __future__ import annotations

from raffed.methods import METHODS
from tests.docs.readme import PLACE, README, table, written


def test_readme_s_table_of_methods_is_the_one_made_from_the_code() -> None:
    assert PLACE.search(README.read_text(encoding="utf-8")) is not None
    assert README.read_text(encoding="utf-8") == written()
    assert table().count("\n") == len(METHODS) + 2
