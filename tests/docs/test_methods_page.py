"""docs/methods.md says what the code does."""

from __future__ import annotations

import re

from raffed.methods import METHODS, build_method
from tests.docs.methods import FIELD, PAGE, SIDES, batchnorm, for_whom, notes, wires, written
from tests.golden.regenerate import WIRE
from tests.tiny import over_methods


def test_the_page_is_the_one_that_the_code_makes() -> None:
    """`python -m tests.docs.methods` writes it."""
    assert written() == PAGE.read_text(encoding="utf-8")


def test_every_field_of_the_wire_table_is_read() -> None:
    """Of a line with four spaces, nothing is skipped, and every method has its four sides."""
    fields = [line for line in WIRE.read_text(encoding="utf-8").splitlines() if line.startswith("    ")]
    assert all(FIELD.fullmatch(line) for line in fields)
    assert len(fields) == sum(len(found) for sides in wires().values() for found in sides.values())
    assert all(tuple(sides) == SIDES for sides in wires().values())


@over_methods
def test_every_departure_that_a_docstring_names_is_on_the_page(name: str) -> None:
    """It stands in a paragraph of its own, which begins with this word, and the page quotes it."""
    doc = METHODS[name].described().doc
    told = [note for note in notes(doc) if note.startswith("Departure")]
    assert len(re.findall("departure", doc, re.IGNORECASE)) == len(told)
    page = PAGE.read_text(encoding="utf-8")
    assert all(f"- {note}" in page for note in notes(doc))


@over_methods
def test_a_method_without_a_whole_model_at_the_server_is_personal(name: str) -> None:
    method = build_method(name, {})
    assert (for_whom(method) == "personal") is not method.has_global


def test_fedavg_is_global_ditto_and_fedala_are_both_and_solo_is_personal() -> None:
    found = {name: for_whom(build_method(name, {})) for name in ("fedavg", "ditto", "fedala", "solo")}
    assert found == {"fedavg": "global", "ditto": "both", "fedala": "both", "solo": "personal"}
    assert batchnorm(build_method("fedavg", {})) == "not needed"
    assert batchnorm(build_method("solo", {})) == "statistics stay with the client"


def test_fedavg_sends_weights_statistics_and_a_number_and_keeps_nothing() -> None:
    assert [name for name, _ in wires()["fedavg"]["up"]] == ["n", "w", "b"]
    assert wires()["fedavg"]["client keeps"] == []
    assert set(wires()) == set(METHODS)
