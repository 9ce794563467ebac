"""Every field of a run is declared once, and its declaration is what pydantic and the JSON schema check;
portable bits as a setting.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, reject
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from safetensors.torch import save_file

import raffed
from raffed.config.portable import BitsTooLateError, check_machine, check_set, is_set, variables
from raffed.config.run import RunConfig
from raffed.config.sections import SECTIONS, Model
from raffed.config.toml import configuration_schema, parse_toml, schema_text
from raffed.config.validation import Declaration, Json, Value, declarations
from raffed.errors import UnknownNameError, UsageError
from raffed.runtime.initial_weights import read_initial
from raffed.search.request import Request
from tests.cli.conftest import cli
from tests.golden.configurations import CONFIGURATIONS

KINDS = {"": RunConfig, **SECTIONS}
REFUSED: dict[str, list[tuple[str, Value, str]]] = {  # a bound, a word and strict types in each section
    "": [("seed", -1, "is outside [0, 2147483647]"), ("seed", True, "is a bool, but must be an int")],
    "data": [("validation", 0.95, "is outside [0.0, 0.9]"), ("download", 1, "is an int, but must be a bool")],
    "model": [("args", [1], "is a list, but must be a table"), ("init", 3, "is an int, but must be a str")],
    "local": [("lr", -0.1, "is outside [0.0, 1000.0]"), ("lr", True, "is a bool, but must be a float")],
    "federation": [("rounds", 0, "is below 1"), ("rounds", 2.0, "is a float, but must be an int")],
    "numerics": [("cohort", -1, "is below 0"), ("cohort", "1", "is a str, but must be an int")],
    "faults": [("drop", 1.5, "is outside [0.0, 1.0]"), ("drop", None, "is a NoneType, but must be a float")],
    "privacy": [
        ("clip", 0.0, "is outside (0.0, 1000000000.0]"),
        ("masks", 1, "is an int, but must be a bool"),
    ],
    "clock": [("spread", float("nan"), "is outside [0.0, 10.0]")],
    "runtime": [
        ("threads", 1025, "is outside [1, 1024]"),
        ("address", 1, "is an int, but must be a str | None"),
    ],
}


@pytest.mark.parametrize("section", KINDS)
def test_a_section_refuses_values_and_keys_with_what_is_allowed(section: str) -> None:
    for name, value, allowed in REFUSED[section]:
        label = f"{section}.{name}" if section else name
        with pytest.raises(UsageError) as refused:
            RunConfig.from_dict({section: {name: value}} if section else {name: value})
        assert str(refused.value) == f"{label} = {value!r} {allowed}"
    name = next(reversed(declarations(KINDS[section])))
    with pytest.raises(UnknownNameError, match=rf"unknown key in .* '{name}s'; nearest: .*\b{name}\b"):
        RunConfig.from_dict({section: {f"{name}s": 1}} if section else {f"{name}s": 1})


@pytest.mark.parametrize("kind", [*KINDS.values(), Request], ids=lambda kind: kind.__name__)
def test_every_field_says_what_it_means_and_every_number_has_a_range(kind: type) -> None:
    for one in declarations(kind).values():
        assert one.doc.endswith("."), one
        assert one.summary, one
        assert (one.range is not None) == (one.kinds[0] in ("int", "float")), one


def test_a_word_that_is_no_choice_is_refused_with_the_nearest_also_among_several() -> None:
    assert RunConfig().changed({"federation.measures": "memory, spectrum"}).federation.asks("spectrum")
    for field, text, message in (
        (
            "federation.measures",
            "memory,spectra",
            r"unknown federation\.measures 'spectra'; nearest: spectrum",
        ),
        ("numerics.precision", "bf61", r"unknown numerics\.precision 'bf61'; nearest: bf16"),
    ):
        with pytest.raises(UnknownNameError, match=message):
            RunConfig().changed({field: text})


def toml(value: Any) -> str:
    """A value as TOML writes it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(str(key))} = {toml(one)}" for key, one in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    return "nan" if value is None else json.dumps(value) if isinstance(value, str) else repr(value)


