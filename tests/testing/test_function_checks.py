"""Losses, metrics, schedules, selections and tables: good ones keep the contract, careless ones are found."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from torch import Tensor

import raffed
from raffed.config.training import SCHEDULES
from raffed.errors import UnknownNameError, UsageError
from raffed.own.names import reference_to
from raffed.testing import check, check_loss, check_metric, check_schedule, check_selection, check_table
from raffed.testing.functions import LossContract, MetricContract, ScheduleContract, SelectionContract
from raffed.testing.recognise import TableContract
from tests.cli.conftest import Cli
from tests.testing import broken_functions as broken

HOME = "tests.testing.broken_functions"
BROKEN = {
    "loss": broken.BROKEN_LOSSES,
    "metric": broken.BROKEN_METRICS,
    "schedule": broken.BROKEN_SCHEDULES,
    "selection": broken.BROKEN_SELECTIONS,
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


@pytest.mark.parametrize(("name", "rule"), broken.BROKEN_TABLES.items())
def test_a_careless_table_is_found_by_its_check(name: str, rule: str) -> None:
    assert rule in [one.name for one in check_table(f"{HOME}:{name}").failed]


@pytest.mark.parametrize("kind", CHECKS)
def test_every_check_has_something_careless_that_it_finds(kind: str) -> None:
    found = broken.BROKEN_TABLES if kind == "table" else BROKEN[kind]
    assert set(found.values()) == set(CHECKS[kind])


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
    raise ValueError("it takes nothing")


def test_a_metric_that_takes_neither_two_nor_five_classes_fails_with_its_own_error() -> None:
    found = check_metric(never)
    assert {one.name: one.why for one in found.failed}["one-number"].endswith("ValueError: it takes nothing")
