"""GLDP ("STHFL: Spatio-Temporal Heterogeneous Federated Learning"): local and global prototypes under
private heads.
"""

from __future__ import annotations

from typing import Annotated, Literal

import torch
from torch import Tensor

from raffed import Method, ParameterSplit, Params, Pass, Personal, Private, State, Wire
from raffed.config.validation import Doc, Range, Strength, checked
from raffed.core.context import Context, Forward, Received, ServerContext, Spec
from raffed.core.losses import one_hot
from raffed.core.parts import Part
from raffed.core.server import Assign, Mean, ServerRule
from raffed.methods.common import ClassSums, Prototypes, class_mean_sums, nearest
from raffed.methods.fedrep import alternating

LocalForm = Literal["feature_softmax_sample", "feature_softmax_class", "logits", "l1", "mse", "none"]
GlobalForm = Literal["class_mean", "per_sample", "none"]
Order = Literal["body_first", "head_first"]
Inference = Literal["lp", "gp"]
Candidates = Literal["all", "seen"]
L1_EPS = 1e-6


class Remembered(Private):
    """Ĉ_i: the moving averages of the client's class means [C, D], and whether the class was ever seen
    [C] bool.
    """

    mean: Tensor
    known: Tensor


class Relations(Personal[Remembered, ClassSums, Prototypes]):
    """λ L_LP + (1 − λ) L_GP on the body (eq. 12), and prediction by the nearest prototype (eq. 13).

    The head does not predict then.

    After training, Ĉ ← β Ĉ + (1 − β) C for the classes of the client's data, and C itself for a new class
    (eq. 9). The class means C travel. The server's C̃ moves the same way towards their uniform mean over
    clients (eq. 11). A class that is absent keeps its value. A term whose factor is 0 or whose form is "none"
    is not computed. A client's data are those of its current stage.
    """

    lam: float
    beta: float
    lp: str = "feature_softmax_sample"
    gp: str = "class_mean"
    temperature: float = 1.0
    inference: str = "lp"
    candidates: str = "all"
    snapshot: bool = False  # the server's rule keeps C̃ (`RoundStart`)

    predicts = True

    def server_init(self, w: Params, spec: Spec) -> Prototypes:
        return Prototypes.empty(spec.num_classes, spec.feature_dim)

    def client_init(self, k: Context) -> Remembered:
        empty, device = Prototypes.empty(k.spec.num_classes, k.spec.feature_dim), k.class_counts.device
        return Remembered(empty.mean.to(device), empty.known.to(device))

    def loss(self, f: Forward, k: Context[Remembered, Prototypes]) -> Tensor:
        return sum(self.loss_parts(f, k).values(), torch.zeros((), device=f.z.device))

    def loss_parts(self, f: Forward, k: Context[Remembered, Prototypes]) -> dict[str, Tensor]:
        losses = {}
        if self.lam and self.lp != "none":
            losses["local_relation"] = self.lam * self._local(f, k)
        if self.lam < 1 and self.gp != "none":
            relation = global_relation(f.z, f.y, k.server.mean, k.server.known, self.gp)
            losses["global_relation"] = (1 - self.lam) * relation
        return losses

    def _local(self, f: Forward, k: Context[Remembered, Prototypes]) -> Tensor:
        old = k.mine.mean.masked_fill(~k.mine.known[:, None], 0.0)
        if self.lp != "logits":
            return local_relation(f.z, f.y, old, k.mine.known, self.lp, self.temperature)
        bias = k.w0["head.bias"] if "head.bias" in k.w0.names else 0.0
        target = old @ k.w0["head.weight"].T + bias  # the head as it was at the start of the stage
        return local_relation(f.logits, f.y, target, k.mine.known, "feature_softmax_sample", self.temperature)

    def finish(self, k: Context[Remembered, Prototypes]) -> tuple[Remembered, ClassSums]:
        told = class_mean_sums(k)
        held = told.count > 0
        mean = moving_mean(k.mine.mean, k.mine.known, told.total, held, self.beta)
        return Remembered(mean, k.mine.known | held), told

    def server_step(self, s: Prototypes, got: Received[ClassSums], spec: Spec) -> Prototypes:
        return s if self.snapshot else _told(s, got, self.beta)

    def model(self, k: Context) -> State:
        return k.state

    def predict(self, x: Tensor, k: Context[Remembered, Prototypes]) -> Tensor:
        logits, z = k.net(k.state, x)
        known = k.server.known if self.candidates == "all" else k.server.known & k.mine.known
        by_global = torch.where(known.any(), nearest(z, k.server.mean, known), logits)
        if self.inference == "gp":
            return by_global
        return torch.where(k.mine.known.any(), nearest(z, k.mine.mean, k.mine.known), by_global)


