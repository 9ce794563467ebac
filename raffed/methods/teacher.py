"""The downloaded model as a teacher of some classes: FedNTD, FedLMD and FedVLS choose which."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from raffed.core.context import Context, Forward
from raffed.methods.memory import NEVER

Mode = Literal["eval", "train"]


def teacher_logits(f: Forward, k: Context, mode: str) -> Tensor:
    """Return the logits [B, C] of the downloaded model on the batch.

    Args:
        f: The forward pass of the step.
        k: What the client knows.
        mode: "eval" for evaluation mode, or "train" for training mode with the same dropout.
    """
    if mode == "eval":
        return k.net(k.start, f.x)[0]
    assert f.through is not None
    return f.through(k.w0)[0].detach()


def distilled(logits: Tensor, among: Tensor) -> Tensor:
    """Return the softmax over some classes [B, C]. The other classes have 0, and so has a row without any.

    Args:
        logits: Logits [B, C].
        among: Which classes a row's softmax has, [B, C] bool.
    """
    return torch.where(among, torch.where(among, logits, NEVER).softmax(-1), 0.0)


def divergence(shares: Tensor, logits: Tensor, among: Tensor) -> Tensor:
    """Return the mean over the batch of KL(shares ‖ softmax over some classes of the logits), in nats.

    Args:
        shares: Probabilities [B, C], which are 0 outside `among`. A row of zeros has the value 0.
        logits: Logits [B, C].
        among: Which classes a row's softmax has, [B, C] bool.
    """
    scores = torch.where(among, logits, NEVER).log_softmax(-1)
    return (torch.xlogy(shares, shares) - shares * scores).sum(-1).mean()
