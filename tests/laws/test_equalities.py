"""Laws between methods, bit for bit over rounds with partial participation (docs/design.md §12,
docs/papers/baselines.md, Equalities).

One seed gives all methods the same split, participants and batches, so a coefficient of 0 must not change a
single bit.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from raffed.core.method import Method
from raffed.core.parts import Pass
from raffed.core.server import Mean
from raffed.methods import build_method
from raffed.methods.fedmmd import TwoStream
from raffed.methods.fedmr import InterClass, IntraClass
from raffed.methods.fedprox import Proximal
from raffed.methods.fedrs import RestrictedSoftmax
from raffed.methods.moon import ModelContrast
from tests.params import one_in
from tests.tiny import NOISY, PLAIN, Tiny, clients, experienced, network, same_bits


def made(name: str, **args: Any) -> Method:
    return build_method(name, args)


SETTINGS: dict[str, Callable[[Method], Tiny]] = {
    "plain": Tiny,
    "batchnorm": lambda m: Tiny(m, net=network(norm=True)),
    "augmented": lambda m: Tiny(m, net=network(norm=True), augment=NOISY),
    "dropout": lambda m: Tiny(m, net=network(dropout=0.3)),
    "clipped, warmed up": lambda m: Tiny(m, local=replace(PLAIN, clip_norm=0.5, warmup_rounds=3)),
}
RUNS: dict[str, Callable[[Method], Tiny]] = {  # for own rules of steps
    "plain": Tiny,
    "without momentum and decay": lambda m: Tiny(m, local=replace(PLAIN, momentum=0.0, weight_decay=0.0)),
    "batchnorm": lambda m: Tiny(m, net=network(norm=True)),
    "warmed up, clipped": lambda m: Tiny(m, local=replace(PLAIN, warmup_rounds=3, clip_norm=0.5)),
    "a rate for each step": lambda m: Tiny(
        m, local=replace(PLAIN, epochs=2, schedule="polynomial", schedule_by="local_step")
    ),
}
ALSO_STACKED: dict[str, Callable[[Method], Tiny]] = {  # where other rules of steps round in another way
    **RUNS,
    "stacked, a rate for each step": lambda m: Tiny(
        m, local=replace(PLAIN, epochs=2, schedule="polynomial", schedule_by="local_step"), cohort=True
    ),
}
EQUAL_TO_FEDAVG: dict[str, Method] = {
    "FedProx(0)": made("fedprox", mu=0.0),
    "FedRS(1)": made("fedrs", alpha=1.0),
    "FedRS(1, counts)": made("fedrs", alpha=1.0, mode="counts"),
    "FedMR(0, 0)": made("fedmr", mu1=0.0, mu2=0.0),
    "FedPHP(λ = 0)": made("fedphp", lam=0.0),
    "MAP(α = 1)": made("map", alpha=1.0),
    "Proximal(0.0)": Method("x", terms=(Proximal(0.0),)),
    "IntraClass(0.0)": Method("x", terms=(IntraClass(0.0),)),
    "IntraClass(0.0, paper)": Method("x", terms=(IntraClass(0.0, "paper"),)),
    "InterClass(0.0)": Method("x", terms=(InterClass(0.0),)),
    "InterClass(0.0, lite = 2)": Method("x", terms=(InterClass(0.0, lite=2),)),
    "MOON(0)": made("moon", mu=0.0),
    "FedMMD(0)": made("fedmmd", lam=0.0),
    "TwoStream(0.0)": Method("x", terms=(TwoStream(0.0),)),
    "FedLC(0)": made("fedlc", tau=0.0),
    "FedLC(0, others)": made("fedlc", tau=0.0, denominator="others"),
    "FedDecorr(0)": made("feddecorr", beta=0.0),
    "FedUV(0, 0)": made("feduv", lam=0.0, mu=0.0),
    "PriorCE(0)": made("priorce", tau=0.0),
    "FedAwS(0 steps)": made("fedaws", server_steps=0),
    "Ditto": made("ditto", lam=0.5),
    "FedAvg+FT": made("finetune", every_round=True),
    "ModelContrast(0.0)": Method("x", terms=(ModelContrast(0.0, 0.5),)),
    "all terms at 0": Method("x", terms=(Proximal(0.0), IntraClass(0.0), InterClass(0.0))),
    "RestrictedSoftmax(1.0)": Method("x", head=RestrictedSoftmax(1.0)),
    "APFL(0)": made("apfl", alpha=0.0),
    "APFL(0.3)": made("apfl", alpha=0.3),
    "APFL(0.5, adaptive)": made("apfl", alpha=0.5, adaptive=True),
    "APFL(1)": made("apfl", alpha=1.0),
    "CReFF": made("creff", features=4, match_steps=5, retrain_epochs=3),
    "CReFF(0 steps)": made("creff", features=4, match_steps=0, retrain_epochs=0),
    "FedDF(0 steps)": made("feddf", server_steps=0),
    "FedExP(ε = 1e6)": made("fedexp", epsilon=1e6, score="last"),
    "FEDIC(0 steps)": made("fedic", copy_steps=0, gate_steps=0, distil_steps=0),
    "FedROD(0)": made("fedrod", gamma=0.0),
}


def point(tiny: Tiny) -> list[Tensor]:
    return [tiny.server.w.flat, tiny.server.b.flat]


@functools.cache
def three_rounds_of_fedavg(setting: str) -> list[list[Tensor]]:
    """FedAvg's model after each of three rounds."""
    plain = SETTINGS[setting](made("fedavg"))
    return [[one.clone() for one in point(plain.run(1))] for _ in range(3)]


