"""Label inference from the gradient of one sample's cross-entropy with respect to the last layer s = W a + b
(docs/papers/mpfedcon.md §5.1).

∂L/∂s_k = p_k − 1[k = y], ∂L/∂b_k = p_k − 1[k = y], ∂L/∂W_k = (p_k − 1[k = y]) a. For batches of one sample,
and only where the last layer's gradient is seen: under a withheld output layer rows have no class.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from raffed.core.messages import Wire
from raffed.core.params import Params
from raffed.core.record import fields_of


def by_bias(bias: Tensor) -> int:
    """y = the only k with a negative ∂b_k, of ∂b [C]. Needs nothing about a."""
    return int(bias.argmin())


def by_sign(weight: Tensor) -> int:
    """y = the row of ∂W [C, D] with the smallest sum, the only negative one where a ≥ 0 (iDLG, Zhao et al.
    2020).

    Fails whenever Σ a < 0, which a signed activation (tanh, MpFedcon's projection) makes about as often
    as not.
    """
    return int(weight.sum(1).argmin())


def by_inner_product(weight: Tensor) -> int:
    """y = the row of ∂W [C, D], C ≥ 3, whose inner products with the others are negative; no condition on a.

    The products of row y with all others add up to −(1 − p_y)² ‖a‖², those of a row k ≠ y to −p_k² ‖a‖², and
    p_k < 1 − p_y as soon as there is a third class: the smallest sum is y's.
    """
    gram = weight.double() @ weight.double().T
    return int((gram.sum(1) - gram.diagonal()).argmin())


RULES: dict[str, Callable[[Params], int]] = {
    "bias": lambda g: by_bias(g["head.bias"]),
    "sign": lambda g: by_sign(g["head.weight"]),
    "inner product": lambda g: by_inner_product(g["head.weight"]),
}


def inferred(g: Params) -> dict[str, int]:
    """Rule → label, of the rules that the gradient's names allow; empty where the head was withheld."""
    needs = {"bias": "head.bias", "sign": "head.weight", "inner product": "head.weight"}
    return {name: rule(g) for name, rule in RULES.items() if needs[name] in g.names}


def told(slots: dict[str, Wire]) -> int | None:
    """The label that the messages beside the weights say outright: the only class with a count (MpFedcon's
    centres, FedMR's and FedProto's prototypes); None where no message has counts.
    """
    for wire in slots.values():
        count = fields_of(wire).get("count")
        if isinstance(count, Tensor) and int(torch.count_nonzero(count)) == 1:
            return int(count.argmax())
    return None
