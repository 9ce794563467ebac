"""SCAFFOLD (Karimireddy et al. 2020, Alg. 1): control variates against client drift."""

from __future__ import annotations

from typing import Annotated

from raffed.config.validation import Doc, Range, Strength, checked
from raffed.core.context import Context, Received, Spec
from raffed.core.ingredients import Correction
from raffed.core.messages import Private, Summable, Wire
from raffed.core.method import Method
from raffed.core.params import Params
from raffed.core.parts import Pass
from raffed.core.server import Mean, ServerSGD
from raffed.methods.arguments import Variant


class ServerControl(Wire):
    """c, the server's control variate, over trainable parameters."""

    c: Params


class ClientControl(Private):
    """c_i, the client's own."""

    c: Params


class ControlDelta(Summable):
    """c_i⁺ − c_i."""

    dc: Params


class ControlVariate(Correction[ClientControl, ControlDelta, ServerControl]):
    """g ← g − c_i + c; c_i⁺ = c_i − c + (w^t − w_i) / Σ_j η_j (option II); c ← c + (1/N) Σ_S (c_i⁺ − c_i).

    Σ_j η_j over the steps as used equals K·η at a constant rate. Where it is 0, the quotient is 0. The rule
    is exact for plain SGD only, and `Method` refuses momentum. `among` says whose mean moves c.
    "participants" is MAP's released code, with 1/|S| in place of 1/N, so that c is no longer the mean of all
    c_i. Its Σ_j η_j is K times the rate after the warm-up, also while the rate warms up (in the first of five
    warm-up rounds five times the rates as used).
    """

    among: str = "clients"

    def server_init(self, w: Params, spec: Spec) -> ServerControl:
        return ServerControl(w.zeros())

    def client_init(self, k: Context) -> ClientControl:
        return ClientControl(k.w0.zeros())

    def gradient(self, g: Params, k: Context[ClientControl, ServerControl]) -> Params:
        return g - k.mine.c + k.server.c

    def finish(self, k: Context[ClientControl, ServerControl]) -> tuple[ClientControl, ControlDelta]:
        rates = k.lr_sum if self.among == "clients" else k.lr_sum / k.warmth
        gradient = (k.w0 - k.w) / rates if rates else k.w0.zeros()  # at rate 0 nothing has moved: 0 / 0
        c = k.mine.c - k.server.c + gradient
        return ClientControl(c), ControlDelta(c - k.mine.c)

    def server_step(self, s: ServerControl, got: Received[ControlDelta], spec: Spec) -> ServerControl:
        if got.sum is None:
            return s
        return ServerControl(s.c + got.sum.dc / (spec.num_clients if self.among == "clients" else got.count))


PLAIN_SGD = Pass(momentum=0.0, weight_decay=0.0)
ServerRate = Annotated[
    float, Range(0.0, 10.0, open_low=True), Strength(), Doc("η_g, learning rate of the server.")
]


@checked
def scaffold(server_lr: ServerRate = 1.0, preset: Variant = "original") -> Method:
    """SCAFFOLD: control variates correct the drift of local training.

    Equation:
        g ← g − c_i + c; c_i⁺ = c_i − c + (w^t − w_i) / Σ_j η_j; c ← c + (1/N) Σ_S (c_i⁺ − c_i)
        (`ControlVariate`). Clients step by plain SGD, and means are uniform. The run's momentum and weight
        decay do not apply: the original and the MAP authors' code train without either.

    Source:
        Karimireddy et al. 2020, Algorithm 1, option II.

    The preset "authors" is MAP's released code. There c moves by the participants' mean as if there were no
    other clients, c_i⁺ divides by the nominal rate also while the rate warms up (`ControlVariate`), and
    BatchNorm's statistics take the server's step of rate η_g too, where the original averages them. The
    controls that it keeps for these statistics correct nothing there and are left out. It tries η_g = 0.5,
    0.75 and 0.9.
    """
    theirs = preset == "authors"
    return Method(
        "SCAFFOLD",
        correction=ControlVariate("participants" if theirs else "clients"),
        passes=(PLAIN_SGD,),
        mean=Mean(by="clients"),
        server=ServerSGD(server_lr, all_state=theirs),
    )
