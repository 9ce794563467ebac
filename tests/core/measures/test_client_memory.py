"""What a client holds, against the table of docs/papers/baselines.md §0 (live copies of the model, and
what it keeps).
"""

from __future__ import annotations

import pytest
import torch

from raffed.config.training import Local
from raffed.core.context import Spec
from raffed.core.measures.scores import Footprint, footprint
from raffed.core.round import server_init
from raffed.core.training.network import Network
from raffed.core.training.session import TrainingSession
from raffed.methods import METHODS, build_method
from raffed.models import build

CLASSES, WIDTH = 10, 16
PROTOTYPES = CLASSES * WIDTH + CLASSES  # C·d, and which of them are known
HEAD = CLASSES * WIDTH + CLASSES


@pytest.fixture(scope="module")
def net() -> Network:
    return Network(build("mlp", (1, 8, 8), CLASSES, 0, hidden=[WIDTH]))


def of(method: str, net: Network, **args: float) -> Footprint:
    recipe = build_method(method, args)
    spec = Spec(CLASSES, net.feature_dim, 5, 3, 4, 100)
    broadcast = server_init(recipe, net.initial, spec).replace(round=2).broadcast()
    return footprint(recipe, broadcast, torch.rand(2, 1, 8, 8), TrainingSession(net, Local(), 0, spec))


@pytest.mark.parametrize(
    ("method", "copies", "beside", "kept"),
    [
        ("fedavg", 1, 0, 0),
        ("fedprox", 2, 0, 0),
        ("fedproc", 1, PROTOTYPES, 0),
        ("fednova", 1, 0, 0),
        ("moon", 3, -HEAD, 1),  # of the previous model the encoder alone is used
        ("feddyn", 3, 0, 1),
        ("feddc", 5, 0, 2),
        ("fedmr", 1, PROTOTYPES, 0),
        ("scaffold", 3, 0, 1),  # the model, c and c_k
    ],
)
def test_the_live_copies_and_what_is_kept_are_the_sheet_s(
    method: str, copies: int, beside: int, kept: int, net: Network
) -> None:
    found = of(method, net)
    model = 64 * WIDTH + WIDTH + HEAD
    assert found == Footprint(model, copies * model + beside, kept * model + min(beside, 0))


@pytest.mark.parametrize("method", METHODS)
def test_every_method_has_a_footprint_of_at_least_its_model(method: str, net: Network) -> None:
    found = of(method, net)
    assert found.training >= found.model > 0
    assert found.kept >= 0
