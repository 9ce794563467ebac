"""The contract holds of raffed's own, and each of its sentences can be false."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from raffed.core.method import Method
from raffed.errors import UnknownNameError, UsageError
from raffed.methods import METHODS
from raffed.testing import ContractError, check, check_dataset, check_method, check_model, check_split
from raffed.testing.methods import MethodContract
from tests.testing import broken
from tests.testing.careless import CARELESS

QUICK = ("fedavg", "scaffold")


@pytest.mark.parametrize(
    "name", [one if one in QUICK else pytest.param(one, marks=pytest.mark.slow) for one in METHODS]
)
def test_every_method_of_raffed_keeps_the_contract(name: str) -> None:
    check_method(name).raise_if_failed()


@pytest.mark.parametrize(("factory", "name"), broken.BROKEN_METHODS)
def test_a_method_that_breaks_a_sentence_is_found(factory: Callable[..., Method], name: str) -> None:
    found = check_method(factory)
    assert name in [one.name for one in found.failed]
    with pytest.raises(ContractError, match=name):
        found.raise_if_failed()


@pytest.mark.parametrize(("factory", "name", "advice"), CARELESS)
def test_a_careless_method_is_told_what_to_do(factory: Callable[..., Method], name: str, advice: str) -> None:
    found = MethodContract(factory, {}).outcome(name, "mine")
    assert found.state == "fails"
    assert advice in found.why


def test_every_check_of_methods_has_a_method_that_it_finds() -> None:
    found = {name for _, name, *_ in (*broken.BROKEN_METHODS, *CARELESS)}
    assert found == {*MethodContract.names()}


def test_an_error_in_the_user_s_code_is_reported_by_its_file_and_line() -> None:
    why = {one.name: one.why for one in check_method(broken.raises)}["finite-losses"]
    assert "tests/testing/broken.py:" in why
    assert why.endswith("ValueError: a mistake of mine")


@pytest.mark.parametrize(
    ("model", "names"),
    [
        (broken.Unused, {"every-weight-used", "known-buffers"}),
        (broken.features_only, {"returns-scores"}),
        (broken.Mixes, {"no-global-generator", "samples-independent", "repeats-itself", "stackable"}),
    ],
)
def test_a_network_that_breaks_sentences_is_found(model: type, names: set[str]) -> None:
    assert names <= {one.name for one in check_model(model).failed}


def test_a_data_set_that_breaks_sentences_is_found() -> None:
    assert {one.name for one in check_dataset(broken.another_each_time).failed} == {"same-twice"}
    failed = {one.name: one.why for one in check_dataset(broken.with_a_gap).failed}
    assert failed["every-class"] == "class 1 has no training sample"
    assert failed["clients-numbered"].startswith("client 1 has no training sample")
    assert failed["test-apart"] == "2 of 2 test samples are training samples too"


def test_a_split_that_breaks_sentences_is_found() -> None:
    failed = {one.name for one in check_split(broken.Unseeded(2)).failed}
    assert {"same-twice", "no-global-generator"} <= failed


@pytest.mark.parametrize(
    ("reference", "kind"),
    [
        ("tests.testing.broken:raises", "method"),
        ("tests.testing.broken:Unused", "model"),
        ("tests.testing.broken:features_only", "model"),
        ("tests.testing.broken:with_a_gap", "dataset"),
    ],
)
def test_a_reference_is_recognised_by_its_class_or_annotation(reference: str, kind: str) -> None:
    assert check(reference).kind == kind


def test_what_is_none_of_the_four_kinds_is_refused() -> None:
    with pytest.raises(UsageError, match="it must be a function that returns a Method"):
        check("tests.testing.broken:CALLS")
    with pytest.raises(UsageError, match="neither a reference"):
        check("nosuch")
    with pytest.raises(UsageError, match="has no 'nosuch'"):
        check("tests.testing.broken:nosuch")
    with pytest.raises(UnknownNameError, match="argument of fedprox"):
        check("fedprox", {"nosuch": 1})