def values_of(one: Declaration) -> st.SearchStrategy[Value]:
    """Return values that a declaration allows: choices, numbers in the range, ints that stand for floats."""
    if one.choices:
        return st.sampled_from(["", *filter(None, one.choices)] if one.words else one.choices)
    if one.range is None:
        return st.booleans()
    low, high = one.range.low, min(one.range.high, 2**31 - 1)
    numbers: st.SearchStrategy[Value] = st.integers(int(low) + one.range.open_low, int(max(high, low + 1)))
    if one.kinds[0] == "float":
        numbers = st.floats(low, high, exclude_min=one.range.open_low) | numbers.filter(
            lambda number: number in (low, high) or low < number < high
        )
    return (numbers | st.none()) if "None" in one.kinds else numbers


FIELDS = {
    f"{section}.{name}": one
    for section, kind in SECTIONS.items()
    for name, one in declarations(kind).items()
    if one.kinds[0] in ("int", "float", "bool") or one.choices
}
CHANGES = st.lists(st.sampled_from(sorted(FIELDS)), max_size=4, unique=True).flatmap(
    lambda names: st.fixed_dictionaries({name: values_of(FIELDS[name]) for name in names})
)


@given(CHANGES)
def test_a_configuration_is_the_same_after_it_was_written_as_json_or_toml(changes: dict[str, Value]) -> None:
    try:
        config = RunConfig().changed(changes)
    except UsageError:  # two fields contradict each other, which no declaration says
        reject()
    tables = json.loads(json.dumps(config.as_dict()))
    assert RunConfig.from_dict(tables) == config
    lines = (
        f"{name}.{key} = {toml(value)}"
        for name in SECTIONS
        for key, value in tables[name].items()
        if value is not None  # TOML has none, and every such field may be left out
    )
    read = RunConfig.from_dict(parse_toml("\n".join(lines), "drawn"))
    assert read == config
    assert read.identity() == config.identity()


def test_an_int_that_stands_for_a_float_is_stored_as_that_float() -> None:
    config = RunConfig.from_dict({"local": {"lr": 1, "clip_norm": 2}, "federation": {"participation": 1}})
    for value in (config.local.lr, config.local.clip_norm, config.federation.participation):
        assert type(value) is float
    assert config.identity() == RunConfig().changed({"local.lr": 1.0, "local.clip_norm": 2.0}).identity()


def test_the_identities_of_the_golden_configurations_are_those_of_the_runs_that_exist() -> None:
    """The hash over them is that of raffed before pydantic checked configurations (commit 24c32f60)."""
    identities = "".join(RunConfig.from_dict(values).identity() for values in CONFIGURATIONS.values())
    assert hashlib.sha256(identities.encode()).hexdigest() == (
        "43cdbefed1355fdbf5dfa0fce6ab9b0575635dc6cb862313d42c1a8ad8e634d6"
    )


# The file of `model.init` is a regular file, or the configuration is refused before anything is read.


def placed(path: Path, kind: str) -> str:
    if kind == "a named pipe":
        os.mkfifo(path)
    if kind == "a folder":
        path.mkdir()
    if kind == "a link in a circle":
        path.symlink_to(path)
    return "/dev/zero" if kind == "a device without an end" else str(path)


@pytest.mark.skipif(os.name != "posix", reason="other systems have no such files")
@pytest.mark.parametrize(
    "kind", ["a named pipe", "a device without an end", "a folder", "a link in a circle", "missing"]
)
@pytest.mark.parametrize("known", ["", "0" * 64])  # a new run, and one whose run.json has the hash
def test_what_is_not_a_regular_file_is_refused_at_once(tmp_path: Path, kind: str, known: str) -> None:
    file = placed(tmp_path / "weights.pt", kind)
    with pytest.raises(UsageError, match=r"model\.init = "):
        read_initial(Model(init=file, init_sha256=known))


@pytest.mark.parametrize("kind", ["pt", "safetensors"])
def test_numbers_in_bfloat16_are_read_as_the_same_numbers_in_float32(tmp_path: Path, kind: str) -> None:
    values = torch.tensor([[1.0, -0.0078125], [3.140625, 65536.0]])  # bfloat16 has them exactly
    path = tmp_path / f"weights.{kind}"
    (torch.save if kind == "pt" else save_file)({"a": values.bfloat16()}, path)
    read = read_initial(Model(init=str(path), init_sha256=sha256(path.read_bytes()).hexdigest()))
    assert read is not None
    assert read["a"].dtype == "float32"
    assert read["a"].tolist() == values.tolist()


