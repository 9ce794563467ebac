"""`federation.weighting`: the weights of the mean, whatever the method's (docs/papers/map.md §7 no. 3:
"Keep a switch").
"""

from __future__ import annotations

from dataclasses import replace

import pytest

import raffed
from raffed import Federation, Local
from raffed.errors import UsageError
from raffed.runtime.setup import prepare_run
from tests.tiny import digits

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


def test_fedavg_with_uniform_means_is_fedavgm_without_momentum_to_rounding() -> None:
    """docs/papers/baselines.md, Equalities: FedAvgM(β = 0, η_g = 1) = FedAvg, whatever the weights of the
    mean.
    """
    uniform = replace(BASE, federation=replace(BASE.federation, weighting="clients"))
    one = raffed.run(uniform)
    two = raffed.run(replace(BASE, method="fedavgm", args={"beta": 0.0, "weighting": "clients"}))
    assert one.accuracy == pytest.approx(two.accuracy, abs=0.01)
    assert one.to_pandas()["value"].iloc[0] == pytest.approx(two.to_pandas()["value"].iloc[0], rel=1e-6)


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
