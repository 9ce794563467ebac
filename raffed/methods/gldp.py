"""GLDP ("STHFL: Spatio-Temporal Heterogeneous Federated Learning"): local and global prototypes under private heads."""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor

from raffed.core.boundary import Private
from raffed.core.context import Context, Forward
from raffed.core.errors import check_choice, check_range
from raffed.core.maths import one_hot
from raffed.core.method import Method, Part, Pass, Personal, Received, Spec, Split
from raffed.core.params import Params, State
from raffed.core.server import Mean
from raffed.methods.fedrep import alternating
from raffed.methods.memory import ClassSums, Prototypes, class_mean_sums, nearest

LocalForm = Literal["feature_softmax_sample", "feature_softmax_class", "logits", "l1", "mse", "none"]
LP: tuple[str, ...] = get_args(LocalForm)
GlobalForm = Literal["class_mean", "per_sample", "none"]
GP: tuple[str, ...] = get_args(GlobalForm)
Order = Literal["body_first", "head_first"]
ORDERS: tuple[str, ...] = get_args(Order)
Inference = Literal["lp", "gp"]
INFERENCES: tuple[str, ...] = get_args(Inference)
Candidates = Literal["all", "seen"]
CANDIDATES: tuple[str, ...] = get_args(Candidates)
L1_EPS = 1e-6


class Remembered(Private):
    """Ĉ_i: the moving averages of the client's class means [C, D], and whether the class was ever seen [C] bool."""

    mean: Tensor
    known: Tensor


class Relations(Personal):
    """λ L_LP + (1 − λ) L_GP on the body (eq. 12), prediction by the nearest prototype (eq. 13); the head is not used then.

    After training, Ĉ ← β Ĉ + (1 − β) C for the classes of the client's data, C itself for a new one (eq. 9); the class means
    C travel, the server's C̃ moves the same way towards their uniform mean over clients (eq. 11). A class absent keeps its
    value. A term whose factor is 0 or whose form is "none" is not computed. A client's data are those of its current stage.
    """

    lam: float
    beta: float
    lp: str = "feature_softmax_sample"
    gp: str = "class_mean"
    temperature: float = 1.0
    inference: str = "lp"
    candidates: str = "all"

    predicts = True

    def server_init(self, w: Params, spec: Spec) -> Prototypes:
        return Prototypes.empty(spec.num_classes, spec.feature_dim)

    def client_init(self, k: Context) -> Remembered:
        empty, device = Prototypes.empty(k.spec.num_classes, k.spec.feature_dim), k.class_counts.device
        return Remembered(empty.mean.to(device), empty.known.to(device))

    def loss(self, f: Forward, k: Context) -> Tensor:
        total = torch.zeros((), device=f.z.device)
        if self.lam and self.lp != "none":
            total = total + self.lam * self._local(f, k)
        if self.lam < 1 and self.gp != "none":
            total = total + (1 - self.lam) * global_relation(f.z, f.y, k.server.mean, k.server.known, self.gp)
        return total

    def _local(self, f: Forward, k: Context) -> Tensor:
        old = k.mine.mean.masked_fill(~k.mine.known[:, None], 0.0)
        if self.lp != "logits":
            return local_relation(f.z, f.y, old, k.mine.known, self.lp, self.temperature)
        bias = k.w0["head.bias"] if "head.bias" in k.w0.names else 0.0
        target = old @ k.w0["head.weight"].T + bias  # the head as it was at the start of the stage
        return local_relation(f.logits, f.y, target, k.mine.known, "feature_softmax_sample", self.temperature)

    def finish(self, k: Context) -> tuple[Remembered, ClassSums]:
        told = class_mean_sums(k)
        held = told.count > 0
        mean = _moved(k.mine.mean, k.mine.known, told.total, held, self.beta)
        return Remembered(mean, k.mine.known | held), told

    def server_step(self, s: Prototypes, got: Received, spec: Spec) -> Prototypes:
        if not isinstance(got.sum, ClassSums):
            return s
        held = got.sum.count > 0
        fresh = got.sum.total / got.sum.count.clamp(min=1)[:, None]
        return Prototypes(_moved(s.mean, s.known, fresh, held, self.beta), s.known | held)

    def model(self, k: Context) -> State:
        return k.state

    def predict(self, x: Tensor, k: Context) -> Tensor:
        logits, z = k.net(k.state, x)
        theirs = k.server.known if self.candidates == "all" else k.server.known & k.mine.known
        by_global = torch.where(theirs.any(), nearest(z, k.server.mean, theirs), logits)
        if self.inference == "gp":
            return by_global
        return torch.where(k.mine.known.any(), nearest(z, k.mine.mean, k.mine.known), by_global)