def test_what_is_no_table_of_real_numbers_is_refused_by_its_name(tmp_path: Path) -> None:
    path = tmp_path / "weights.pt"
    wrong = {"is not a plain table of real numbers": 1j, "has NaN in it": float("nan")}
    for said, number in wrong.items():
        torch.save({"fc.weight": torch.ones(2) * number}, path)
        with pytest.raises(UsageError, match=rf"fc\.weight {said}"):
            read_initial(Model(init=str(path), init_sha256=sha256(path.read_bytes()).hexdigest()))


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


def config(bits: str = "portable", **more: Mapping[str, Json]) -> raffed.RunConfig:
    return raffed.RunConfig.from_dict({**more, "numerics": {**more.get("numerics", {}), "bits": bits}})


@pytest.mark.parametrize(
    ("setting", "section", "field", "value"),
    [
        *(("bits", "numerics", "precision", "bf16"), ("bits", "runtime", "threads", 2)),
        ("bits", "runtime", "gpu_fraction", 1.0),
        ("convolutions", "numerics", "precision", "bf16"),
        ("convolutions", "runtime", "gpu_fraction", 1.0),
    ],
)
def test_other_bits_and_convolutions_are_refused_where_they_cannot_be_had(
    setting: str, section: str, field: str, value: Json
) -> None:
    own = {"bits": "portable", "convolutions": "compiled"}[setting]
    tables: dict[str, dict[str, Json]] = {"numerics": {setting: own}}
    tables[section] = {**tables.get(section, {}), field: value}
    with pytest.raises(UsageError, match=rf"cannot be had with {section}.{field}"):
        raffed.RunConfig.from_dict(tables)


def test_bits_and_convolutions_are_part_of_an_identity_and_the_usual_ones_are_not() -> None:
    plain = raffed.RunConfig().identity()
    given = [
        {"bits": "machine"},
        {"convolutions": "torch"},
        {"bits": "portable"},
        {"convolutions": "compiled"},
    ]
    both = {"bits": "portable", "convolutions": "compiled"}
    found = [raffed.RunConfig.from_dict({"numerics": one}).identity() for one in [*given, both]]
    assert found[:2] == [plain] * 2
    assert len({plain, *found[2:]}) == 4


def test_a_process_that_has_loaded_torch_is_refused_with_the_remedy() -> None:
    import torch  # noqa: F401  (as every test has)

    with pytest.raises(BitsTooLateError, match=r"call raffed.portable\(\) first"):
        raffed.portable()
    with pytest.raises(BitsTooLateError, match="numpy and torch"):
        raffed.run(config())
    assert not is_set()


HASWELL = ("sse2", "avx", "avx2", "fma", "f16c", "bmi1", "bmi2")


@pytest.mark.parametrize(
    ("system", "machine", "flags", "reason"),
    [
        ("linux", "aarch64", (), "this processor is aarch64"),
        ("win32", "AMD64", HASWELL, "this system is win32"),
        ("linux", "x86_64", ("sse2", "avx"), "has no avx2 and no fma"),
    ],
)
def test_other_machines_are_refused(system: str, machine: str, flags: tuple[str, ...], reason: str) -> None:
    check_machine("linux", "x86_64", HASWELL)
    with pytest.raises(UsageError, match=reason):
        check_machine(system, machine, flags)


def test_a_portable_process_refuses_runs_of_other_bits_and_names_a_variable_that_was_changed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in variables().items():
        monkeypatch.setenv(name, value)
    check_set("portable")
    assert raffed.portable() == variables()
    with pytest.raises(UsageError, match="unset RAFFED_BITS"):  # before it starts, and without Ray
        raffed.run(raffed.RunConfig().changed({"runtime.execution": "serial"}))
    monkeypatch.setenv("MKL_CBWR", "AVX2")
    with pytest.raises(UsageError, match="MKL_CBWR is 'AVX2'"):
        check_set("portable")


def test_stacked_runs_of_earlier_versions_keep_their_identity() -> None:
    """That of a run of the version before this setting, with numerics.cohort = 4."""
    old = raffed.RunConfig.from_dict({"numerics": {"cohort": 4}})
    assert old.identity() == "5bb398e268db2bed7f1238510c71ea61c598b55434d3b218a6e05ee4002ad442"
