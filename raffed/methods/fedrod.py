"""FedROD (Chen & Chao 2022), linear version: a generic head trained by balanced softmax, a personal head
on top of it.
"""

from __future__ import annotations

from typing import Annotated

from torch import Tensor

from raffed import Context, Forward, Method, Params, Personal, State
from raffed.config.validation import Doc, Range, Strength, checked
from raffed.core.parts import in_part
from raffed.core.server import mean_of
from raffed.methods.common import BalancedSoftmax, Companion
from raffed.methods.registry import Variant


class PersonalHead(Personal[Companion]):
    """L_p = CE(stopgrad(z_g) + V_k stopgrad(h), y) on the same batches.

    The prediction is argmax(z_g + V_k h). V_k stays private. It starts at the initial value of W_g, the same
    for everybody. This departs from MAP's code, where V_k is a draw of its own from N(0, 0.01): the first
    logits z_g + V_k h are 2 z_g here, a difference of the order of 0.01.

    `joint` takes the logits ½ (V_k h + z_g) of MAP's released code, without stop-gradient. Where the run
    clips, the gradients of encoder and both heads are then clipped by one norm (gradients of norm 3 and 4
    have norm 5), otherwise V_k's apart.
    """

    joint: bool = False

    @property
    def clips_jointly(self) -> bool:
        return self.joint

    def client_init(self, k: Context) -> Companion:
        return Companion(k.initial.w.only(n for n in k.initial.w.names if in_part(n, "head")))

    def companion(self, k: Context[Companion]) -> Params:
        return k.mine.own

    def loss(self, f: Forward, k: Context) -> Tensor:
        if self.joint:
            return k.loss_of((_linear(f.own, f.z) + f.logits) / 2, f.y)
        return k.loss_of(f.logits.detach() + _linear(f.own, f.z.detach()), f.y)

    def finish(self, k: Context) -> tuple[Companion, None]:
        return Companion(k.own), None

    def model(self, k: Context[Companion]) -> State:
        scale = 0.5 if self.joint else 1.0
        head = k.mine.own
        both = {n: (k.w[n] + head[n]) * scale for n in head.names}
        return State(Params({**k.w.tensors, **both}).clone(), k.state.b)


def _linear(head: Params, z: Tensor) -> Tensor:
    logits = z @ head["head.weight"].T
    return logits + head["head.bias"] if "head.bias" in head.names else logits


@checked
def fedrod(
    gamma: Annotated[
        float, Range(0.0, 10.0), Strength(), Doc("γ, exponent of the class prior; 0 is FedAvg on the server.")
    ] = 1.0,
    preset: Variant = "original",
) -> Method:
    """FedROD, linear version: a generic head trained by balanced softmax, a personal head on top of it.

    Equation:
        CE(z + log n_k^γ) for encoder and generic head (`BalancedSoftmax`), CE(z_g + V_k h) for V_k
        (`PersonalHead`). The server is scored without the prior. Gradients of the two heads are clipped
        apart, so that one does not shrink the other.

    Source:
        Chen & Chao 2022. Row FedROD of MAP's Tables I and II.

    The preset "authors" is MAP's released code, which scales logits by (4 n_c/n)^γ, trains both heads
    jointly, clips their gradients by one norm (`local.clip_norm`; the released code has 100) and takes
    uniform means. It searches γ in 1, 0.5 and 0.25.

    Departure of the preset: V_k starts as W_g (`PersonalHead`), where the released code draws it anew.
    """
    authors = preset == "authors"
    return Method(
        "FedROD", head=BalancedSoftmax(gamma, authors), personal=PersonalHead(authors), mean=mean_of(preset)
    )
