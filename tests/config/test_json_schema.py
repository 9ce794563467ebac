"""The JSON schema accepts what raffed reads and refuses what raffed refuses for a single key."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from raffed.config.run import RunConfig
from raffed.config.toml import configuration_schema, parse_toml, schema_text
from raffed.errors import UsageError
from tests.cli.conftest import cli
from tests.golden.configurations import CONFIGURATIONS

__all__ = ["cli"]

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"```toml\n(.*?)```", re.DOTALL)
SCHEMA = Draft202012Validator(configuration_schema())


def test_every_golden_configuration_and_the_usual_one_fit() -> None:
    Draft202012Validator.check_schema(configuration_schema())
    assert len(CONFIGURATIONS) >= 20
    for values in [*CONFIGURATIONS.values(), RunConfig().as_dict()]:
        whole = json.loads(json.dumps(RunConfig.from_dict(values).as_dict()))
        assert [one.message for one in SCHEMA.iter_errors(values)] == []
        assert [one.message for one in SCHEMA.iter_errors(whole)] == []


def test_every_configuration_in_the_documentation_fits() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    blocks = [block for page in pages for block in BLOCK.findall(page.read_text(encoding="utf-8"))]
    runs = [one for one in (parse_toml(block, "docs") for block in blocks) if _is_run(one)]
    assert runs
    for one in runs:
        assert [error.message for error in SCHEMA.iter_errors(one)] == []


def _is_run(tables: object) -> bool:
    try:
        RunConfig.from_dict(tables)  # type: ignore[arg-type]
    except (UsageError, AttributeError):
        return False
    return True


@pytest.mark.parametrize(
    "wrong",
    [
        {"methode": "fedavg"},
        {"seed": True},
        {"local": {"lr": -0.1}},
        {"local": {"learning_rate": 0.1}},
        {"local": []},
        {"numerics": {"precision": "fp16"}},
        {"runtime": {"execution": "slurm"}},
        {"args": [1]},
    ],
    ids=str,
)
def test_what_raffed_refuses_does_not_fit(wrong: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        RunConfig.from_dict(wrong)  # type: ignore[arg-type]
    assert list(SCHEMA.iter_errors(wrong))


def test_the_stored_schema_is_the_present_one() -> None:
    """`raffed schema > docs/raffed.schema.json` writes it anew."""
    assert (ROOT / "docs" / "raffed.schema.json").read_text(encoding="utf-8") == schema_text()
