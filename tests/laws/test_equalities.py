"""Laws between methods, bit for bit over rounds with partial participation (docs/design.md §12,
docs/papers/baselines.md, Equalities).

One seed gives all methods the same split, participants and batches, so a coefficient of 0 must not change a
single bit.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from raffed.core.method import Method
from raffed.core.parts import Pass
from raffed.core.server import Mean
from raffed.methods.ditto import ditto
from raffed.methods.fedacg import fedacg
from raffed.methods.fedavg import fedavg
from raffed.methods.fedawa import fedawa
from raffed.methods.fedaws import fedaws
from raffed.methods.fedbabu import fedbabu
from raffed.methods.fedcm import fedcm
from raffed.methods.feddbe import feddbe
from raffed.methods.feddc import feddc
from raffed.methods.feddecorr import feddecorr
from raffed.methods.feddisco import feddisco
from raffed.methods.feddyn import feddyn
from raffed.methods.fedetf import fedetf
from raffed.methods.fedgamma import fedgamma
from raffed.methods.fedgela import fedgela
from raffed.methods.fedlc import fedlc
from raffed.methods.fedlesam import fedlesam
from raffed.methods.fedlmd import fedlmd
from raffed.methods.fedloge import fedloge
from raffed.methods.fedlws import fedlws
from raffed.methods.fedmmd import TwoStream, fedmmd
from raffed.methods.fedmr import InterClass, IntraClass, fedmr
from raffed.methods.fednh import fednh
from raffed.methods.fednova import fednova
from raffed.methods.fedntd import fedntd
from raffed.methods.fedopt import fedadam, fedavgm
from raffed.methods.fedphp import fedphp
from raffed.methods.fedproc import fedproc
from raffed.methods.fedprox import Proximal, fedprox
from raffed.methods.fedrs import RestrictedSoftmax, fedrs
from raffed.methods.fedsam import fedsam
from raffed.methods.feduv import feduv
from raffed.methods.fedvls import fedvls
from raffed.methods.finetune import finetune
from raffed.methods.map import map_, scars
from raffed.methods.moon import ModelContrast, moon
from raffed.methods.priorce import priorce
from raffed.methods.scaffold import scaffold
from tests.tiny import NOISY, PLAIN, Tiny, clients, experienced, network, same_bits

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
    "FedProx(0)": fedprox(0.0),
    "FedRS(1)": fedrs(1.0),
    "FedRS(1, counts)": fedrs(1.0, mode="counts"),
    "FedMR(0, 0)": fedmr(0.0, 0.0),
    "FedPHP(λ = 0)": fedphp(lam=0.0),
    "MAP(α = 1)": map_(alpha=1.0),
    "Proximal(0.0)": Method("x", terms=(Proximal(0.0),)),
    "IntraClass(0.0)": Method("x", terms=(IntraClass(0.0),)),
    "IntraClass(0.0, paper)": Method("x", terms=(IntraClass(0.0, "paper"),)),
    "InterClass(0.0)": Method("x", terms=(InterClass(0.0),)),
    "InterClass(0.0, lite = 2)": Method("x", terms=(InterClass(0.0, lite=2),)),
    "MOON(0)": moon(0.0),
    "FedMMD(0)": fedmmd(0.0),
    "TwoStream(0.0)": Method("x", terms=(TwoStream(0.0),)),
    "FedLC(0)": fedlc(0.0),
    "FedLC(0, others)": fedlc(0.0, "others"),
    "FedDecorr(0)": feddecorr(0.0),
    "FedUV(0, 0)": feduv(0.0, 0.0),
    "PriorCE(0)": priorce(0.0),
    "FedAwS(0 steps)": fedaws(server_steps=0),
    "Ditto": ditto(0.5),
    "FedAvg+FT": finetune(),
    "ModelContrast(0.0)": Method("x", terms=(ModelContrast(0.0, 0.5),)),
    "all terms at 0": Method("x", terms=(Proximal(0.0), IntraClass(0.0), InterClass(0.0))),
    "RestrictedSoftmax(1.0)": Method("x", head=RestrictedSoftmax(1.0)),
}


def point(tiny: Tiny) -> list[Tensor]:
    return [tiny.server.w.flat, tiny.server.b.flat]


@functools.cache
def three_rounds_of_fedavg(setting: str) -> list[list[Tensor]]:
    """FedAvg's model after each of three rounds."""
    plain = SETTINGS[setting](fedavg())
    return [[one.clone() for one in point(plain.run(1))] for _ in range(3)]


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("name", EQUAL_TO_FEDAVG)
def test_a_method_whose_coefficients_are_0_is_fedavg_bit_for_bit(name: str, setting: str) -> None:
    mine = SETTINGS[setting](EQUAL_TO_FEDAVG[name])
    for plain in three_rounds_of_fedavg(setting):
        mine.step()
        assert same_bits(point(mine), plain)


