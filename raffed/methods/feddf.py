"""FedDF (Lin et al. 2020): the server distils the ensemble of local models into their mean, on unlabelled
images.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from typing import Annotated, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from raffed import Method, Params, ServerContext, ServerData, ServerRule, State, Upload
from raffed.config.validation import Doc, Range, Strength, checked
from raffed.core import seeds
from raffed.core.server import mean_of
from raffed.methods.registry import Variant

EVERY_IMAGE = sys.maxsize  # a rule gets no more images than the test set has
LAST_LR, DECAY = 1e-8, 1e-6  # where the cosine ends, and Adam's weight decay: MAP's code
CLIP = 100.0  # the norm at which MAP's code clips the server's gradients, in all of its configurations


class EnsembleDistillation(ServerRule[None]):
    """student ← Σ p_k w_k, then `steps` of Adam on KL(σ(z̄/τ) ‖ σ(z_student/τ)).

    z̄ are the mean logits of the participants. Teachers and student are in evaluation mode, so BatchNorm's
    statistics are the mean ones and stay. The rate falls from `lr` to 1e-8 as a cosine. The public images are
    drawn once a run from the global test set. Their labels are never seen. Every step has a random batch of
    its own. With `every` above 1 only each such round distils, and the others take the mean. `in_turn` is
    MAP's released code: its batches follow one permutation of the images a round, over and over (of 3 images
    in batches of 2: 1st and 2nd, 3rd and 1st, 2nd and 3rd, ...), and its gradients are clipped at norm 100.
    """

    steps: int
    lr: float
    batch: int
    tau: float
    images: int
    every: int = 1
    in_turn: bool = False

    each: ClassVar[bool] = True
    on_device: ClassVar[bool] = True

    def required_data(self) -> ServerData:
        return ServerData(self.images) if self.steps else ServerData()

    def step(self, own: None, w: Params, mean: Params, k: ServerContext) -> tuple[None, Params]:
        if not self.steps or (k.round + 1) % self.every:
            return None, mean
        assert k.net is not None
        assert k.public is not None
        uploads = k.uploads
        with torch.no_grad():
            z = sum(
                (k.net(State(upload.w, upload.b), k.public)[0] for upload in uploads[1:]),
                k.net(_model(uploads[0]), k.public)[0],
            )
        return None, self._distilled(mean, ensemble_target(z / len(uploads), self.tau), k)

    def _distilled(self, mean: Params, target: Tensor, k: ServerContext) -> Params:
        assert k.net is not None
        assert k.public is not None
        live = {name: t.clone().requires_grad_() for name, t in mean.tensors.items()}
        adam = torch.optim.Adam(list(live.values()), lr=self.lr, weight_decay=DECAY, fused=True)
        batches = self._batches(len(k.public), seeds.generator(k.run_seed, "server", k.round))
        for step, index in enumerate(batches):
            adam.param_groups[0]["lr"] = (
                LAST_LR + (self.lr - LAST_LR) * (1 + math.cos(math.pi * step / self.steps)) / 2
            )
            logits, _ = k.net(State(Params(live), k.b), k.public[index])
            loss = F.kl_div((logits / self.tau).log_softmax(-1), target[index], reduction="batchmean")
            for p, g in zip(live.values(), torch.autograd.grad(loss, list(live.values())), strict=True):
                p.grad = g
            if self.in_turn:
                torch.nn.utils.clip_grad_norm_(list(live.values()), CLIP)
            adam.step()
        return Params(live).clone()

    def _batches(self, images: int, draws: torch.Generator) -> Iterator[Tensor]:
        """The images of every step, by their numbers."""
        order = torch.randperm(images, generator=draws) if self.in_turn else None
        for step in range(self.steps):
            if order is None:
                yield torch.randperm(images, generator=draws)[: self.batch]
            else:
                yield order[torch.arange(step * self.batch, (step + 1) * self.batch) % images]


def _model(upload: Upload) -> State:
    return State(upload.w, upload.b)


def ensemble_target(logits: Tensor, tau: float) -> Tensor:
    """σ(z̄/τ) of the ensemble's mean logits [n, C]: logits are averaged, not probabilities."""
    return (logits / tau).softmax(-1)


@checked
def feddf(
    server_steps: Annotated[int, Range(0), Doc("Steps of the distillation a round; 0 is FedAvg.")] = 300,
    server_lr: Annotated[
        float, Range(0.0, 10.0, open_low=True), Strength(), Doc("Learning rate of the server's Adam.")
    ] = 1e-3,
    batch_size: Annotated[int, Range(1), Doc("Images of each step.")] = 64,
    tau: Annotated[float, Range(0.0, 100.0, open_low=True), Doc("τ, temperature of both softmaxes.")] = 1.0,
    public: Annotated[int, Range(1), Doc("Unlabelled images, drawn once from the test set.")] = 500,
    preset: Variant = "original",
) -> Method:
    """FedDF as in MAP's comparison: the server distils the clients' ensemble into their mean.

    Equation:
        `server_steps` of Adam on KL(σ(z̄/τ) ‖ σ(z_student/τ)) (`EnsembleDistillation`). The score on the test
        set includes the public images; accuracy_clean does not.

    Source:
        Lin et al. 2020. MAP's code tries (rate, steps) = (1e-2, 200), (1e-3, 300) and (1e-4, 500). The
        original takes up to 10,000 steps of batch 128 with early stopping. Row FedDF of MAP's Tables I and
        II. Adam's weight decay 1e-6, which the equation leaves out, is that of MAP's code.

    The preset "authors" is MAP's released code, which distils on the whole test set (`public` does not count)
    in every second round, in batches that follow one permutation a round, clips the server's gradients at
    norm 100 and takes uniform means.

    Departure of the preset: the released code distils in training mode, where BatchNorm normalises by the
    batch and its statistics move. Here the student is in evaluation mode and the statistics stay the mean
    ones.
    """
    theirs = preset == "authors"
    images, every = (EVERY_IMAGE, 2) if theirs else (public, 1)
    rule = EnsembleDistillation(server_steps, server_lr, batch_size, tau, images, every, theirs)
    return Method("FedDF", server=rule, mean=mean_of(preset))