class Snapshot(Private):
    """C̃ as it is now, and as it was before the round that is going on; without numbers before the first
    exchange.
    """

    now: Prototypes
    before: Prototypes


class RoundStart(ServerRule[Snapshot]):
    """w^{t+1} = mean. C̃ moves with every exchange (eq. 11), but what clients get is C̃ as it was before the
    round's first stage (Algorithm 1, lines 1 and 4; docs/papers/gldp.md A7): all M stages of a round see the
    same prototypes.
    """

    beta: float

    def init(self, w: Params) -> Snapshot:
        nothing = Prototypes.empty(0, 0)
        return Snapshot(nothing, nothing)

    def step(self, own: Snapshot, w: Params, mean: Params, k: ServerContext) -> tuple[Snapshot, Params]:
        empty = Prototypes.empty(k.spec.num_classes, k.spec.feature_dim)
        now, before = (memory if memory.known.numel() else empty for memory in (own.now, own.before))
        now = _told(now, k.received.get("personal", Received(0)), self.beta)
        return Snapshot(now, before if (k.round + 1) % k.spec.rounds_per_cycle else now), mean

    def extra_broadcast(self, own: Snapshot) -> dict[str, Wire]:
        return {"personal": own.before}


def _told(old: Prototypes, got: Received[ClassSums], beta: float) -> Prototypes:
    """C̃ after an exchange (eq. 11): towards the uniform mean over the clients that hold a class."""
    if got.sum is None:
        return old
    held = got.sum.count > 0
    fresh = got.sum.total / got.sum.count.clamp(min=1)[:, None]
    return Prototypes(moving_mean(old.mean, old.known, fresh, held, beta), old.known | held)


def moving_mean(old: Tensor, known: Tensor, fresh: Tensor, held: Tensor, beta: float) -> Tensor:
    average = torch.where(known[:, None], beta * old + (1 - beta) * fresh, fresh)
    return torch.where(held[:, None], average, old)


def local_relation(z: Tensor, y: Tensor, old: Tensor, known: Tensor, form: str, temperature: float) -> Tensor:
    """L_LP []: old knowledge [C, D] of each sample's class against its features z [B, D], over B; unknown
    classes add nothing.

    KL(softmax(Ĉ_y/T) ‖ softmax(z/T)) a sample; "feature_softmax_class": a batch class mean, weighted by
    |B_n|/B; "l1": shares Ĉ + ε and z + ε instead of the softmax (non-negative features only); "mse": ‖z −
    Ĉ_y‖²/D. Ĉ gets no gradient.
    """
    label, old = one_hot(y, old.shape[0]).to(z.dtype), old.detach()
    target, anchor = label @ old.to(z.dtype), label @ known.to(z.dtype)
    if form == "feature_softmax_class":
        count = label.sum(0)
        means = label.T @ z / count.clamp(min=1)[:, None]
        return (_kl(old.to(z.dtype), means, temperature) * count * known).sum() / len(y)
    if form == "mse":
        each = (z - target).square().mean(-1)
    elif form == "l1":
        p, q = ((t + L1_EPS) / (t + L1_EPS).sum(-1, keepdim=True) for t in (target, z))
        each = (p * (p.log() - q.log())).sum(-1)
    else:
        each = _kl(target, z, temperature)
    return (each * anchor).sum() / len(y)


def _kl(p: Tensor, q: Tensor, temperature: float) -> Tensor:
    log_p, log_q = (p / temperature).log_softmax(-1), (q / temperature).log_softmax(-1)
    return (log_p.exp() * (log_p - log_q)).sum(-1)


