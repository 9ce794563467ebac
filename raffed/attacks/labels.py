"""Infer the label from the gradient of one sample's cross-entropy with respect to the last layer s = W a + b.

See docs/papers/mpfedcon.md §5.1. ∂L/∂s_k = p_k − 1[k = y], ∂L/∂b_k = p_k − 1[k = y], ∂L/∂W_k = (p_k − 1[k =
y]) a. The rules work for batches of one sample, and only if the last layer's gradient is seen. If the output
layer is withheld, the rows of the layer before it have no class.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from raffed.core.messages import Wire
from raffed.core.params import Params
from raffed.core.record import fields_of


def by_bias(bias: Tensor) -> int:
    """Return y, the only k with a negative entry in ∂b [C]. This needs no condition on a."""
    return int(bias.argmin())


def by_sign(weight: Tensor) -> int:
    """Return y, the row of ∂W [C, D] with the smallest sum (iDLG, Zhao et al. 2020).

    It is the only negative sum if a ≥ 0. The rule fails whenever Σ a < 0. With a signed activation (tanh, or
    MpFedcon's projection) this happens in about half of the cases.
    """
    return int(weight.sum(1).argmin())


def by_inner_product(weight: Tensor) -> int:
    """Return y, the row of ∂W [C, D], C ≥ 3, whose inner products with the others are negative.

    This needs no condition on a. The products of row y with all others add up to −(1 − p_y)² ‖a‖², and those
    of a row k ≠ y to −p_k² ‖a‖². With at least three classes p_k < 1 − p_y, so the smallest sum is that of y.
    """
    gram = weight.double() @ weight.double().T
    return int((gram.sum(1) - gram.diagonal()).argmin())


RULES: dict[str, Callable[[Params], int]] = {
    "bias": lambda g: by_bias(g["head.bias"]),
    "sign": lambda g: by_sign(g["head.weight"]),
    "inner product": lambda g: by_inner_product(g["head.weight"]),
}


def inferred(g: Params) -> dict[str, int]:
    """Return rule → label for the rules that the gradient's names allow; empty if the head was withheld."""
    needs = {"bias": "head.bias", "sign": "head.weight", "inner product": "head.weight"}
    return {name: rule(g) for name, rule in RULES.items() if needs[name] in g.names}


def told(slots: dict[str, Wire]) -> int | None:
    """Return the label that the messages beside the weights reveal: the only class with a count.

    Such messages are MpFedcon's centres and the prototypes of FedMR and FedProto. None if no message has
    counts.
    """
    for wire in slots.values():
        count = fields_of(wire).get("count")
        if isinstance(count, Tensor) and int(torch.count_nonzero(count)) == 1:
            return int(count.argmax())
    return None
