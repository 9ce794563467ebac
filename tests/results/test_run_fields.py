"""Every field of run.json is declared once, and each wrong value gives one line that names the field."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from raffed.config.validation import Doc, Json, fields_of, markers_of
from raffed.results.run_contents import RunContents
from raffed.results.run_fields import RUN_SCHEMA, problem
from tests.forging import FEWEST

OLD = sorted((Path(__file__).parents[1] / "golden" / "old_runs").glob("*/run.json"))
WHOLE: dict[str, Json] = {
    **FEWEST,
    "schema": 2,
    "files": {"metrics/part-000000.parquet": "2" * 64},
    "segments": [
        {"from": 1, "to": 3, "started": "now", "versions": {}, "hardware": {"cores": 2}, "said": []},
    ],
}
WRONG: dict[str, tuple[Json, str]] = {
    "schema": ("2", "schema is a text ('2'), but must be an integer"),
    "run_id": ("", "run_id is a text (''), but must be a text of printable characters"),
    "config": ([], "config is a list, but must be an object"),
    "identity": ("0" * 63, "but must be 64 hexadecimal digits"),
    "method_revision": (1.5, "method_revision is a number (1.5), but must be an integer of 0 or more"),
    "state": ("done", "but must be 'running' or 'stopped' or 'failed' or 'finished'"),
    "rounds_done": (-1, "rounds_done is an integer (-1), but must be an integer of 0 or more"),
    "seconds": (-1.0, "seconds is a number (-1.0), but must be a number in [0, 1e+11]"),
    "partition_sha256": (None, "partition_sha256 is null, but must be 64 hexadecimal digits"),
    "lists_sha256": (None, "lists_sha256 is null, but must be 64 hexadecimal digits"),
    "contents_sha256": (None, "contents_sha256 is null, but must be 64 hexadecimal digits"),
    "data_sha256": ("A" * 64, "but must be 64 hexadecimal digits"),
    "transform": (3, "transform is an integer (3), but must be a text of printable characters"),
    "versions": ({"torch": 2}, "versions.torch is an integer (2), but must be a text"),
    "started": (0, "started is an integer (0)"),
    "hardware": ({"cores": 2.5}, "hardware.cores is a number (2.5)"),
    "commit": (7, "commit is an integer (7), but must be a text or null"),
    "error": ({}, "error is an object, but must be a text or null"),
    "inputs": ({"shape": [1]}, "inputs.dtype is missing"),
    "dataset": ([], "dataset is a list, but must be an object"),
    "effective": ([], "effective is a list, but must be an object"),
    "clients": (True, "clients is true or false (True), but must be an integer of 0 or more"),
    "classes": ({"samples": ["1"], "holders": [1]}, "classes.samples[0] is a text ('1')"),
    "placement": ([], "placement is a list, but must be an object"),
    "auto": ("serial", "auto is a text ('serial'), but must be an object"),
    "hashes": ({"metrics": "0" * 64, "vaults": "0" * 64}, "hashes.weights is missing"),
    "round_hashes": (["x"], "round_hashes[0] is a text ('x'), but must be 64 hexadecimal digits"),
    "files": ({"../x": "0" * 64}, "a name in files is a text ('../x')"),
    "segments": ([{"from": 1}], "segments[0].to is missing"),
    "title": (3, "title is an integer (3), but must be a text"),
    "metrics": ([{"name": "top2"}], "metrics[0].better is missing"),
    "code": ([{"role": "method"}], "code[0].reference is missing"),
    "earlier": (["a"], "earlier[0] is a text ('a')"),
    "best": ({"round": 3, "measure": "val.accuracy"}, "best.value is missing"),
    "ended_early": (3, "ended_early is an integer (3), but must be a text of printable characters"),
}


@pytest.mark.parametrize("name", fields_of(RunContents))
def test_every_field_has_a_meaning_and_a_wrong_value_is_named(name: str) -> None:
    assert [one for one in markers_of(fields_of(RunContents)[name]) if isinstance(one, Doc)]
    value, says = WRONG[name]
    found = problem({**WHOLE, name: value})
    assert says in found
    assert found.count("\n") == 0


def test_a_field_that_there_is_not_is_named_with_the_nearest() -> None:
    assert "rounds_doen is not a field that raffed writes (did you mean 'rounds_done'?)" in problem(
        {**WHOLE, "rounds_doen": 3}
    )


@pytest.mark.parametrize(
    ("schema", "lacks"), [(1, "has no run_id, state;"), (2, "has no run_id, state, files, segments;")]
)
def test_a_file_must_have_the_fields_of_its_schema(schema: int, lacks: str) -> None:
    assert problem(FEWEST) == problem(WHOLE) == ""
    fewer = {name: value for name, value in FEWEST.items() if name not in ("run_id", "state")}
    assert problem({**fewer, "schema": schema}).startswith(lacks)


@pytest.mark.parametrize("path", OLD, ids=[path.parent.name for path in OLD])
def test_what_older_versions_wrote_is_accepted(path: Path) -> None:
    assert problem(json.loads(path.read_text())) == ""


def test_a_later_schema_is_left_to_the_version_that_wrote_it() -> None:
    found = problem({**WHOLE, "schema": RUN_SCHEMA + 1})
    assert found == "schema 3, and this version of raffed reads 1 to 2; use the version that wrote it"
