"""A loss of the user's own that stands in the place of the cross-entropy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Criterion:
    """A loss by which clients learn instead of the cross-entropy.

    Attributes:
        function: Function from (logits [B, C], labels [B]) to a loss for each sample [B], or to their mean
            []. It is a dense function of tensors, so that it can also be called under vmap.
        name: What messages call it.
        counted: Whether the function also takes `class_counts`, the client's training samples of each class.
    """

    function: Callable[..., Tensor]
    name: str
    counted: bool = False

    def __call__(self, logits: Tensor, y: Tensor, class_counts: Tensor) -> Tensor:
        """Return the mean loss of a batch, a tensor without dimensions.

        Args:
            logits: Logits [B, C].
            y: Labels [B], int64.
            class_counts: The client's training samples of each class [C], int64.
        """
        counts = {"class_counts": class_counts} if self.counted else {}
        value = self.function(logits, y, **counts)
        return value.mean() if value.dim() else value
