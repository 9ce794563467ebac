"""The weights of the mean, of a run and of a method."""

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

# `federation.weighting`: the weights of the mean, whatever the method's (docs/papers/map.md §7 no. 3:
# "Keep a switch").

BASE = digits("incomplete:6", local=Local(epochs=1))


def weighed(by: str, method: str = "fedavg", split: str = "incomplete:6") -> str:
    data, federation = replace(BASE.data, split=split), replace(BASE.federation, weighting=by)
    return raffed.run(replace(BASE, method=method, data=data, federation=federation)).hashes["weights"]


def test_asking_for_the_method_s_own_weights_changes_no_bit_and_others_do() -> None:
    assert weighed("samples") == weighed("") != weighed("clients")
    assert weighed("clients", "scaffold") == weighed("", "scaffold") != weighed("samples", "scaffold")


def test_where_all_clients_have_as_many_samples_both_are_one() -> None:
    """1437 digits are no multiple of 3 · 10, so the law needs a split of equal sizes: n_k / Σ n is 1/|S|
    to the last bit.
    """
    split = "equal:5:4"
    sizes = prepare_run(replace(BASE, data=replace(BASE.data, split=split))).data.sizes
    assert len(set(sizes)) == 1
    assert weighed("samples", split=split) == weighed("clients", split=split)


COUNTING = [("fednova", "FedNova", "samples"), ("feddyn", "FedDyn", "clients"), ("feddc", "FedDC", "clients")]


@pytest.mark.parametrize(("method", "title", "own"), COUNTING)
def test_a_method_that_counts_on_its_weights_refuses_others_before_anything_runs(
    method: str, title: str, own: str
) -> None:
    """FedNova's τ_eff has the same weights; the drift of FedDyn and FedDC is a mean over all clients,
    from uniform means.
    """
    (other,) = {"samples", "clients"} - {own}
    with pytest.raises(UsageError, match=f"{title} requires the weights '{own}'"):
        prepare_run(replace(BASE, method=method, federation=Federation(2, weighting=other)))
    prepare_run(replace(BASE, method=method, federation=Federation(2, weighting=own)))


def test_methods_that_count_on_no_weights_take_either() -> None:
    """FedDyn as MAP's code has it keeps no drift; SCAFFOLD's controls have a mean of their own."""
    for method, args in (("feddyn", {"preset": "authors"}), ("scaffold", {})):
        prepare_run(replace(BASE, method=method, args=args, federation=Federation(2, weighting="samples")))


def test_a_weighting_that_there_is_not_is_refused() -> None:
    with pytest.raises(UsageError, match=r"federation\.weighting"):
        replace(BASE, federation=Federation(2, weighting="uniform"))


def test_it_is_part_of_a_run_s_identity_only_where_it_is_given() -> None:
    assert replace(BASE, federation=Federation(2, weighting="")).identity() == BASE.identity()
    assert replace(BASE, federation=Federation(2, weighting="clients")).identity() != BASE.identity()


# `Reweighting`: weights of the mean that depend on class counts, and are known before the round.

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
