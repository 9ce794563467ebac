"""FedLoGe (Xiao et al. 2024): the body learns under a frozen sparse ETF, two heads learn beside it."""

from __future__ import annotations

from typing import Annotated, Literal

import torch.nn.functional as F
from torch import Tensor

from raffed import Assign, Context, Forward, Head, Method, Params, Personal, State
from raffed.config.validation import Doc, Range, checked
from raffed.core.parts import in_part
from raffed.methods.common import NEVER, Companion

Frame = Literal["sparse_etf", "etf"]
SMALLEST = 1e-12  # of a row's length, so that a row of zeros stays zero


class FrozenFrame(Head):
    """CE(z Mᵀ) + CE(g(stopgrad(z))): the body learns through the frame M, the head g on its features.

    M is the head of the run's initial model, so every client derives it from the seed, and it is never sent.
    """

    def logits(self, a: Tensor, k: Context) -> Tensor:
        return a

    def loss(self, f: Forward, k: Context) -> Tensor:
        through_frame = k.loss_of(F.linear(f.z, k.initial.w["head.weight"].to(f.z.dtype)), f.y)
        return through_frame + k.loss_of(of_head(f.w, f.z.detach()), f.y)


class LocalHead(Personal[Companion]):
    """l_k, trained by CE(l_k(stopgrad(z))) at the same steps, and kept.

    The client's model predicts by l(z) + g'(z), where the rows of g' are g_c · ‖l_c‖. A class that the client
    misses is never predicted. l begins as the network's initial head, the same for everybody.
    """

    predicts = True

    def client_init(self, k: Context) -> Companion:
        return Companion(k.initial.w.only(name for name in k.initial.w.names if in_part(name, "head")))

    def companion(self, k: Context[Companion]) -> Params:
        return k.mine.own

    def loss(self, f: Forward, k: Context) -> Tensor:
        return k.loss_of(of_head(f.own, f.z.detach()), f.y)

    def finish(self, k: Context) -> tuple[Companion, None]:
        return Companion(k.own), None

    def model(self, k: Context[Companion]) -> State:
        head = k.mine.own
        lengths = head["head.weight"].norm(dim=1, keepdim=True)
        both = {name: k.w[name] + head[name] for name in head.names}
        both["head.weight"] = k.w["head.weight"] * lengths + head["head.weight"]
        return State(Params({**k.w.tensors, **both}).clone(), k.state.b)

    def predict(self, x: Tensor, k: Context[Companion]) -> Tensor:
        logits = k.net(self.model(k), x)[0]
        return logits.masked_fill(k.class_counts == 0, NEVER)


class Realigned(Assign):
    """The mean is the next model. It is scored under a head whose rows are scaled to the length `length`."""

    length: float

    def evaluation_weights(self, own: None, w: Params) -> Params:
        rows = realigned(w["head.weight"], self.length)
        return Params({**w.tensors, "head.weight": rows}).clone()


def realigned(rows: Tensor, length: float) -> Tensor:
    """Rows [C, D] scaled to one length."""
    lengths: Tensor = rows.norm(dim=1, keepdim=True)
    return rows * (length / lengths.clamp(min=SMALLEST))


def of_head(head: Params, z: Tensor) -> Tensor:
    """Logits [B, C] of features z [B, D] under a head."""
    return F.linear(z, head["head.weight"], head["head.bias"] if "head.bias" in head.names else None)


@checked
def fedloge(
    frame: Annotated[
        Frame, Doc("The frozen frame of the body: FedLoGe's sparse one, or a simplex one (etf).")
    ] = "sparse_etf",
    realign: Annotated[bool, Doc("Whether the global head is scored with rows of one length.")] = True,
    length: Annotated[
        float, Range(0.0, 1e6, open_low=True), Doc("Length of these rows; it matters against a bias only.")
    ] = 1.7,
    local: Annotated[bool, Doc("Whether clients also train a local head.")] = True,
) -> Method:
    """FedLoGe: the body learns under a frozen sparse ETF; a global and a local head learn on its features.

    Equation:
        CE(z Mᵀ) for the body, with M frozen and the same for everybody; CE(g(stopgrad(z))) for the global
        head g and CE(l_k(stopgrad(z))) for the client's l_k, at the same steps (`FrozenFrame`,
        `LocalHead`). Body and g are averaged. The global model is scored with rows 1.7 g_c/‖g_c‖
        (`Realigned`), the client's by l(z) + g'(z) with rows g_c ‖l_c‖.

    Source:
        Xiao, Chen, Liu, Wang, Feng, Hao, Zhou, Wu, Yang and Liu, ICLR 2024, arXiv 2401.08977;
        ZackZikaiXiao/FedLoGe.

    The method builds its network with head_init = sparse_etf (`raffed.models.last_layers.sparse_etf`) or etf.
    g and l_k then begin as M, where the official code draws them.

    Departures: the frame has no bias, where the official code keeps the random one of torch's layer. What a
    client misses is told by its training samples, and by its test samples in the official code. That code
    scores in two scripts. fedloge.py, which trains, scores the server by M, and a client by l(z) + g(z)
    without the classes that it misses. realignment.py, which comes after training, scores the server by the
    realigned g, and a client with the rows g_c ‖l_c‖, also without the classes that it misses. Here every
    round is scored as in realignment.py. The sparse frame takes fewer steps than the official one
    (`raffed.models.last_layers.sparse_etf`).
    """
    return Method(
        "FedLoGe",
        head=FrozenFrame(),
        personal=LocalHead() if local else None,
        server=Realigned(length=float(length)) if realign else Assign(),
        network=(("head_init", frame),),
    )
