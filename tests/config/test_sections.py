"""Every field of a run's configuration is declared once, and its declaration is what is checked."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest

from raffed.config.run import SECTIONS, RunConfig
from raffed.config.validation import Declaration, Value, declarations
from raffed.data.preparation import STYLES
from raffed.errors import UsageError
from raffed.experiments.tuning.request import PROTOCOLS, Request

FIELDS = [
    *(("", one) for name, one in declarations(RunConfig).items() if name not in SECTIONS),
    *((section, one) for section, kind in SECTIONS.items() for one in declarations(kind).values()),
]
WRONG: dict[str, list[Value]] = {  # for each type, values of every other type
    "bool": [0, 1, 0.5, "true", [True], None],
    "int": [True, 0.5, 1.0, "1", [1], None],
    "float": [True, "0.5", [0.5], {}, None],
    "str": [True, 1, 0.5, ["a"], {}, None],
    "table": [True, 1, "a", [1], None],
}
NEEDED: dict[str, dict[str, Value]] = {  # fields that need another one
    "privacy.noise": {"privacy.clip": 1.0},
    "local.schedule_by": {"local.schedule": "cosine"},
}


def label(section: str, one: Declaration) -> str:
    return f"{section}.{one.name}" if section else one.name


TAKES_LISTS = ("metrics",)  # texts that may be given as a list


def refused_values(one: Declaration) -> Iterator[Value]:
    """Values of every wrong type, values just outside the range, and a word that is no choice."""
    wrong = (value for value in WRONG[one.kinds[0]] if not (value is None and "None" in one.kinds))
    yield from (value for value in wrong if not (isinstance(value, list) and one.name in TAKES_LISTS))
    if one.range is not None:
        yield math.nextafter(one.range.low, -math.inf) if one.kinds[0] == "float" else int(one.range.low) - 1
        if one.range.open_low:
            yield one.range.low
        if one.range.high < math.inf:
            yield (
                math.nextafter(one.range.high, math.inf)
                if one.kinds[0] == "float"
                else int(one.range.high) + 1
            )
        if one.kinds[0] == "float":
            yield from (math.nan, math.inf, -math.inf)
    if one.choices:
        yield from ("no such word", one.choices[-1].upper())


def accepted_values(one: Declaration) -> Iterator[Value]:
    """The ends of the range, an int for a float, and every choice."""
    if one.range is not None:
        kind = int if one.kinds[0] == "int" else float
        if not one.range.open_low:
            yield kind(one.range.low)
        if one.range.high < math.inf:
            yield kind(one.range.high)
            yield from [int(one.range.high)] * (int(one.range.high) > one.range.low)
    yield from one.choices
    yield from [None] * ("None" in one.kinds)


REFUSED = [(section, one, value) for section, one in FIELDS for value in refused_values(one)]
ACCEPTED = [(section, one, value) for section, one in FIELDS for value in accepted_values(one)]


def named(case: tuple[str, Declaration, Value]) -> str:
    return f"{label(case[0], case[1])}={case[2]!r}"


def test_the_law_below_is_about_every_field() -> None:
    assert len(FIELDS) > 45
    assert {label(section, one) for section, one, _ in REFUSED} == {label(*field) for field in FIELDS}
    assert len(REFUSED) > 300


@pytest.mark.parametrize("case", REFUSED, ids=named)
def test_a_value_of_a_wrong_type_or_outside_the_range_is_refused_in_one_line_that_names_the_field(
    case: tuple[str, Declaration, Value],
) -> None:
    section, one, value = case
    given: dict[str, Value] = {section: {one.name: value}} if section else {one.name: value}
    with pytest.raises(UsageError) as refused:
        RunConfig.from_dict(given)
    said = str(refused.value)
    assert label(section, one) in said
    assert "\n" not in said
    assert repr(value)[1:-1] in said or str(value) in said


@pytest.mark.parametrize("case", ACCEPTED, ids=named)
def test_the_ends_of_a_range_and_every_choice_are_accepted(case: tuple[str, Declaration, Value]) -> None:
    section, one, value = case
    name = label(section, one)
    made = RunConfig().changed({**NEEDED.get(name, {}), name: value})
    found = getattr(getattr(made, section), one.name) if section else getattr(made, one.name)
    assert found == value
    assert type(found).__name__ in one.kinds or found is None


@pytest.mark.parametrize("kind", [RunConfig, *SECTIONS.values(), Request], ids=lambda kind: kind.__name__)
def test_every_field_says_what_it_means_and_every_number_has_a_range(kind: type) -> None:
    for one in declarations(kind).values():
        assert one.doc.endswith("."), one
        assert one.summary, one
        assert (one.range is not None) == (one.kinds[0] in ("int", "float")), one


def test_several_words_are_separated_by_commas_and_each_is_checked() -> None:
    assert RunConfig().changed({"federation.measures": "memory, spectrum"}).federation.asks("spectrum")
    with pytest.raises(UsageError, match=r"unknown federation\.measures 'spectra'; nearest: spectrum"):
        RunConfig().changed({"federation.measures": "memory,spectra"})


def test_the_styles_of_preprocessing_are_those_that_the_data_know() -> None:
    assert set(declarations(SECTIONS["data"])["transform"].choices) == {"auto", *STYLES}


def test_every_protocol_of_a_sweep_says_what_it_means() -> None:
    assert set(PROTOCOLS) == set(declarations(Request)["protocol"].choices)


def test_changing_nothing_gives_the_same_configuration_and_an_unknown_section_is_refused() -> None:
    assert RunConfig().changed({}) == RunConfig().canonical()
    with pytest.raises(UsageError, match="unknown key in the configuration 'locale'; nearest: local"):
        RunConfig().changed({"locale.lr": 1.0})
