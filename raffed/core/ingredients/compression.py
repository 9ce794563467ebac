"""The ingredient that compresses what a client uploads, and keeps what was left out."""

from __future__ import annotations

from raffed.config.compression import CompressionRule
from raffed.core import seeds
from raffed.core.aggregation.compression import compressed
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