def global_relation(z: Tensor, y: Tensor, centres: Tensor, known: Tensor, form: str = "class_mean") -> Tensor:
    """L_GP [] = Σ_n (|B_n|/B) ‖C_B^n − C̃^n‖²/D over the known classes n of the batch, z [B, D], centres [C,
    D] (eq. 10).

    "per_sample": Σ_j ‖z_j − C̃^{y_j}‖²/(B D), which adds the variance within classes. C̃ gets no gradient.
    """
    label = one_hot(y, centres.shape[0]).to(z.dtype)
    g = centres.detach().masked_fill(~known[:, None], 0.0).to(z.dtype)
    if form == "per_sample":
        return ((z - label @ g).square().mean(-1) * (label @ known.to(z.dtype))).sum() / len(y)
    count = label.sum(0)
    gap = (label.T @ z / count.clamp(min=1)[:, None] - g).square().mean(-1)
    return (gap * count * known).sum() / len(y)


@checked
def gldp(
    lam: Annotated[
        float, Range(0.0, 1.0), Strength(), Doc("λ, weight of the local relation; the global one has 1 − λ.")
    ] = 0.5,
    beta: Annotated[float, Range(0.0, 1.0), Doc("β, share of the old prototypes in the moving mean.")] = 0.5,
    body_epochs: Annotated[float, Range(0.0, 1e4), Doc("t, epochs of the body.")] = 10.0,
    head_epochs: Annotated[float, Range(0.0, 1e4), Doc("s, epochs of the private head.")] = 20.0,
    lp: Annotated[LocalForm, Doc("Form of the local relation (docs/papers/gldp.md §4); none: without.")] = (
        "feature_softmax_sample"
    ),
    gp: Annotated[GlobalForm, Doc("Form of the global relation; none: without.")] = "class_mean",
    temperature: Annotated[
        float, Range(0.0, 1e3, open_low=True), Doc("Temperature of the softmax in the local relation.")
    ] = 1.0,
    order: Annotated[Order, Doc("What is trained first; head_first is FedRep's order.")] = "body_first",
    inference: Annotated[
        Inference, Doc("Prototypes that predict: the client's own (lp) or the server's (gp).")
    ] = "lp",
    candidates: Annotated[
        Candidates, Doc("Classes that gp may choose: all known ones, or those the client has seen.")
    ] = "all",
    proto_snapshot: Annotated[
        bool, Doc("Whether all stages of a round get the prototypes of the round's start.")
    ] = False,
) -> Method:
    """GLDP: local and global prototypes under private heads, prediction by the nearest prototype.

    Equation:
        CE + λ L_LP + (1 − λ) L_GP on the body (`Relations`, eqs. 7 to 13). Training is the same for inference
        "lp" (own Ĉ) and "gp" (C̃). A term that is left out by "none" does not pass its weight on. The head is
        trained by CE alone, but with lp "logits" also by that term (docs/papers/gldp.md §6). Means over
        clients are uniform.

    Source:
        STHFL 2023. λ, β and 30 epochs in all are the paper's. The division into body_epochs and head_epochs
        is FedRep's proportion, a decision (docs/papers/gldp.md, A4). Rows GLDP-LP and GLDP-GP of Tables 1 to
        3, GLDP of Table 4.

    Without `proto_snapshot` each stage gets the prototypes of the stage before (A7); with it "gp" answers by
    what was sent. Here a client has one data set, its current stage. Where there is BatchNorm, a last batch
    of one sample is left out of the body's epochs.
    """
    passes = alternating(head_epochs, body_epochs)
    part: Part = "head"
    alone = lp != "logits" or not lam  # no term but that one has a gradient in the head
    adapted = tuple(
        Pass(
            pass_.part,
            pass_.epochs,
            cross_entropy_only=alone and pass_.part == part,
            keep_singleton_batch=pass_.part == part,
        )
        for pass_ in passes
    )
    return Method(
        "GLDP",
        split=ParameterSplit(personal=part),
        passes=adapted if order == "head_first" else adapted[::-1],
        personal=Relations(lam, beta, lp, gp, temperature, inference, candidates, proto_snapshot),
        mean=Mean(by="clients"),
        server=RoundStart(beta) if proto_snapshot else Assign(),
    )
