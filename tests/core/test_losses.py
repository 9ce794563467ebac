"""Cross-entropy for one client and for many stacked: the same numbers, and no interpreter's worth of
imports for it.
"""

from __future__ import annotations

import math
import subprocess
import sys

import pytest
import torch
from torch import Tensor
from torch.func import grad, vmap

from raffed.core.losses import cross_entropy

LOGITS = torch.randn(3, 5, 4, generator=torch.Generator().manual_seed(0))  # clients, batch, classes
LABELS = torch.tensor([[0, 1, 2, 3, 3]]).expand(3, 5)


def test_equal_logits_cost_the_logarithm_of_the_classes() -> None:
    assert float(cross_entropy(torch.zeros(7, 10), torch.arange(7))) == pytest.approx(math.log(10), rel=1e-6)


def test_stacked_clients_get_each_its_own_loss() -> None:
    alone = torch.stack([cross_entropy(z, y) for z, y in zip(LOGITS, LABELS, strict=True)])
    torch.testing.assert_close(vmap(cross_entropy)(LOGITS, LABELS), alone)


def test_the_gradient_is_softmax_minus_the_label_over_the_batch_also_inside_a_stack() -> None:
    def slope(z: Tensor, y: Tensor) -> Tensor:
        return grad(lambda logits: cross_entropy(logits, y))(z)

    wanted = (LOGITS.softmax(-1) - torch.nn.functional.one_hot(LABELS, 4)) / 5
    torch.testing.assert_close(vmap(slope)(LOGITS, LABELS), wanted)


@pytest.mark.more
def test_a_stack_does_not_import_sympy() -> None:
    """Half a second of the first round: torch's own cross-entropy would import it under vmap."""
    code = (
        "import sys, torch; from torch.func import vmap; from raffed.core.losses import cross_entropy\n"
        "vmap(cross_entropy)(torch.zeros(2, 3, 4), torch.zeros(2, 3, dtype=torch.int64)); sys.exit('sympy' "
        "in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
