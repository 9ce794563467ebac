"""A personal slot never changes w: MAP's server is FedRS's, ScaMAP's is ScaRS's, bit for bit
(docs/papers/map.md §6 M1).

The sharpest law there is: it catches uploading stage 2, a shared optimiser, a leaking random stream and
in-place edits of ω_k.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from raffed.config.training import Local
from raffed.core.context import ClientData
from raffed.core.method import Method
from raffed.core.training.network import Network
from raffed.methods.fedrs import fedrs
from raffed.methods.map import map_, scamap, scars
from raffed.models import build
from tests.params import one_in
from tests.tiny import NOISY, Tiny, network, same_bits

PERSONAL: list[dict[str, Any]] = [
    {},
    {"lam": 0.9, "mu": 0.1},
    {"lam": 1.0, "mu": 1.0, "transfer": "mmd"},
    {"lam": 0.5, "transfer": "mmd", "share": 2.0},
    {"kd_student_tau": 4.0, "kd_tau_sq": True, "lr_scale": 1.0},
    {"share": 0.0, "least": 0},
]
PAIRS: dict[str, tuple[Callable[..., Method], Callable[..., Method]]] = {
    "MAP": (map_, fedrs),
    "ScaMAP": (scamap, scars),
}


def images() -> list[ClientData]:
    """4 clients of 1x8x8 images, 3 classes."""
    g = torch.Generator().manual_seed(0)
    made = []
    for owned in ((0, 1), (1, 2), (0,), (0, 1, 2)):
        y = torch.tensor([owned[i % len(owned)] for i in range(8)])
        x = torch.randn(8, 1, 8, 8, generator=g) + y[:, None, None, None]
        made.append(ClientData(x, y, torch.bincount(y, minlength=3)))
    return made


def resnet(method: Method) -> Tiny:
    net = Network(build("resnet8", (1, 8, 8), 3, 0))
    return Tiny(method, net=net, data=images(), local=Local(lr=0.05, batch_size=4, epochs=1), augment=NOISY)


SETTINGS: dict[str, Callable[[Method], Tiny]] = {
    "plain": Tiny,
    "batchnorm, augmented": lambda m: Tiny(m, net=network(norm=True), augment=NOISY),
    "dropout": lambda m: Tiny(m, net=network(norm=True, dropout=0.3)),
    "resnet8, augmented": resnet,
}


CASES = [
    (pair, setting, args)
    for pair in PAIRS
    for setting in SETTINGS
    for args in PERSONAL
    if setting != "resnet8, augmented" or args in PERSONAL[1:3]
]


@pytest.mark.parametrize(("pair", "setting", "args"), one_in(3, CASES))
def test_the_server_never_sees_the_private_stage(pair: str, setting: str, args: dict[str, Any]) -> None:
    """w, b, c, every upload and every reported loss; 3 rounds of 2 of 4 clients."""
    assert len(CASES) == 40
    with_personal, without = PAIRS[pair]
    mine, plain = SETTINGS[setting](with_personal(**args)), SETTINGS[setting](without())
    for _ in range(3):
        done, bare = mine.step(), plain.step()
        assert same_bits(mine.server, plain.server)
        for client in bare:
            assert same_bits(done[client].upload, bare[client].upload)
            assert same_bits(done[client].trained, bare[client].trained)
            assert done[client].loss == bare[client].loss


@pytest.mark.parametrize("pair", PAIRS)
@pytest.mark.parametrize(
    "change", [{"lam": 0.9}, {"mu": 0.1}, {"transfer": "mmd"}, {"share": 3.0}, {"lr_scale": 1.0}]
)
def test_but_the_private_model_does_depend_on_every_one_of_its_parameters(
    change: dict[str, Any], pair: str
) -> None:
    """The law is not vacuous: the HPMs differ after two visits."""
    make = PAIRS[pair][0]
    one, two = Tiny(make()).run(3, [0, 1]), Tiny(make(**change)).run(3, [0, 1])
    for client in (0, 1):
        assert not same_bits(
            one.client_states[client].slots["personal"], two.client_states[client].slots["personal"]
        )


@pytest.mark.parametrize("setting", one_in(3, SETTINGS))
@pytest.mark.parametrize("pair", PAIRS)
def test_scoring_the_private_models_in_between_changes_nothing(pair: str, setting: str) -> None:
    """docs/papers/baselines.md G4 in memory: apply every model that is scored, after every client."""
    quiet, watched = (SETTINGS[setting](PAIRS[pair][0]()) for _ in range(2))
    for _ in range(2):
        quiet.step()
        for client, done in watched.step().items():
            for state in (done.start, done.trained, done.personal_state(watched.method)):
                watched.net.apply(state, watched.data[client].x)
    assert same_bits(quiet.everything(), watched.everything())