@pytest.mark.parametrize(("name", "setting"), one_in(2, itertools.product(EQUAL_TO_FEDAVG, SETTINGS)))
def test_a_method_whose_coefficients_are_0_is_fedavg_bit_for_bit(name: str, setting: str) -> None:
    mine = SETTINGS[setting](EQUAL_TO_FEDAVG[name])
    for plain in three_rounds_of_fedavg(setting):
        mine.step()
        assert same_bits(point(mine), plain)


UNEQUAL: dict[str, Method] = {
    "FedProx": made("fedprox", mu=0.1),
    "FedRS": made("fedrs", alpha=0.5),
    "FedMR intra": made("fedmr", mu1=0.1, mu2=0.0),
    "FedMR inter": made("fedmr", mu1=0.0, mu2=0.1),
    "FedPHP": made("fedphp", lam=0.5),
    "MOON": made("moon", mu=1.0),
    "FedProc": made("fedproc"),
    "FedNova": made("fednova"),
    "FedDyn": made("feddyn", alpha=0.1),
    "FedDC": made("feddc", alpha=0.1),
    "FedMMD": made("fedmmd", lam=1.0),
    "FedLC": made("fedlc"),
    "FedDecorr": made("feddecorr"),
    "FedUV variance": made("feduv", mu=0.0),
    "FedUV uniformity": made("feduv", lam=0.0),
    "FedVLS": made("fedvls"),
    "PriorCE": made("priorce"),
    "FedAwS": made("fedaws"),
    "FedBABU": made("fedbabu"),
    "FedLoGe": made("fedloge"),
    "FedAvgM": made("fedavgm"),
    "FedAdam": made("fedadam"),
    "FedGAMMA": made("fedgamma"),
    "FedDF": made("feddf", server_steps=5),
    "FedExP": made("fedexp"),
    "FEDIC": made("fedic", copy_steps=3, gate_steps=3, distil_steps=3),
}


@pytest.mark.parametrize("name", UNEQUAL)
def test_with_a_coefficient_it_is_not_fedavg(name: str) -> None:
    """The other half of the law. FedPHP and the inter-class term need a second visit; everybody takes
    part here.
    """
    mine, plain = Tiny(UNEQUAL[name]).run(2, [0, 1, 2, 3]), experienced("fedavg")
    assert float((mine.server.w - plain.server.w).sq_norm()) > 1e-8


UNIFORM = Mean(by="clients")
UNIFORM_FEDPER = replace(made("fedper"), mean=UNIFORM)
# A method with coefficients at 0, the same method with others, and what the first one is in every respect
SPECIAL_CASES: dict[str, tuple[Method, Method, Method]] = {
    "FedACG(0, 0)": (
        made("fedacg", lam=0.0, beta=0.0),
        made("fedacg"),
        replace(made("fedavg"), mean=UNIFORM),
    ),
    "FedACG(0, 0.05)": (
        made("fedacg", lam=0.0, beta=0.05),
        made("fedacg"),
        replace(made("fedprox", mu=0.1), mean=UNIFORM),
    ),
    "FedAWA(0 steps)": (made("fedawa", server_epochs=0), made("fedawa"), made("fedavg")),
    "FedALA(0)": (made("fedala", eta=0.0), made("fedala"), made("fedavg")),
    "FedAS(0 epochs)": (made("fedas", align_epochs=0.0, weights="clients"), made("fedas"), UNIFORM_FEDPER),
    "FedAS(rate 0)": (
        made("fedas", align_lr=0.0, weights="clients"),
        made("fedas", weights="clients"),
        UNIFORM_FEDPER,
    ),
    "FedCM(α = 1)": (made("fedcm", alpha=1.0), made("fedcm"), made("fedavg")),
    "FedDBE(κ = 0)": (made("feddbe", kappa=0.0, translate=False), made("feddbe"), made("fedavg")),
    "FedDisco(0, 0)": (made("feddisco", a=0.0, b=0.0), made("feddisco"), made("fedavg")),
    "FedGAMMA(0)": (made("fedgamma", rho=0.0), made("fedgamma"), made("scaffold")),
    "FedLESAM(0)": (made("fedlesam", rho=0.0), made("fedlesam"), made("fedavg")),
    "FedLMD(0)": (made("fedlmd", beta=0.0), made("fedlmd", teacher="eval"), made("fedavg")),
    "FedLMD(0), without a teacher": (
        made("fedlmd", beta=0.0),
        made("fedlmd", teacher="none"),
        made("fedavg"),
    ),
    "FedLWS(τ = 0)": (made("fedlws", beta=0.0, low=0.0), made("fedlws"), made("fedavg")),
    "FedNTD(0)": (made("fedntd", beta=0.0), made("fedntd"), made("fedavg")),
    "FedRep, authors": (made("fedrep", preset="authors"), made("fedper"), UNIFORM_FEDPER),
    "FedSAM(0)": (made("fedsam", rho=0.0), made("fedsam"), made("fedavg")),
    "FedVLS(0, 0)": (made("fedvls", lam=0.0, suppress=0.0), made("fedvls"), made("priorce", missing="eps")),
    "MoFedSAM(0)": (made("mofedsam", rho=0.0), made("mofedsam"), made("fedcm")),
    "MoFedSAM(α = 1)": (made("mofedsam", rho=0.2, alpha=1.0), made("mofedsam"), made("fedsam", rho=0.2)),
    "noise of size 0": (made("noisygrad", size=0.0), made("noisygrad"), made("fedavg")),
    "ScaRS(1)": (made("scars", alpha=1.0), made("scars"), made("scaffold")),
}


