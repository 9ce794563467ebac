"""SCAFFOLD (Karimireddy et al. 2020, Alg. 1): control variates against client drift."""

from __future__ import annotations

from typing import Annotated, Literal

from torch import Tensor

from raffed import Correction, Mean, Method, Params, Pass, Private, ServerSGD, Summable, Wire
from raffed.config.validation import Doc, Range, Strength, checked
from raffed.core.context import Context, Received, Spec
from raffed.errors import UsageError
from raffed.methods.registry import Variant


class ServerControl(Wire):
    """c, the server's control variate, over trainable parameters."""

    c: Params


class ClientControl(Private):
    """c_i, the client's own."""

    c: Params


class ControlDelta(Summable):
    """c_i⁺ − c_i."""

    dc: Params


class Controls(Correction[ClientControl, ControlDelta, ServerControl]):
    """c_i⁺ = c_i − c + (w^t − w_i) / Σ_j η_j (option II); c ← c + (1/N) Σ_S (c_i⁺ − c_i).

    Σ_j η_j over the steps as used equals K·η at a constant rate. Where it is 0, the quotient is 0. `among`
    says whose mean moves c. By "samples" c is the mean of all c_i with the weights n_i/Σ_j n_j, so that
    c_i⁺ − c_i counts n_i/Σ_j n_j and not 1/N. "participants" is MAP's released code, with 1/|S| in place of
    1/N, so that c is no longer the mean of all c_i. Its Σ_j η_j is K times the rate after the warm-up, also
    while the rate warms up (in the first of five warm-up rounds five times the rates as used).
    """

    among: str = "clients"

    def server_init(self, w: Params, spec: Spec) -> ServerControl:
        return ServerControl(w.zeros())

    def client_init(self, k: Context) -> ClientControl:
        return ClientControl(k.w0.zeros())

    def finish(self, k: Context[ClientControl, ServerControl]) -> tuple[ClientControl, ControlDelta]:
        rates = k.lr_sum / k.warmth if self.among == "participants" else k.lr_sum
        gradient = (k.w0 - k.w) / rates if rates else k.w0.zeros()  # at rate 0 nothing has moved: 0 / 0
        c = k.mine.c - k.server.c + gradient
        change = c - k.mine.c
        if self.among == "samples":
            change = change * (int(k.class_counts.sum()) * k.spec.num_clients / k.spec.samples)
        return ClientControl(c), ControlDelta(change)

    def server_step(self, s: ServerControl, got: Received[ControlDelta], spec: Spec) -> ServerControl:
        if got.sum is None:
            return s
        count = got.count if self.among == "participants" else spec.num_clients
        return ServerControl(s.c + got.sum.dc / count)


class ControlVariate(Controls):
    """g ← g − c_i + c, with the controls of `Controls`.

    The rule is exact for plain SGD only, and `Method` refuses momentum.
    """

    def gradient(self, g: Params, k: Context[ClientControl, ServerControl]) -> Params:
        return g - k.mine.c + k.server.c


class ControlBesideMomentum(Controls):
    """w ← w − η v − η (c − c_i), with v the velocity of SGD with momentum, and the controls of `Controls`.

    The controls are estimated from the displacement, so that with momentum ρ they are about 1/(1 − ρ)
    gradients, as v is. Within the gradient they would pass through the momentum, which would make them
    1/(1 − ρ) times larger again. Beside it they are of v's own size. Without momentum this is
    `ControlVariate`'s step.
    """

    plain_sgd = False

    def after_step(self, w: Params, lr: float | Tensor, k: Context[ClientControl, ServerControl]) -> Params:
        return w - (k.server.c - k.mine.c) * lr


PLAIN_SGD = Pass(momentum=0.0, weight_decay=0.0)
ServerRate = Annotated[
    float, Range(0.0, 10.0, open_low=True), Strength(), Doc("η_g, learning rate of the server.")
]
ControlWeights = Literal["clients", "samples"]


@checked
def scaffold(
    server_lr: ServerRate = 1.0,
    preset: Variant = "original",
    momentum_inside: Annotated[
        bool,
        Doc("Whether the run's momentum and weight decay apply, as in NIID-Bench's code."),
    ] = False,
    controls_by: Annotated[
        ControlWeights, Doc("Weights of the mean that moves c: equal (clients) or n_k (samples).")
    ] = "clients",
) -> Method:
    """SCAFFOLD: control variates correct the drift of local training.

    Equation:
        g ← g − c_i + c; c_i⁺ = c_i − c + (w^t − w_i) / Σ_j η_j; c ← c + (1/N) Σ_S (c_i⁺ − c_i)
        (`ControlVariate`). Clients step by plain SGD, and means are uniform. The run's momentum and weight
        decay do not apply: the original and the MAP authors' code train without either.

    Source:
        Karimireddy et al. 2020, Algorithm 1, option II.

    The preset "authors" is MAP's released code. There c moves by the participants' mean as if there were no
    other clients, c_i⁺ divides by the nominal rate also while the rate warms up (`Controls`), and
    BatchNorm's statistics take the server's step of rate η_g too, where the original averages them. The
    controls that it keeps for these statistics correct nothing there and are left out. It tries η_g = 0.5,
    0.75 and 0.9.

    With `momentum_inside` clients step by SGD with the run's momentum and weight decay, and the correction is
    made beside it: w ← w − η v − η (c − c_i) (`ControlBesideMomentum`), as in the code of NIID-Bench (Li et
    al., ICDE 2022) and of Flower's baseline niid_bench. Both codes weigh the models by samples, which the
    run's `--weighting samples` does. Flower's also weighs the clients' changes of controls by samples, which
    is `controls_by="samples"`.

    Departures: the codes of `momentum_inside` begin the controls at the weights of a network, and
    here they begin at 0. This changes nothing if all clients take part in the first round. Otherwise (1 −
    |S|/N) times these weights stay in c, and a client that comes again moves by η times that, away from them,
    at every step. Flower's c is then not the weighted mean of all c_i, and here it is. NIID-Bench's code also
    corrects BatchNorm's statistics; here they are averaged.
    """
    theirs = preset == "authors"
    if theirs and (momentum_inside or controls_by != "clients"):
        raise UsageError(
            "scaffold: the preset authors is MAP's code, which has neither momentum_inside nor controls_by; "
            "leave out the preset, or these"
        )
    among = "participants" if theirs else controls_by
    return Method(
        "SCAFFOLD",
        correction=ControlBesideMomentum(among) if momentum_inside else ControlVariate(among),
        passes=(Pass() if momentum_inside else PLAIN_SGD,),
        mean=Mean(by="clients"),
        server=ServerSGD(server_lr, all_state=theirs),
    )