def _moved(old: Tensor, known: Tensor, fresh: Tensor, held: Tensor, beta: float) -> Tensor:
    average = torch.where(known[:, None], beta * old + (1 - beta) * fresh, fresh)
    return torch.where(held[:, None], average, old)


def local_relation(z: Tensor, y: Tensor, old: Tensor, known: Tensor, form: str, temperature: float) -> Tensor:
    """L_LP []: old knowledge [C, D] of each sample's class against its features z [B, D], over B; unknown classes add nothing.

    KL(softmax(Ĉ_y/T) ‖ softmax(z/T)) a sample; "feature_softmax_class": a batch class mean, weighted by |B_n|/B; "l1": shares
    Ĉ + ε and z + ε instead of the softmax (non-negative features only); "mse": ‖z − Ĉ_y‖²/D. Ĉ gets no gradient.
    """
    label = one_hot(y, old.shape[0]).to(z.dtype)
    target, anchor = label @ old.to(z.dtype), label @ known.to(z.dtype)
    if form == "feature_softmax_class":
        count = label.sum(0)
        own = label.T @ z / count.clamp(min=1)[:, None]
        return (_kl(old.to(z.dtype), own, temperature) * count * known).sum() / len(y)
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
    """L_GP [] = Σ_n (|B_n|/B) ‖C_B^n − C̃^n‖²/D over the known classes n of the batch, z [B, D], centres [C, D] (eq. 10).

    "per_sample": Σ_j ‖z_j − C̃^{y_j}‖²/(B D), which adds the variance within classes.
    """
    label = one_hot(y, centres.shape[0]).to(z.dtype)
    g = centres.masked_fill(~known[:, None], 0.0).to(z.dtype)
    if form == "per_sample":
        return ((z - label @ g).square().mean(-1) * (label @ known.to(z.dtype))).sum() / len(y)
    count = label.sum(0)
    gap = (label.T @ z / count.clamp(min=1)[:, None] - g).square().mean(-1)
    return (gap * count * known).sum() / len(y)


def gldp(
    lam: float = 0.5, beta: float = 0.5, body_epochs: float = 10.0, head_epochs: float = 20.0,
    lp: LocalForm = "feature_softmax_sample", gp: GlobalForm = "class_mean", temperature: float = 1.0,
    order: Order = "body_first", inference: Inference = "lp", candidates: Candidates = "all",
) -> Method:  # fmt: skip
    """GLDP; λ, β and 30 epochs in all are the paper's. Training is the same for inference "lp" (own Ĉ) and "gp" (C̃).

    body_epochs t and head_epochs s in FedRep's proportion (a decision of gldp.md, A4). order "head_first": FedRep's.
    candidates: classes that "gp" may choose, all known ones or those the client has seen. lp, gp "none": without the term, whose
    weight the other does not take over. Rows GLDP-LP, GLDP-GP of Tables 2 to 4. Here a client has one data set, its current
    stage. Uniform means over clients.
    """
    for name, value in (("lam", lam), ("beta", beta)):
        check_range(name, value, 0.0, 1.0)
    check_range("temperature", temperature, 0.0, 1e3, open_low=True)
    for name, choice, known in (("lp", lp, LP), ("gp", gp, GP), ("order", order, ORDERS),
                                ("inference", inference, INFERENCES), ("candidates", candidates, CANDIDATES)):  # fmt: skip
        check_choice(name, choice, known)
    passes = alternating(head_epochs, body_epochs)
    part: Part = "head"
    plain = tuple(Pass(one.part, one.epochs, plain=one.part == part) for one in passes)
    return Method(
        "GLDP",
        split=Split(personal=part),
        passes=plain if order == "head_first" else plain[::-1],
        personal=Relations(lam, beta, lp, gp, temperature, inference, candidates),
        mean=Mean(by="clients"),
    )
