"""What a file holds is declared as a type; the check accepts what fits it and names what does not."""

from __future__ import annotations

import re
from typing import Annotated, Literal, NotRequired

import pytest
from typing_extensions import TypedDict

from raffed.config.validation import Json, Length, Range
from raffed.results.files import Form, Shape, check_json

Count = Annotated[int, Range(0)]
Word = Annotated[str, Form("a word in capital letters", str.isupper)]


class Part(TypedDict):
    name: Word
    sizes: NotRequired[list[Annotated[list[float], Length(2, 2)]]]


class File(TypedDict, total=False):
    schema: Annotated[int, Range(1, 2)]
    state: Annotated[str, Shape(Literal["open", "shut"])]
    seconds: Annotated[float, Range(0.0, 60.0)]
    notes: dict[Word, str | Count | None]
    part: Part | None
    parts: list[Part]
    more: dict[str, Json]


FITS: list[Json] = [
    {},
    {"schema": 2, "state": "shut", "seconds": 1, "notes": {"A": "b", "C": 0, "D": None}},
    {"part": None, "parts": [{"name": "A"}, {"name": "B", "sizes": [[1, 2.5]]}], "more": {"x": [{"y": []}]}},
]
MISFITS: list[tuple[Json, str]] = [
    ([], "the file is [], but must be a valid dictionary"),
    ({"schema": 3}, "schema is 3, but must be less than or equal to 2"),
    ({"schema": True}, "schema is True, but must be a valid integer"),
    ({"state": "ajar"}, "state is 'ajar', but must be 'open' or 'shut'"),
    ({"notes": {"a": ""}}, "notes.a is 'a', but must be a word in capital letters"),
    ({"notes": {"A": []}}, "notes.A is [], but must be a valid string or must be a valid integer"),
    ({"part": {}}, "part.name is missing"),
    (
        {"parts": [{"name": "A"}, {"name": "b"}]},
        "parts[1].name is 'b', but must be a word in capital letters",
    ),
    ({"parts": [{"name": "A", "size": 1}]}, "parts[0].size is not a field that raffed writes"),
    ({"parts": [{"name": "A", "sizes": [[1]]}]}, "parts[0].sizes[0] is [1], but must have at least 2 items"),
    ({"second": 1}, "second is not a field that raffed writes (did you mean 'seconds'?)"),
    ({"x\x1b": 1}, r"'x\x1b' is not a field that raffed writes"),
]


@pytest.mark.parametrize("value", FITS)
def test_what_fits_the_type_is_accepted(value: Json) -> None:
    check_json(File, value)


@pytest.mark.parametrize(("value", "says"), MISFITS)
def test_what_does_not_fit_is_named_with_its_place_its_value_and_what_is_wanted(
    value: Json, says: str
) -> None:
    with pytest.raises(ValueError, match=re.escape(says)) as raised:
        check_json(File, value)
    assert "\n" not in str(raised.value)