UNEQUAL: dict[str, Method] = {
    "FedProx": fedprox(0.1),
    "FedRS": fedrs(0.5),
    "FedMR intra": fedmr(0.1, 0.0),
    "FedMR inter": fedmr(0.0, 0.1),
    "FedPHP": fedphp(lam=0.5),
    "MOON": moon(1.0),
    "FedProc": fedproc(),
    "FedNova": fednova(),
    "FedDyn": feddyn(0.1),
    "FedDC": feddc(0.1),
    "FedMMD": fedmmd(1.0),
    "FedLC": fedlc(),
    "FedDecorr": feddecorr(),
    "FedUV variance": feduv(mu=0.0),
    "FedUV uniformity": feduv(lam=0.0),
    "FedVLS": fedvls(),
    "PriorCE": priorce(),
    "FedAwS": fedaws(),
    "FedBABU": fedbabu(),
    "FedLoGe": fedloge(),
    "FedAvgM": fedavgm(),
    "FedAdam": fedadam(),
    "FedGAMMA": fedgamma(),
}


@pytest.mark.parametrize("name", UNEQUAL)
def test_with_a_coefficient_it_is_not_fedavg(name: str) -> None:
    """The other half of the law. FedPHP and the inter-class term need a second visit; everybody takes
    part here.
    """
    mine, plain = Tiny(UNEQUAL[name]).run(2, [0, 1, 2, 3]), experienced("fedavg")
    assert float((mine.server.w - plain.server.w).sq_norm()) > 1e-8


UNIFORM = Mean(by="clients")
# A method with coefficients at 0, the same method with others, and what the first one is in every respect
SPECIAL_CASES: dict[str, tuple[Method, Method, Method]] = {
    "FedACG(0, 0)": (fedacg(0.0, 0.0), fedacg(), replace(fedavg(), mean=UNIFORM)),
    "FedACG(0, 0.05)": (fedacg(0.0, 0.05), fedacg(), replace(fedprox(0.1), mean=UNIFORM)),
    "FedAWA(0 steps)": (fedawa(server_epochs=0), fedawa(), fedavg()),
    "FedCM(α = 1)": (fedcm(1.0), fedcm(), fedavg()),
    "FedDBE(κ = 0)": (feddbe(kappa=0.0, translate=False), feddbe(), fedavg()),
    "FedDisco(0, 0)": (feddisco(a=0.0, b=0.0), feddisco(), fedavg()),
    "FedGAMMA(0)": (fedgamma(0.0), fedgamma(), scaffold()),
    "FedLESAM(0)": (fedlesam(0.0), fedlesam(), fedavg()),
    "FedLMD(0)": (fedlmd(0.0), fedlmd(teacher="eval"), fedavg()),
    "FedLMD(0), without a teacher": (fedlmd(0.0), fedlmd(teacher="none"), fedavg()),
    "FedLWS(τ = 0)": (fedlws(beta=0.0, low=0.0), fedlws(), fedavg()),
    "FedNTD(0)": (fedntd(0.0), fedntd(), fedavg()),
    "FedSAM(0)": (fedsam(0.0), fedsam(), fedavg()),
}


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("name", SPECIAL_CASES)
def test_a_method_has_its_special_case_bit_for_bit_and_otherwise_it_has_not(name: str, setting: str) -> None:
    none, some, plain = (SETTINGS[setting](method).run(3) for method in SPECIAL_CASES[name])
    assert same_bits(none.everything(), plain.everything())
    assert not same_bits(some.server.w, plain.server.w)


@pytest.mark.parametrize("method", [fedetf(), fednh(), fedgela(), fedloge()], ids=lambda one: one.name)
def test_a_method_that_requires_its_own_network_is_not_fedavg_on_that_network(method: Method) -> None:
    mine, plain = (
        Tiny(one).run(2, [0, 1, 2, 3]) for one in (method, replace(fedavg(), network=method.network))
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
    mine, plain = SETTINGS[setting](fedrs(alpha)), SETTINGS[setting](fedavg())
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
    mine, plain = SETTINGS[setting](scaffold()), SETTINGS[setting](fedavg_with_plain_sgd())
    mine.step([0, 1])
    plain.step([0, 1])
    assert same_bits(point(mine), point(plain))
    for client in (0, 3):
        assert float((mine.visit(client).trained.w - plain.visit(client).trained.w).sq_norm()) > 1e-8


def test_scars_with_alpha_1_is_scaffold_bit_for_bit() -> None:
    assert same_bits(Tiny(scars(1.0)).run(4).everything(), Tiny(scaffold()).run(4).everything())


@pytest.mark.parametrize("mu1", [0.0, 0.1])
def test_fedmrs_round_0_is_intra_only_bit_for_bit_and_its_second_is_not(mu1: float) -> None:
    """docs/papers/fedmr.md §10 test 9: no prototypes, no inter-class term."""
    both, intra = Tiny(fedmr(mu1, 1.0)), Tiny(fedmr(mu1, 0.0))
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
    plain = Tiny(fedavg(), net=network(norm=True, dropout=0.3), augment=NOISY).run(3)
    assert torch.equal(torch.get_rng_state(), before)
    for client, done in mine.last.items():
        assert same_bits(done.trained, plain.last[client].trained)
