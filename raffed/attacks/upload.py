"""One real step of a client, and what the server sees of it: the broadcast, the upload and the
learning rate.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from raffed.config.training import Local
from raffed.core.context import ClientData, Spec
from raffed.core.messages import Broadcast, Upload
from raffed.core.method import Method
from raffed.core.params import Params
from raffed.core.round import client_round, server_init
from raffed.core.training.network import Network
from raffed.core.training.session import TrainingSession
from raffed.errors import UsageError

LR = 0.1


@dataclass(frozen=True)
class Observed:
    """Everything that a server has of one client's round: wires in both directions, the learning rate, and
    whether the method sends updates w^t − w in place of weights.
    """

    broadcast: Broadcast
    upload: Upload
    lr: float
    sends_update: bool = False

    def gradient(self) -> Params:
        """Return g = (w^t − w) / η of one plain SGD step, for the uploaded names; exact up to 2^-24
        |w| / η.
        """
        w = self.upload.w
        if self.sends_update:
            return w / self.lr
        return Params({name: (self.broadcast.w[name] - w[name]) / self.lr for name in w.names})


def observed(method: Method, net: Network, x: Tensor, y: int, *, lr: float = LR, seed: int = 0) -> Observed:
    """Execute a client's first round with one image x [C, H, W] in [0, 1] of label y, and return what is
    seen.

    SGD has no momentum and no weight decay, and a pass of one epoch is one step.

    Raises:
        UsageError: The method's shared part takes more or less than one step, so that the difference of the
            weights would not be a gradient.
    """
    shared = [one for one in method.passes if one.part in ("all", "body", "base")]
    if method.solver is not None or [one.epochs or 1.0 for one in shared] != [1.0]:
        raise UsageError(f"{method.name}: the attack needs exactly one step of SGD on one image")
    classes = net.initial.w["head.weight"].shape[0]
    label = torch.tensor([y])
    data = ClientData(net.arranged(x[None]), label, torch.bincount(label, minlength=classes))
    spec = Spec(classes, net.feature_dim, 1, 1, norms=net.norm_names)
    local = Local(lr=lr, momentum=0.0, weight_decay=0.0, batch_size=1, epochs=1)
    sent = server_init(method, net.initial, spec).broadcast()
    done = client_round(method, sent, None, data, TrainingSession(net, local, seed, spec), 0)
    return Observed(sent, done.upload, lr, method.sends_update)
