"""Portable bits as a setting: what they are refused with, and which processes compute them."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

import raffed
from raffed.config.portable import (
    BitsTooLateError,
    check_machine,
    check_set,
    is_set,
    variables,
)
from raffed.config.validation import Json
from raffed.errors import UsageError


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


def test_a_portable_process_refuses_runs_of_other_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in variables().items():
        monkeypatch.setenv(name, value)
    check_set("portable")
    assert raffed.portable() == variables()
    with pytest.raises(UsageError, match="unset RAFFED_BITS"):
        raffed.run(raffed.RunConfig())


def test_a_variable_that_was_changed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in variables().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("MKL_CBWR", "AVX2")
    with pytest.raises(UsageError, match="MKL_CBWR is 'AVX2'"):
        check_set("portable")


def test_stacked_runs_of_earlier_versions_keep_their_identity() -> None:
    """That of a run of the version before this setting, with numerics.cohort = 4."""
    old = raffed.RunConfig.from_dict({"numerics": {"cohort": 4}})
    assert old.identity() == "5bb398e268db2bed7f1238510c71ea61c598b55434d3b218a6e05ee4002ad442"
