"""The contract holds of raffed's own methods and schedules and of good functions, and each of its sentences
can be false.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from torch import Tensor

import raffed
from raffed.config.training import SCHEDULES
from raffed.core.method import Method
from raffed.errors import UnknownNameError, UsageError
from raffed.methods import METHODS
from raffed.own.names import reference_to
from raffed.testing import (
    ContractError,
    check,
    check_dataset,
    check_loss,
    check_method,
    check_metric,
    check_model,
    check_schedule,
    check_selection,
    check_split,
    check_table,
)
from raffed.testing.functions import LossContract, MetricContract, ScheduleContract, SelectionContract
from raffed.testing.methods import MethodContract
from raffed.testing.recognise import TableContract
from tests.cli.conftest import Cli
from tests.testing import broken, broken_functions
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


HOME = "tests.testing.broken_functions"
BROKEN = {
    "loss": broken_functions.BROKEN_LOSSES,
    "metric": broken_functions.BROKEN_METRICS,
    "schedule": broken_functions.BROKEN_SCHEDULES,
    "selection": broken_functions.BROKEN_SELECTIONS,
}
CHECKS = {
    contract.kind: contract.names()
    for contract in (LossContract, MetricContract, ScheduleContract, SelectionContract, TableContract)
}


@pytest.mark.parametrize(
    ("kind", "function", "name"),
    [(kind, function, name) for kind, found in BROKEN.items() for function, name in found.items()],
)
def test_a_careless_function_is_found(kind: str, function: Callable[..., object], name: str) -> None:
    found = check(reference_to(function))
    assert found.kind == kind
    assert name in [one.name for one in found.failed]
    assert all(one.why for one in found.failed)


@pytest.mark.parametrize(("name", "rule"), broken_functions.BROKEN_TABLES.items())
def test_a_careless_table_is_found_by_its_check(name: str, rule: str) -> None:
    assert rule in [one.name for one in check_table(f"{HOME}:{name}").failed]


def test_every_check_has_something_careless_that_it_finds() -> None:
    found = {kind: set(names.values()) for kind, names in BROKEN.items()}
    found["table"] = set(broken_functions.BROKEN_TABLES.values())
    assert found == {kind: set(names) for kind, names in CHECKS.items()}
    of_methods = {name for _, name, *_ in (*broken.BROKEN_METHODS, *CARELESS)}
    assert of_methods == {*MethodContract.names()}


@pytest.mark.parametrize("name", SCHEDULES)
def test_every_schedule_of_raffed_keeps_the_contract(name: str) -> None:
    check_schedule(name).raise_if_failed()
    assert check(name).kind == "schedule"


GOOD = '''
import raffed


def focal(logits, labels, gamma: float = 2.0):
    nll = -logits.log_softmax(-1).gather(-1, labels[:, None])[:, 0]
    return (1 - (-nll).exp()) ** gamma * nll


def balanced(logits, labels, class_counts):
    shifted = logits + class_counts.clamp(min=1).log()
    return -shifted.log_softmax(-1).gather(-1, labels[:, None])[:, 0]


@raffed.metric(unit="fraction")
def top2(outputs, y):
    """The right class is among the two most probable."""
    return (outputs.topk(2).indices == y[:, None]).any(1).float().mean()


def halves(done: int, total: int, every: int = 20) -> float:
    return 0.5 ** (done // every)


def largest(sizes, count, least: int = 0):
    known = [client for client, size in enumerate(sizes) if size >= least]
    return sorted(known, key=lambda client: -sizes[client])[:count]


@raffed.method
def averaged():
    return raffed.Method("Averaged")


def unnamed(outputs, y):
    return (y - outputs.logsumexp(-1)).square()


TABLES = {"one": raffed.table("one", "One", {("FedAvg", "digits"): raffed.RunConfig()})}
'''


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("focal", "loss"),
        ("balanced", "loss"),
        ("top2", "metric"),
        ("averaged", "method"),
        ("halves", "schedule"),
        ("largest", "selection"),
        ("TABLES", "table"),
    ],
)
def test_good_ones_are_recognised_by_their_form_and_hold(lab: Path, name: str, kind: str) -> None:
    (lab / "mine.py").write_text(GOOD, encoding="utf-8")
    found = check(f"./mine.py:{name}")
    found.raise_if_failed()
    assert found.kind == kind


def test_what_cannot_be_recognised_can_be_named(lab: Path, cli: Cli) -> None:
    (lab / "mine.py").write_text(GOOD, encoding="utf-8")
    with pytest.raises(UsageError, match=r"or the like, say what it is: --kind method\|model"):
        check("./mine.py:unnamed")
    refused, taken = cli("check", "./mine.py:unnamed"), cli("check", "./mine.py:unnamed", "--kind", "loss")
    assert (refused.code, taken.code) == (2, 1)
    assert "right-is-lower" in taken.out
    assert cli("check", "./mine.py:focal", "--kind", "lose").code == 2


def test_arguments_reach_what_is_checked_and_wrong_ones_are_refused(lab: Path) -> None:
    (lab / "mine.py").write_text(GOOD, encoding="utf-8")
    assert check_loss("./mine.py:focal", {"gamma": 1.0}).ok
    root = check_loss("./mine.py:focal", {"gamma": 0.5})  # the derivative of √(1 − p) at p = 1 is infinite
    assert [one.name for one in root.failed] == ["finite-when-sure"]
    for name, wrong in (("focal", {"nosuch": 1}), ("halves", {"nosuch": 1}), ("largest", {"nosuch": 1})):
        with pytest.raises(UnknownNameError, match="nosuch"):
            check(f"./mine.py:{name}", wrong)
    with pytest.raises(UsageError, match="takes no arguments"):
        check("./mine.py:top2", {"k": 3})
    assert [one.name for one in check_selection("./mine.py:largest", {"least": 1000}).failed] == [
        "clients-exist",
        "one-client",
        *("inputs-unchanged", "same-twice", "no-global-generator"),
    ]


@raffed.metric
def never(scores: Tensor, labels: Tensor) -> float:
    raise SystemExit("it takes nothing")


def test_a_metric_that_takes_neither_two_nor_five_classes_fails_with_its_own_error() -> None:
    found = check_metric(never)
    assert {one.name: one.why for one in found.failed}["one-number"].endswith("SystemExit: it takes nothing")