@pytest.mark.parametrize(("name", "setting"), one_in(3, itertools.product(SPECIAL_CASES, SETTINGS)))
def test_a_method_has_its_special_case_bit_for_bit_and_otherwise_it_has_not(name: str, setting: str) -> None:
    none, some, plain = (SETTINGS[setting](method).run(3) for method in SPECIAL_CASES[name])
    assert same_bits(none.everything(), plain.everything())
    assert not same_bits(some.server.w, plain.server.w)


@pytest.mark.parametrize(
    "method", [made("fedetf"), made("fednh"), made("fedgela"), made("fedloge")], ids=lambda one: one.name
)
def test_a_method_that_requires_its_own_network_is_not_fedavg_on_that_network(method: Method) -> None:
    mine, plain = (
        Tiny(one).run(2, [0, 1, 2, 3]) for one in (method, replace(made("fedavg"), network=method.network))
    )
    weight = "body.fc.weight"
    assert float((mine.server.w[weight] - plain.server.w[weight]).square().sum()) > 1e-6


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("alpha", [0.0, 0.1, 0.5, 0.9])
def test_restricting_where_every_client_owns_every_class_is_fedavg_for_any_alpha(
    alpha: float, setting: str
) -> None:
    """docs/papers/map.md §6 R6 as a law."""
    full = clients(((0, 1, 2),) * 4, (8, 10, 6, 11))
    mine, plain = SETTINGS[setting](made("fedrs", alpha=alpha)), SETTINGS[setting](made("fedavg"))
    mine.data, plain.data = full, full
    assert same_bits(point(mine.run(3)), point(plain.run(3)))


def fedavg_with_plain_sgd() -> Method:
    """FedAvg as SCAFFOLD trains: no momentum, no decay, equal weights."""
    return Method("FedAvg", passes=(Pass(momentum=0.0, weight_decay=0.0),), mean=UNIFORM)


@pytest.mark.parametrize("setting", SETTINGS)
def test_scaffolds_first_round_is_fedavg_with_plain_sgd_and_equal_weights_and_its_second_is_not(
    setting: str,
) -> None:
    """docs/papers/baselines.md, SCAFFOLD (c). Round 2 differs for a client that was there in round 1 and
    for a new one alike.
    """
    mine, plain = SETTINGS[setting](made("scaffold")), SETTINGS[setting](fedavg_with_plain_sgd())
    mine.step([0, 1])
    plain.step([0, 1])
    assert same_bits(point(mine), point(plain))
    for client in (0, 3):
        assert float((mine.visit(client).trained.w - plain.visit(client).trained.w).sq_norm()) > 1e-8


@pytest.mark.parametrize("mu1", [0.0, 0.1])
def test_fedmrs_round_0_is_intra_only_bit_for_bit_and_its_second_is_not(mu1: float) -> None:
    """docs/papers/fedmr.md §10 test 9: no prototypes, no inter-class term."""
    both, intra = Tiny(made("fedmr", mu1=mu1, mu2=1.0)), Tiny(made("fedmr", mu1=mu1, mu2=0.0))
    both.step([0, 1, 2, 3])
    intra.step([0, 1, 2, 3])
    assert same_bits(point(both), point(intra))
    both.step([0, 1, 2, 3])
    intra.step([0, 1, 2, 3])
    assert not same_bits(point(both), point(intra))


def test_the_prototype_pass_touches_no_buffer_no_batch_and_no_generator() -> None:
    """docs/papers/fedmr.md §10 test 1: at μ₂ = 0 with the term present, and the global generator stands
    still.
    """
    before = torch.get_rng_state()
    mine = Tiny(
        Method("x", terms=(InterClass(0.0),)), net=network(norm=True, dropout=0.3), augment=NOISY
    ).run(3)
    plain = Tiny(made("fedavg"), net=network(norm=True, dropout=0.3), augment=NOISY).run(3)
    assert torch.equal(torch.get_rng_state(), before)
    for client, done in mine.last.items():
        assert same_bits(done.trained, plain.last[client].trained)
