"""FLDA (Peterson et al. 2019): each client mixes the shared model with a private one by a private gate."""

from __future__ import annotations

import torch
from torch import Tensor

from raffed import Context, Forward, Method, Params, Personal, State
from raffed.config.validation import checked
from raffed.core import seeds
from raffed.core.server import mean_of
from raffed.methods.common import Companion
from raffed.methods.registry import Variant

GATE = ("gate.weight", "gate.bias")


class MixedExperts(Personal[Companion]):
    """ŷ = α(x) G(x) + (1 − α(x)) π_k(x) on logits, α = sigmoid(u_k·h_G(x) + b_k).

    The cross-entropy of the mixture trains G, π_k and the gate. Only G is sent. The gate sees the shared
    encoder's features, where the original has the input. It starts at 0, α = ½. If it is `drawn`, it starts
    as torch's linear layers do, by one draw from U(−1/√d, 1/√d) for all clients.

    π_k starts as an initial model of its own (`fresh`), the same for all clients. If it started as G, it
    would stay G for as long as the gate stays ½, and the gate would stay. π_k's BatchNorm uses batch
    statistics in training and re-estimates them on the client's data for scoring, so that a client keeps P +
    d + 1 numbers, not b more.

    `times`: how often the cross-entropy counts. `jointly`: where the run clips, G, π_k and the gate are
    clipped by one norm of all three (gradients of norm 3 and 4 have norm 5), otherwise G apart from the
    private two.
    """

    times: int = 1
    drawn: bool = False
    jointly: bool = False

    predicts = True
    trains_alone = False

    @property
    def clips_jointly(self) -> bool:
        return self.jointly

    def client_init(self, k: Context) -> Companion:
        d = k.spec.feature_dim
        start = (drawn_gate(d, k.run_seed) if self.drawn else torch.zeros(d + 1)).to(k.class_counts.device)
        on = {"gate.weight": start[:d], "gate.bias": start[d:]}
        return Companion(Params({**fresh(k.initial.w, k.run_seed).tensors, **on}).clone())

    def companion(self, k: Context[Companion]) -> Params:
        return k.mine.own

    def loss(self, f: Forward, k: Context) -> Tensor:
        assert f.through is not None
        logits, _ = f.through(_expert(f.own))
        mixed = k.loss_of(mixture(f.logits, logits, f.z, f.own), f.y)
        return self.times * mixed - k.ce(f)  # in place of the plain CE

    def finish(self, k: Context) -> tuple[Companion, None]:
        return Companion(k.own), None

    def model(self, k: Context) -> State:
        return k.state

    def predict(self, x: Tensor, k: Context[Companion]) -> Tensor:
        companion = k.mine.own
        shared, z = k.net(k.state, x)
        expert = k.reestimate(State(_expert(companion).clone(), k.state.b))
        return mixture(shared, k.net(expert, x)[0], z, companion)


def fresh(initial: Params, run_seed: int) -> Params:
    """Another draw of an initial model: the entries of every tensor in another random order, one for the run.

    As good as a draw of its own where a layer's initial entries are i.i.d., as they are in all layers of
    raffed's networks; a tensor of constants (BatchNorm's, biases of 0) stays.
    """
    stream = seeds.generator(run_seed, "expert")

    def mixed(t: Tensor) -> Tensor:
        order = torch.randperm(t.numel(), generator=stream)
        return t.reshape(-1)[order.to(t.device)].view(t.shape)

    return Params({name: mixed(t) for name, t in initial.tensors.items()}).clone()


def drawn_gate(d: int, run_seed: int) -> Tensor:
    """A gate's d weights and bias, [d + 1], from U(−1/√d, 1/√d), as torch's linear layers start: one draw
    for the run.
    """
    stream = seeds.generator(run_seed, "expert", 0, 0, 1)  # `fresh` has the first stream of this purpose
    return torch.rand(d + 1, generator=stream).mul_(2).sub_(1).div_(d**0.5)


def _expert(companion: Params) -> Params:
    return Params({name: t for name, t in companion.tensors.items() if name not in GATE})


def mixture(shared: Tensor, private: Tensor, z: Tensor, gate: Params) -> Tensor:
    """α shared + (1 − α) private of logits [B, C], α [B, 1] from the shared features z [B, D]."""
    alpha = torch.sigmoid(z @ gate["gate.weight"] + gate["gate.bias"])[:, None]
    return alpha * shared + (1 - alpha) * private


@checked
def flda(preset: Variant = "original") -> Method:
    """FLDA: each client mixes the shared model with a private one by a private gate.

    Equation:
        ŷ = α(x) G(x) + (1 − α(x)) π_k(x) on logits, α = sigmoid(u_k·h_G(x) + b_k) (`MixedExperts`). On the
        server G is scored, on the client the mixture.

    Source:
        Peterson et al. 2019. Row FLDA of MAP's Tables I and II.

    The preset "authors" is MAP's released code, which counts the cross-entropy of the mixture twice, draws
    the gate's first numbers as torch's linear layers do, clips the shared and the private gradients by one
    norm (`local.clip_norm`; the released code has 100), and takes uniform means.

    Departures of the preset: π_k starts as `fresh` makes it, and its BatchNorm statistics are re-estimated
    for scoring, where the released code keeps running ones.
    """
    authors = preset == "authors"
    return Method("FLDA", personal=MixedExperts(2 if authors else 1, authors, authors), mean=mean_of(preset))
