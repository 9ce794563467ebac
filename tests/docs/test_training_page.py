"""docs/training.md says what the code does."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from raffed.cli.options import FLAGS
from raffed.config.optimizers import SCHEDULES, schedule_arguments
from raffed.config.run import RunConfig
from raffed.config.toml import parse_toml
from raffed.config.training import Local
from raffed.config.validation import declarations
from raffed.core.training.rates import RoundRates
from tests.docs.training import PAGE, PLACES, written

TEXT = PAGE.read_text(encoding="utf-8")


def test_the_tables_are_those_made_from_the_code() -> None:
    assert len(PLACES.findall(TEXT)) == 2
    assert written() == TEXT


def test_every_schedule_and_every_argument_with_its_default_is_in_the_table() -> None:
    for name, schedule in SCHEDULES.items():
        row = next(line for line in TEXT.splitlines() if line.startswith(f"| `{name}` |"))
        for one in schedule_arguments(schedule).values():
            default = one.shown_default.replace(" ", "").strip("()")
            assert f"`{one.name}={default}`" in row.replace(" ", "")


def test_every_way_to_count_is_in_the_table() -> None:
    for word in declarations(Local)["schedule_by"].choices:
        assert f"\n| `{word}`" in TEXT


@pytest.mark.parametrize("block", re.findall(r"```toml\n(.*?)```", TEXT, re.DOTALL))
def test_the_toml_of_the_page_is_a_configuration(block: str) -> None:
    assert RunConfig.from_dict(parse_toml(block, "docs/training.md")).local.optimizer == "adam"


def test_the_options_of_the_page_exist() -> None:
    known = {one for flag in FLAGS for one in re.findall(r"--[\w-]+", flag.flag)} | {"--grid", "--out"}
    assert set(re.findall(r"(?<![\w-])--[a-z][\w-]+", TEXT)) <= known


def test_the_schedule_that_the_page_writes_is_one() -> None:
    [block] = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    space: dict[str, object] = {}
    exec(block, space)
    halves = space["halves"]
    assert callable(halves)
    assert [halves(done, 60) for done in (0, 19, 20, 40)] == [1.0, 1.0, 0.5, 0.25]


def test_a_warm_up_shortens_the_schedule_as_the_page_says() -> None:
    local = Local(lr=1.0, schedule="polynomial", warmup_rounds=5)
    assert RoundRates(local, 14, 15).first() == pytest.approx(1 / 10)
    assert RoundRates(replace(local, warmup_rounds=0), 9, 10).first() == pytest.approx(1 / 10)
