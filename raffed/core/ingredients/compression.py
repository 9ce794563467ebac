"""Compression of what a client uploads: the arithmetic, and the ingredient that keeps what was left out.

What a client sends is the downloaded weights, moved by the compressed update. So the server adds up whole
points, as without compression, and only the count of bytes knows that fewer were sent. A client whose method
sends an update sends the compressed update.
"""

from __future__ import annotations

import torch
from torch import Tensor

from raffed.config.aggregation import CompressionRule, Quantize, TopK
from raffed.core import seeds
from raffed.core.context import Context
from raffed.core.ingredients.base import Ingredient
from raffed.core.messages import Private, Upload
from raffed.core.params import Params


class LeftOut(Private):
    """What a client's compressed uploads have left out so far, and what its next one gets.

    Attributes:
        w: The sum of what was left out. It is empty before the client's first upload.
    """

    w: Params


class Compression(Ingredient[LeftOut]):
    """Compresses the weights of an upload, after all other ingredients have changed them.

    It never changes what a client trains, nor the messages of other ingredients. These are sent whole.

    Attributes:
        rule: The compression.
    """

    rule: CompressionRule

    def compress(self, w: Params, start: Params, k: Context[LeftOut]) -> tuple[Params, LeftOut | None]:
        """Return the weights that are sent, and what the client keeps.

        Args:
            w: The weights that the client would send without compression.
            start: What the client would send if it had not moved (`Method.unmoved`).
            k: What the client knows, with this ingredient's memory in `k.mine`.
        """
        stream = seeds.generator(k.run_seed, "compression", k.round, k.client)
        return compressed(self.rule, w, start, stream), None

    def nbytes(self, upload: Upload) -> int:
        """Return the number of bytes of an upload, of which only the weights are compressed."""
        sizes = [tensor.numel() for tensor in upload.w.tensors.values()]
        return upload.nbytes() - 4 * upload.w.numel() + self.rule.nbytes(sizes)


class CompressionWithFeedback(Compression):
    """The same, with error feedback: what was left out is added to the client's next update."""

    def client_init(self, k: Context) -> LeftOut:
        return LeftOut(Params({}))

    def compress(self, w: Params, start: Params, k: Context[LeftOut]) -> tuple[Params, LeftOut | None]:
        """Return the weights that are sent, and the part of the update that they leave out."""
        left = k.mine.w
        wanted = w + left if len(left) else w
        sent, _ = super().compress(wanted, start, k)
        return sent, LeftOut((wanted - sent).clone())


def compressed(rule: CompressionRule, w: Params, start: Params, generator: torch.Generator) -> Params:
    """Return the weights that a client sends.

    Args:
        rule: The compression.
        w: The weights that the client would send without it.
        start: The weights that the client received, with the same names, or 0 if it sends an update.
        generator: The client's own random stream of this round. Numbers are drawn on the CPU.

    Returns:
        `w` itself if the rule changes nothing, or if `w` is not finite, so that the server's check finds it.
    """
    if rule.changes_nothing or not bool(torch.isfinite(w.flat).all()):
        return w
    if isinstance(rule, TopK):
        return _largest(rule, w, start)
    return _rounded(rule, w, start, generator)


def _largest(rule: TopK, w: Params, start: Params) -> Params:
    sizes = (w.flat.to(torch.float64) - start.flat.to(torch.float64)).abs()
    kept = rule.kept(w.numel())
    smallest = sizes.topk(kept, sorted=True).values[-1]
    sure, equal = sizes > smallest, sizes == smallest
    # Of equal numbers the first, so that it does not matter in which order a device finds them
    chosen = sure | (equal & (equal.cumsum(0) <= kept - sure.sum()))
    return Params.from_flat(w.layout, torch.where(chosen, w.flat, start.flat))


def _rounded(rule: Quantize, w: Params, start: Params, generator: torch.Generator) -> Params:
    def moved(trained: Tensor, received: Tensor) -> Tensor:
        begun = received.to(torch.float64)
        update = trained.to(torch.float64) - begun
        step = update.abs().max() / rule.levels if update.numel() else update.sum()
        chance = torch.rand(update.shape, generator=generator, dtype=torch.float64).to(update.device)
        steps = (update / torch.where(step > 0, step, 1.0) + chance).floor()
        steps = steps.clamp(-rule.levels, rule.levels)
        return (begun + steps * step).to(trained.dtype)

    received = start.tensors
    return Params({name: moved(tensor, received[name]) for name, tensor in w.tensors.items()}).clone()
