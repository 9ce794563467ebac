"""M7 (docs/papers/map.md §6; Fig. 8 of the paper): restricting keeps the proxies of missing classes from
being pushed away.
"""

from __future__ import annotations

import torch

from raffed.config.training import Local
from raffed.core.context import ClientData
from raffed.core.round import client_round
from raffed.core.training.network import Network
from raffed.data.datasets import load_dataset
from raffed.methods.fedavg import fedavg
from raffed.methods.fedrs import fedrs
from raffed.models import build
from tests.tiny import Tiny


def test_after_local_training_missing_proxies_are_longer_with_alpha_0_1_than_with_alpha_1() -> None:
    """2 clients × 5 disjoint classes of digits, from a model that knows all ten: plain local training shrinks
    the rows of the five missing classes (push without pull), damping the push by 0.1 shrinks them less.
    """
    digits = load_dataset("digits")
    x = torch.from_numpy(digits.x).float() / 16
    y = torch.from_numpy(digits.y)

    def client(keep: torch.Tensor) -> ClientData:
        return ClientData(x[keep], y[keep], torch.bincount(y[keep], minlength=10))

    net = Network(build("mlp", (1, 8, 8), 10, 0, hidden=(32,), head_bias=False))
    local = Local(lr=0.1, momentum=0.9, weight_decay=0.0, batch_size=64, epochs=3)
    joint = Tiny(fedavg(), net=net, data=[client(y >= 0)], local=local).run(1)
    halves = Tiny(fedavg(), net=net, data=[client(y < 5), client(y >= 5)], local=local)
    for number, missing in ((0, slice(5, 10)), (1, slice(0, 5))):
        norms = {}
        for alpha in (0.1, 1.0):
            sent, data = joint.server.broadcast(), halves.data[number]
            done = client_round(fedrs(alpha), sent, None, data, halves.session, number)
            norms[alpha] = float(done.trained.w["head.weight"][missing].norm(dim=1).mean())
        assert norms[0.1] > norms[1.0]
