"""Count a model's right answers, and score a client's models on its own samples."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from raffed.core.measures.own_metric import OwnMetric
from raffed.core.measures.scores import ClientScores, ExtraMeasure, ScoreCounts
from raffed.core.method import Method
from raffed.core.params import State
from raffed.core.round import EVAL_CHUNK, ClientModels, ClientRound
from raffed.core.training.network import Network

# Counting correct answers as integers per class, so that parts of a test set add up exactly.


def evaluate(
    net: Network,
    state: State,
    x: Tensor,
    y: Tensor,
    num_classes: int,
    chunk: int,
    observed: Tensor | None = None,
) -> ScoreCounts:
    """Score a model in evaluation mode, by the largest of its logits over all C classes.

    Args:
        net: The network. It is not changed.
        state: The model.
        x: Prepared inputs [n, ...].
        y: Labels [n], int64.
        num_classes: Number of classes C.
        chunk: Samples per forward pass.
        observed: Classes for the second count [C] bool, see `count`.
    """
    return count(
        ((logits, labels) for logits, _, labels in net.chunks(state, x, y, chunk)), y, num_classes, observed
    )


def count(
    batches: Iterable[tuple[Tensor, Tensor]], y: Tensor, num_classes: int, observed: Tensor | None = None
) -> ScoreCounts:
    """Score any predictor.

    Args:
        batches: (logits [B, C], labels [B]) batch by batch.
        y: All labels together [n].
        num_classes: Number of classes C.
        observed: The classes [C] bool among which the second count (`ScoreCounts.observed`) chooses, or None
            for all.
    """
    correct = torch.zeros(num_classes, dtype=torch.int64)
    predicted = torch.zeros(num_classes, dtype=torch.int64)
    total = torch.bincount(y.cpu(), minlength=num_classes)
    loss, among = 0.0, 0
    for logits, labels in batches:
        answers = logits.argmax(-1)
        hits = labels[answers == labels]
        correct += torch.bincount(hits.cpu(), minlength=num_classes)
        predicted += torch.bincount(answers.cpu(), minlength=num_classes)
        if observed is not None:
            among += int((logits.masked_fill(~observed, float("-inf")).argmax(-1) == labels).sum())
        loss += float(F.cross_entropy(logits, labels, reduction="sum"))
    right, all_of, answered = (tuple(each.tolist()) for each in (correct, total, predicted))
    return ScoreCounts(right, all_of, answered, loss, sum(right) if observed is None else among)


class ModelScorer:
    """Counts the correct answers of a method's models.

    In all methods of this class, `observed` [C] bool marks the classes of the client's training data.
    """

    def __init__(self, method: Method, net: Network, num_classes: int) -> None:
        self._method, self._net, self._classes = method, net, num_classes
        # The scores come from `predict` instead of one model
        self._answers = method.personal is not None and method.personal.predicts

    def of(self, state: State, x: Tensor, y: Tensor, observed: Tensor | None = None) -> ScoreCounts:
        """Score one model on samples x [n, ...] and y [n]."""
        return evaluate(self._net, state, x, y, self._classes, EVAL_CHUNK, observed)

    def personal(self, held: ClientModels, x: Tensor, y: Tensor, observed: Tensor) -> ScoreCounts:
        """Score the client's personalised model."""
        return count(self._personal_answers(held, x, y), y, self._classes, observed)

    def own(
        self, metrics: Iterable[OwnMetric], held: ClientModels, x: Tensor, y: Tensor
    ) -> dict[str, ExtraMeasure]:
        """Return the values of the user's own metrics of the client's personalised model."""
        found = list(self._personal_answers(held, x, y))
        scores, labels = torch.cat([one.cpu() for one, _ in found]), y.cpu()
        return {one.name: ExtraMeasure(one.measure(scores, labels), len(labels)) for one in metrics}

    def _personal_answers(self, held: ClientModels, x: Tensor, y: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield the logits of the client's personalised model and the labels, chunk by chunk."""
        personal = self._method.personal
        if personal is None or not self._answers:
            state = held.personal_state(self._method)
            return ((logits, labels) for logits, _, labels in self._net.chunks(state, x, y, EVAL_CHUNK))
        parts = zip(torch.split(x, EVAL_CHUNK), torch.split(y, EVAL_CHUNK), strict=True)
        return ((held.personal_logits(personal, part), labels) for part, labels in parts)

    def after(
        self, done: ClientRound, x: Tensor, y: Tensor, observed: Tensor, lengths: Sequence[int]
    ) -> ClientScores:
        """Score a client's models after a round.

        Args:
            done: The client's round.
            x: Samples [n, ...].
            y: Labels [n].
            observed: Classes of the client's training data [C] bool.
            lengths: How many of the samples belong to each stage so far. Empty without stages.

        Returns:
            The scores of the downloaded, the trained, the personalised and perhaps the privately trained
            model, and the personalised model's scores on each stage's samples.
        """
        scores = {
            "global": self.of(done.start, x, y, observed),
            "local": self.of(done.trained, x, y, observed),
        }
        if self._method.personal is not None and self._method.personal.private_scored:
            trained = done.views["personal"].private
            assert trained is not None
            scores["private"] = self.of(trained, x, y, observed)
        if lengths:
            parts = zip(torch.split(x, list(lengths)), torch.split(y, list(lengths)), strict=True)
            by_stage = tuple(self.personal(done, *part, observed) for part in parts)
            whole = by_stage[0]
            for one in by_stage[1:]:
                whole = whole + one
            return ClientScores({**scores, "personal": whole}, stages=by_stage)
        same = self._method.personal is None
        own = scores["local"] if same else self.personal(done, x, y, observed)
        return ClientScores({**scores, "personal": own})

    def survey(
        self, held: ClientModels, whole: State | None, x: Tensor, y: Tensor, observed: Tensor
    ) -> ClientScores:
        """Score a client between rounds: the server's model, if it has all layers, and the client's own."""
        own = self.personal(held, x, y, observed)
        if whole is None:
            return ClientScores({"personal": own})
        same = not self._answers and same_bits(held.personal_state(self._method), whole)
        return ClientScores({"global": own if same else self.of(whole, x, y, observed), "personal": own})


def same_bits(a: State, b: State) -> bool:
    """Return whether two models have exactly equal weights and buffers."""
    return torch.equal(a.w.flat, b.w.flat) and torch.equal(a.b.flat, b.b.flat)
