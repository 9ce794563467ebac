"""`Reweighting`: weights of the mean that depend on class counts, and are known before the round."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
from torch import Tensor

import raffed
from raffed import Data, Federation, Local
from raffed.core.method import Method
from raffed.core.server import Mean, Reweighting
from raffed.errors import UsageError
from raffed.methods.fedavg import fedavg
from raffed.runs.participation import RoundPlan
from raffed.runtime.setup import prepare_run
from tests.tiny import EVERYBODY, Tiny, digits, network, same_bits

RUN = digits(
    "incomplete:6", method="feddisco", samples=300, local=Local(epochs=1), federation=Federation(2, 0.5)
)


class UsualWeights(Reweighting):
    """The usual weights, whatever is reported."""

    def report(self, class_counts: Tensor) -> Tensor:
        return class_counts

    def weights(self, usual: Sequence[float], reports: Sequence[Tensor]) -> list[float]:
        return list(usual)


class AllForMostClasses(UsualWeights):
    """All the weight for the client with the largest number of classes."""

    def report(self, class_counts: Tensor) -> Tensor:
        return (class_counts > 0).sum().reshape(1)

    def weights(self, usual: Sequence[float], reports: Sequence[Tensor]) -> list[float]:
        best = max(range(len(reports)), key=lambda i: int(reports[i]))
        return [float(i == best) for i in range(len(reports))]


def made(rule: Reweighting) -> Tiny:
    return Tiny(Method("FedAvg", mean=Mean(reweighting=rule)), net=network(norm=True))


def test_a_rule_that_keeps_the_usual_weights_changes_no_bit() -> None:
    one, two = made(UsualWeights()).run(3), Tiny(fedavg(), net=network(norm=True)).run(3)
    assert same_bits(one.everything(), two.everything())


def test_the_rule_holds_for_parameters_and_for_batchnorm_s_statistics_alike() -> None:
    """Client 3 holds all three classes, so its upload is the next model bit for bit, statistics included."""
    tiny = made(AllForMostClasses())
    done = tiny.step(EVERYBODY)
    assert same_bits([tiny.server.w, tiny.server.b], [done[3].upload.w, done[3].upload.b])


def test_it_changes_uniform_weights_as_it_changes_weights_by_samples() -> None:
    assert Mean(by="clients", reweighting=UsualWeights()).weights([1, 3], lambda: []) == [0.5, 0.5]


def test_class_counts_are_not_looked_at_where_no_weight_depends_on_them() -> None:
    def never() -> list[Tensor]:
        raise AssertionError("nobody needs them")

    assert Mean().weights([1, 3], never) == [0.25, 0.75]


def test_what_a_client_reports_is_counted_as_sent() -> None:
    plain, counts = (made(rule).step(EVERYBODY)[0].upload for rule in (AllForMostClasses(), UsualWeights()))
    assert plain.nbytes() + 4 * 2 == counts.nbytes()
    assert sum(plain.numbers().values()) * 4 == plain.nbytes()


@pytest.mark.parametrize("split", ["incomplete:6", "stages:4:4:2:if5"])
def test_the_driver_knows_the_weights_that_follow_from_what_the_clients_hold_in_the_round(split: str) -> None:
    setup = prepare_run(replace(RUN, data=Data("digits", split)))
    for number in range(2):
        plan = RoundPlan.of(setup.data, setup.method.mean, number, cohort=0, masks=False)
        counts = []
        for client in plan.participants.counted:
            labels = setup.dataset.y[setup.partition.train_at(client, setup.data.stage(number))]
            counts.append(torch.bincount(torch.from_numpy(labels), minlength=10))
        sizes = [int(one.sum()) for one in counts]
        expected = setup.method.mean.weights(sizes, lambda counts=counts: counts)
        assert list(plan.weights) == pytest.approx(expected)
        assert list(plan.weights) != pytest.approx(Mean().weights(sizes), abs=1e-5)


def test_a_run_s_weighting_is_what_the_rule_starts_from() -> None:
    """One that is asked for does not put the rule aside."""

    def weights(by: str, method: str = "feddisco") -> str:
        federation = replace(RUN.federation, weighting=by)
        return raffed.run(replace(RUN, method=method, federation=federation)).hashes["weights"]

    assert weights("samples") == weights("") != weights("", "fedavg")
    assert weights("clients") not in (weights(""), weights("clients", "fedavg"))


def test_a_robust_mean_in_its_place_is_refused() -> None:
    with pytest.raises(UsageError, match="the weights of its mean depend on what clients report"):
        prepare_run(replace(RUN, federation=replace(RUN.federation, mean="median")))
