"""A worked example with four classes: two samples' logits and labels, a client's class counts, a teacher.

The numbers that tests expect for it were computed outside of raffed, from the papers' equations.
"""

from __future__ import annotations

import torch

from raffed.core.context import Context
from tests.tiny import bare_context

Z = torch.tensor([[1.0, 0.5, -0.5, 0.0], [0.2, 1.5, 0.3, -1.0]], dtype=torch.float64)
Y = torch.tensor([0, 1])
TEACHER = torch.tensor([[0.5, 0.0, 1.0, -1.0], [0.0, 0.4, 0.8, 0.2]], dtype=torch.float64)
ONE_MISSING = (80, 15, 0, 5)
TWO_MISSING = (60, 40, 0, 0)
CROSS_ENTROPY = 0.6458148  # of Z and Y


def holder(counts: tuple[int, ...] = ONE_MISSING) -> Context:
    """What a client with these class counts knows."""
    return bare_context(class_counts=torch.tensor(counts))
