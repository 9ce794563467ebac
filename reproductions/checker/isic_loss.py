"""The loss of FLamby's Fed-ISIC2019."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from raffed import loss

# FLamby (owkin/FLamby edacf54), class weights in the order MEL, NV, BCC, AK, BKL, DF, VASC, SCC
CLASS_WEIGHTS = (5.5813, 2.0472, 7.0204, 26.1194, 9.5369, 101.0707, 92.5224, 38.3443)


@loss
def weighted_focal(logits: Tensor, labels: Tensor, gamma: float = 2.0) -> Tensor:
    """mean α_y (1 − p_y)^γ · (−log p_y), with α the weights of the eight classes of ISIC2019.

    Data with more classes, such as digits in a smoke run, have the weight 1 from the ninth class on.

    Args:
        logits: Scores [B, C].
        labels: int64 [B].
        gamma: γ; 0 is the weighted cross-entropy.
    """
    count = logits.shape[-1]
    padded = (CLASS_WEIGHTS + (1.0,) * count)[:count]
    weights = torch.tensor(padded, dtype=logits.dtype, device=logits.device)
    log_p = F.log_softmax(logits, dim=-1).gather(1, labels[:, None])[:, 0]
    return -(weights[labels] * (1 - log_p.exp()) ** gamma * log_p).mean()
