"""Every field of run.json is declared once, and each wrong value gives one line that names the field."""

from __future__ import annotations

from typing import get_args, get_type_hints

import pytest

from raffed.config.validation import Doc, Json
from raffed.results.runfile import RunContents, problem
from tests.forging import FEWEST

WRONG: dict[str, tuple[Json, str]] = {
    "schema": ("2", "schema is '2', but must be a valid integer"),
    "run_id": ("", "run_id is '', but must be a text of printable characters"),
    "config": ([], "config is [], but must be a valid dictionary"),
    "identity": ("0" * 63, "but must be 64 hexadecimal digits"),
    "method_revision": (1.5, "method_revision is 1.5, but must be a valid integer"),
    "state": ("done", "but must be 'running', 'stopped', 'failed' or 'finished'"),
    "rounds_done": (-1, "rounds_done is -1, but must be greater than or equal to 0"),
    "seconds": (-1.0, "seconds is -1.0, but must be greater than or equal to 0"),
    "partition_sha256": (None, "partition_sha256 is None, but must be a valid string"),
    "lists_sha256": (None, "lists_sha256 is None, but must be a valid string"),
    "contents_sha256": (None, "contents_sha256 is None, but must be a valid string"),
    "data_sha256": ("A" * 64, "but must be 64 hexadecimal digits"),
    "transform": (3, "transform is 3, but must be a valid string"),
    "versions": ({"torch": 2}, "versions.torch is 2, but must be a valid string"),
    "started": (0, "started is 0, but must be a valid string"),
    "hardware": (
        {"cores": 2.5},
        "hardware.cores is 2.5, but must be a valid string or must be a valid integer",
    ),
    "commit": (7, "commit is 7, but must be a valid string"),
    "error": ({}, "error is {}, but must be a valid string"),
    "inputs": ({"shape": [1]}, "inputs.dtype is missing"),
    "dataset": ([], "dataset is [], but must be a valid dictionary"),
    "effective": ([], "effective is [], but must be a valid dictionary"),
    "clients": (True, "clients is True, but must be a valid integer"),
    "classes": ({"samples": ["1"], "holders": [1]}, "classes.samples[0] is '1', but must be a valid integer"),
    "placement": ([], "placement is [], but must be a valid dictionary"),
    "hashes": ({"metrics": "0" * 64, "vaults": "0" * 64}, "hashes.weights is missing"),
    "round_hashes": (["x"], "round_hashes[0] is 'x', but must be 64 hexadecimal digits"),
    "files": ({"../x": "0" * 64}, "files.../x is '../x', but must be the name of a file below the folder"),
    "segments": ([{"from": 1}], "segments[0].to is missing"),
    "title": (3, "title is 3, but must be a valid string"),
    "metrics": ([{"name": "top2"}], "metrics[0].better is missing"),
    "code": ([{"role": "method"}], "code[0].reference is missing"),
    "earlier": (["a"], "earlier[0] is 'a', but must be a valid dictionary"),
    "best": ({"round": 3, "measure": "val.accuracy"}, "best.value is missing"),
    "ended_early": (3, "ended_early is 3, but must be a valid string"),
}


FIELDS = get_type_hints(RunContents, include_extras=True)


@pytest.mark.parametrize("name", FIELDS)
def test_every_field_has_a_meaning_and_a_wrong_value_is_named(name: str) -> None:
    assert [one for one in get_args(FIELDS[name]) if isinstance(one, Doc)]
    value, says = WRONG[name]
    found = problem({**FEWEST, name: value})
    assert says in found
    assert found.count("\n") == 0


def test_a_field_that_there_is_not_is_named_with_the_nearest() -> None:
    assert "rounds_doen is not a field that raffed writes (did you mean 'rounds_done'?)" in problem(
        {**FEWEST, "rounds_doen": 3}
    )


@pytest.mark.parametrize("name", FEWEST)
def test_a_field_that_every_run_has_may_not_be_missing(name: str) -> None:
    assert problem(FEWEST) == ""
    assert problem({other: value for other, value in FEWEST.items() if other != name}).startswith(
        f"has no {name};"
    )


@pytest.mark.parametrize("schema", [1, 3])
def test_another_schema_is_left_to_the_version_that_wrote_it(schema: int) -> None:
    found = problem({**FEWEST, "schema": schema})
    assert found == f"schema {schema}, and this version of raffed reads 2; use the version that wrote it"
