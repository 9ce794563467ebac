"""FedDBE (Zhang et al. 2023): a private translation of the features, which takes what is biased out of the
shared body.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

import torch
from torch import Tensor

from raffed import Context, Forward, Head, Method, Params, Personal, Received, Spec, State, Summable, Wire
from raffed.config.validation import Doc, Range, Strength, checked
from raffed.errors import UsageError
from raffed.methods.common import Companion

PROBE = 2.0**-20  # so small that no clipping of gradients notices the gradient that carries a batch's mean


class ConsensusMean(Wire):
    """ḡ [D], the mean of all clients' features, and known [], whether there is one already."""

    mean: Tensor
    known: Tensor


class FeatureSum(Summable):
    """Σ of a client's features [D], and their number."""

    fraction_bits = 24

    total: Tensor
    count: int


class TranslatedFeatures(Head):
    """The logits are those of z + v_k, which are a + W v_k. The first round has the plain logits a."""

    def loss(self, f: Forward, k: Context) -> Tensor:
        if k.round == 0:
            return k.loss_of(f.logits, f.y)
        return k.loss_of(f.logits + f.w["head.weight"] @ f.own["v"], f.y)


class DomainBias(Personal[Companion, FeatureSum, ConsensusMean]):
    """v_k, trained beside the shared model and kept, and (κ/2) ‖z̄ − ḡ‖²/D, with z̄ the batch's mean feature.

    ḡ comes from the first round in which uploads count, and stays: Σ_k Σ_i z_i / Σ_k n_k under the models
    that its participants have trained, in evaluation mode. Until then the term is 0. The client's own model
    has v_k in the bias of its head, b + W v_k. If not `translates`, there is no v_k.
    """

    kappa: float
    translates: bool = True

    def server_init(self, w: Params, spec: Spec) -> ConsensusMean:
        if self.translates and "head.bias" not in w.names:
            raise UsageError(
                "FedDBE puts each client's translation into the bias of the output layer, which this network "
                "does not have; give it one (--model-arg head_bias=true), or leave out the translation "
                "(--set translate=false)"
            )
        return ConsensusMean(torch.zeros(spec.feature_dim), torch.tensor(False))

    def client_init(self, k: Context) -> Companion | None:
        if not self.translates:
            return None
        return Companion(Params({"v": torch.zeros(k.spec.feature_dim, device=k.w0.device, dtype=k.w0.dtype)}))

    def companion(self, k: Context) -> Params | None:
        return k.mine.own if self.translates else None

    def loss(self, f: Forward, k: Context[Companion, ConsensusMean]) -> Tensor | None:
        return self.kappa * mean_gap(f.z.mean(0), k.server) if self.kappa else None

    def finish(self, k: Context) -> tuple[Companion | None, FeatureSum | None]:
        kept = Companion(k.own.only(["v"]).clone()) if self.translates else None
        if not self.kappa or bool(k.server.known):
            return kept, None
        total = torch.zeros(k.spec.feature_dim, dtype=torch.float64, device=k.class_counts.device)
        for z, _ in k.features(k.state):
            total += z.to(torch.float64).sum(0)
        return kept, FeatureSum(total.to(torch.float32), int(k.class_counts.sum()))

    def server_step(self, s: ConsensusMean, got: Received[FeatureSum], spec: Spec) -> ConsensusMean:
        if got.sum is None:
            return s
        return ConsensusMean(got.sum.total / got.sum.count, torch.tensor(True))

    def model(self, k: Context) -> State:
        if not self.translates:
            return k.state
        moved = k.w["head.bias"] + k.w["head.weight"] @ k.mine.own["v"]
        return State(Params({**k.w.tensors, "head.bias": moved}).clone(), k.state.b)


class RunningDomainBias(DomainBias):
    """The same with m in place of the batch's mean: m ← (1 − μ) m + μ z̄, from 0 in every round.

    Only z̄ has a gradient. m is a gate [D + 1] of the companion. Its gradient is z̄ and a 1, times PROBE, so
    that its rule can divide by the last number what clipping has made of the others.
    """

    mu: float = 1.0

    gates: ClassVar[tuple[str, ...]] = ("m",)

    def companion(self, k: Context) -> Params:
        translation = k.mine.own.tensors if self.translates else {}
        m = torch.zeros(k.spec.feature_dim + 1, device=k.w0.device, dtype=k.w0.dtype)
        return Params({**translation, "m": m})

    def loss(self, f: Forward, k: Context[Companion, ConsensusMean]) -> Tensor:
        m, now = f.own["m"], f.z.mean(0)
        told = torch.cat([now.detach(), torch.ones_like(now[:1])]) * PROBE
        nothing = ((m - m.detach()) * told).sum()  # 0; its gradient is what the gate's rule is told
        running = (1 - self.mu) * m[:-1].detach() + self.mu * now
        return self.kappa * mean_gap(running, k.server) + nothing

    def update_gates(self, gates: Params, slope: Params, lr: float, step: Tensor) -> Params:
        m, told = gates["m"], slope["m"]
        now = told / told[-1:]
        return Params({"m": (1 - self.mu) * m + self.mu * now})


def mean_gap(mean: Tensor, consensus: ConsensusMean) -> Tensor:
    """½ ‖m − ḡ‖²/D [] of a mean feature [D], and 0 as long as there is no ḡ."""
    gap = (mean - consensus.mean.to(mean.dtype)).square().mean() / 2
    return torch.where(consensus.known, gap, torch.zeros_like(gap))


@checked
def feddbe(
    kappa: Annotated[
        float, Range(0.0, 1e6), Strength(), Doc("κ, weight of the pull of mean features to ḡ; 0: without.")
    ] = 50.0,
    mu: Annotated[
        float,
        Range(0.0, 1.0, open_low=True),
        Doc("μ, share of the batch in the running mean of features; 1 is the batch's mean."),
    ] = 1.0,
    translate: Annotated[bool, Doc("Whether each client has a private translation v_k.")] = True,
) -> Method:
    """FedDBE: a private translation of the features, and a pull of the mean feature to a common one.

    Equation:
        CE(head(z + v_k)) + κ mean_j ½ (m_j − ḡ_j)², m ← (1 − μ) m + μ z̄ (`TranslatedFeatures`, `DomainBias`,
        `RunningDomainBias`). v_k is private and starts at 0. The client is scored with its v_k, the server
        without. In the first round there is neither v_k nor a pull, and ḡ is made. With κ = 0 and without
        v_k it is FedAvg.

    Source:
        Zhang et al. 2023. κ = 50 and μ = 1 are the official script's for Fashion-MNIST. The defaults of its
        parser are κ = 0 and μ = 0.1.

    The authors' runs: rate 0.005, batches of 10 without the short last one of an epoch (`--drop-last`), and
    one epoch a round; all clients take part in every round.

    Departures: the official code makes ḡ in a round of its own with all clients, whose models it discards,
    of the running mean during training (with μ = 1 that is the last batch's). Here the first round's models
    are aggregated, and ḡ is the mean over the samples of its participants. v_k takes the run's momentum and
    weight decay, where the official code steps it by plain SGD. BatchNorm's statistics are averaged, and in
    the official code they stay with their client.
    """
    if not translate and not kappa:
        return Method("FedDBE")
    running = RunningDomainBias(kappa, translate, mu) if kappa and mu < 1 else DomainBias(kappa, translate)
    return Method("FedDBE", head=TranslatedFeatures() if translate else None, personal=running)
