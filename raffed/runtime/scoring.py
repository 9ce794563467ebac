"""Count a model's right answers, and score a client's models on its own samples."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from raffed.core import seeds
from raffed.core.ingredients import Personal
from raffed.core.measures.scores import NO_SCORES, ClientScores, ExtraMeasure, ScoreCounts, by_batch
from raffed.core.own_functions import OwnMetric
from raffed.core.params import State
from raffed.core.round import EVAL_CHUNK, ClientModels, ClientRound
from raffed.core.training.network import Network
from raffed.core.training.session import Participant
from raffed.runtime.federated_data import ClientDataCache, FederatedData
from raffed.runtime.setup_model import features_of

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
    """Counts the correct answers of a method's models. `personal` is the method's personal ingredient.

    In all methods of this class, `observed` [C] bool marks the classes of the client's training data.
    """

    def __init__(self, personal: Personal | None, net: Network, num_classes: int) -> None:
        self._personal, self._net, self._classes = personal, net, num_classes
        # The scores come from `predict` instead of one model
        self._answers = personal is not None and personal.predicts

    def features(self, state: State, x: Tensor, y: Tensor) -> Tensor:
        """Return features z [n, D] of samples x [n, ...] in evaluation mode, on the CPU."""
        return features_of(self._net, state, x, y)

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
        answers = list(self._personal_answers(held, x, y))
        scores, labels = torch.cat([answer.cpu() for answer, _ in answers]), y.cpu()
        return {metric.name: ExtraMeasure(metric.measure(scores, labels), len(labels)) for metric in metrics}

    def _personal_answers(self, held: ClientModels, x: Tensor, y: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield the logits of the client's personalised model and the labels, chunk by chunk."""
        personal = self._personal
        if personal is None or not self._answers:
            state = held.trained if personal is None else personal.model(held.views["personal"])
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
        if self._personal is not None and self._personal.private_scored:
            trained = done.views["personal"].private
            assert trained is not None
            scores["private"] = self.of(trained, x, y, observed)
        if lengths:
            parts = zip(torch.split(x, list(lengths)), torch.split(y, list(lengths)), strict=True)
            by_stage = tuple(self.personal(done, *part, observed) for part in parts)
            whole = by_stage[0]
            for stage in by_stage[1:]:
                whole = whole + stage
            return ClientScores({**scores, "personal": whole}, stages=by_stage)
        same = self._personal is None
        score = scores["local"] if same else self.personal(done, x, y, observed)
        return ClientScores({**scores, "personal": score})

    def survey(
        self, held: ClientModels, whole: State | None, x: Tensor, y: Tensor, observed: Tensor
    ) -> ClientScores:
        """Score a client between rounds: the server's model, if it has all layers, and the client's own."""
        score = self.personal(held, x, y, observed)
        if whole is None:
            return ClientScores({"personal": score})
        same = False
        if not self._answers:
            personal = self._personal
            state = held.trained if personal is None else personal.model(held.views["personal"])
            same = same_bits(state, whole)
        return ClientScores({"global": score if same else self.of(whole, x, y, observed), "personal": score})


def same_bits(a: State, b: State) -> bool:
    """Return whether two models have exactly equal weights and buffers."""
    return torch.equal(a.w.flat, b.w.flat) and torch.equal(a.b.flat, b.b.flat)


class RoundScorer:
    """Scores the models of participants after their rounds, on their own samples.

    Args:
        scorer: Counts correct answers.
        cache: The clients' data.
        data: The clients and their samples.
    """

    def __init__(self, scorer: ModelScorer, cache: ClientDataCache, data: FederatedData) -> None:
        self._scorer, self._cache, self._data = scorer, cache, data

    def of(self, round: int, participant: Participant, done: ClientRound) -> ClientScores:
        """Return the scores of a client's models after its round.

        In the last round, additional measurements are made as well.
        """
        federation, partition, cache = self._data.federation, self._data.partition, self._cache
        client, observed = participant.client, participant.data.class_counts > 0
        scores = NO_SCORES
        if len(partition.test[client]):
            x, y = cache.local_part("test", client)
            lengths = partition.test_lengths(client, cache.stage)
            scores = self._scorer.after(done, x, y, observed, lengths)
        if round + 1 == federation.rounds and federation.asks("spectrum"):
            scores = scores._replace(extra={"eigenvalue_variance": self._spectrum(participant, done)})
        if partition.val and len(partition.val[client]):
            held = self._scorer.personal(done, *cache.local_part("val", client), observed)
            scores = scores._replace(validation=held)
        return scores._replace(own=self._own(participant, done)) if self._data.own_metrics else scores

    def _own(self, participant: Participant, done: ClientRound) -> dict[tuple[str, str], ExtraMeasure]:
        """Measure the client's personalised model by the run's own metrics, on its own parts."""
        partition, client = self._data.partition, participant.client
        parts = {"local_test": ("test", partition.test), "val": ("val", partition.val)}
        return {
            (split, name): value
            for split, (part, lists) in parts.items()
            if lists and len(lists[client])
            for name, value in self._scorer.own(
                self._data.own_metrics, done, *self._cache.local_part(part, client)
            ).items()
        }

    def _spectrum(self, participant: Participant, done: ClientRound) -> ExtraMeasure:
        """Measure the feature spectrum of the trained model on the client's training data."""
        data = participant.data
        order = seeds.rng(self._data.seed, "spectrum", client=participant.client).permutation(data.n)
        z = self._scorer.features(done.trained, data.x, data.y)
        return by_batch(z, torch.from_numpy(order))
