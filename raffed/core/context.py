"""What an ingredient can know: a client's round, a forward pass, and the server's side of a round.

Ingredients see these records and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any, Generic

import numpy as np
from numpy.typing import NDArray
from torch import Tensor
from typing_extensions import TypeVar

from raffed.core import seeds
from raffed.core.losses import Criterion, cross_entropy
from raffed.core.messages import Upload, Wire
from raffed.core.params import Params, Record, State

NOTHING = Params({})
LogitsLoss = Callable[[Tensor, Tensor], Tensor]  # of logits [B, C] and labels [B]

Mine = TypeVar("Mine", covariant=True, default=Any)
FromServer = TypeVar("FromServer", covariant=True, default=Any)
Sent = TypeVar("Sent", bound=Wire | None, covariant=True, default=Any)


@dataclass(frozen=True, slots=True)
class Forward:
    """One forward pass on a batch of B samples, as a term of the loss sees it.

    Attributes:
        x: Inputs [B, ...].
        y: Labels [B], int64.
        z: Features [B, D], the input of the head.
        logits: Logits [B, C] over all C classes.
        w: The parameters that are being trained, with gradient history.
        own: The live parameters of the companion (`Personal.companion`). Empty if there is no companion.
        through: Function from parameters to (logits, z) of the same batch under these parameters, with
            gradient. It runs in the same mode and with the same dropout. It changes neither BatchNorm's
            statistics nor a random stream.
    """

    x: Tensor
    y: Tensor
    z: Tensor
    logits: Tensor
    w: Params
    own: Params = NOTHING
    through: Callable[[Params], tuple[Tensor, Tensor]] | None = None


@dataclass(frozen=True, slots=True)
class ClientData:
    """A client's training samples, on the device on which the client trains.

    Attributes:
        x: Prepared inputs [n, ...].
        y: Labels [n], int64.
        class_counts: Number of samples of each class [C], int64.
        held_out: Inputs and labels of the client's part of `data.validation`, on which it does not train.
            None if it has none, or if the method does not need it (`Ingredient.needs_held_out`).
    """

    x: Tensor
    y: Tensor
    class_counts: Tensor
    held_out: tuple[Tensor, Tensor] | None = None

    @property
    def n(self) -> int:
        return self.y.shape[0]


@dataclass(frozen=True)
class Context(Generic[Mine, FromServer]):
    """What one client knows in one round, as one of its ingredients sees it.

    An ingredient gets its own memory and its own message from the server, and nobody else's. The types
    of both are the type parameters, which may be left out.

    Attributes:
        spec: Sizes of the model and of the federation.
        run_seed: Seed of the run.
        round: Number of the round, counted from 0.
        client: Number of the client, counted from 0. In a step of stacked clients, numbers that differ
            between them (`client`, `steps`, `lr_sum`, `lr`) are tensors without dimensions.
        class_counts: The client's training samples of each class [C], int64.
        initial: The run's initial model, which every client can derive from the seed.
        start: The model as downloaded, joined with the client's own layers, and after the method's opening.
        state: The model after shared training. Before that it equals `start`.
        net: Function from (model, inputs [B, ...]) to (logits [B, C], features [B, D]), without gradient.
        features: Function from a model to batches (z [B, D], y [B]) of the client's training samples.
        held_out: The same function for the client's part of `data.validation`; for its training samples if it
            has no such part.
        reestimate: Function from a model to the same model with BatchNorm statistics of the client's data.
        mine: The memory of this ingredient on this client.
        server: The message of this ingredient from the server.
        gradients: Function from a model and a loss of (logits [B, C], labels [B]) to the loss's gradients on
            the client's training samples, one for each batch, in evaluation mode. For `finish` only.
        private: The model after private training, or None if there was none.
        own: The companion after shared training.
        carried: What the method's local solver ended with, or, for an opening, what it ended with itself.
        steps: Number of steps of shared training.
        usual_steps: Number of such steps of a client with the mean number of samples.
        lr_sum: Sum of the learning rates over these steps, as they were used.
        momentum: Momentum of the first pass; 0 if its optimiser is not SGD.
        nesterov: Whether this momentum is Nesterov's.
        weight_decay: Weight decay of the first pass.
        lr: Learning rate of the round's first step. In a step of a local solver it is the rate of that step.
        warmth: Fraction of the learning rate that the warm-up leaves in this round (`Local.warmth`).
        warm_lr: The run's learning rate in this round with its warm-up and without its schedule.
        label_smoothing: ε of the cross-entropy in training, in [0, 1].
        drawn: Random numbers of this term for this step (`Term.draw`).
        noted: Sum over the steps of what this term noted (`Term.note`), or None if it notes nothing.
        criterion: The run's own loss in the place of the cross-entropy, or None.
    """

    spec: Spec
    run_seed: int
    round: int
    client: int
    class_counts: Tensor
    initial: State
    start: State
    state: State
    net: Callable[[State, Tensor], tuple[Tensor, Tensor]]
    features: Callable[[State], Iterator[tuple[Tensor, Tensor]]]
    reestimate: Callable[[State], State]
    mine: Mine
    server: FromServer
    gradients: Callable[[State, LogitsLoss], Iterator[Params]] | None = None
    held_out: Callable[[State], Iterator[tuple[Tensor, Tensor]]] | None = None
    private: State | None = None
    own: Params = NOTHING
    carried: Record | None = None
    steps: int = 0
    usual_steps: int = 0
    lr_sum: float = 0.0
    momentum: float = 0.0
    nesterov: bool = False
    weight_decay: float = 0.0
    lr: float = 0.0
    warmth: float = 1.0
    warm_lr: float = 0.0
    label_smoothing: float = 0.0
    drawn: Tensor | None = None
    noted: Tensor | None = None
    criterion: Criterion | None = None

    @property
    def w0(self) -> Params:
        return self.start.w

    @property
    def w(self) -> Params:
        return self.state.w

    @property
    def lr_fraction(self) -> float:
        """`lr` as a fraction of the run's learning rate: warm-up and schedule together."""
        return self.warmth * (self.lr / self.warm_lr) if self.warm_lr else self.warmth

    def ce(self, f: Forward) -> Tensor:
        """Return the cross-entropy over all C classes, as the mean over the batch, with the run's smoothing.

        A run with a loss of its own (`--loss`) has that loss here.
        """
        return self.loss_of(f.logits, f.y)

    def loss_of(self, logits: Tensor, y: Tensor, smooth: bool = True) -> Tensor:
        """Return the mean loss of any logits: the cross-entropy, or the run's own loss.

        Args:
            logits: Logits [B, C].
            y: Labels [B], int64.
            smooth: Whether the run's label smoothing applies.
        """
        if self.criterion is None:
            return cross_entropy(logits, y, self.label_smoothing if smooth else 0.0)
        return self.criterion(logits, y, self.class_counts)

    def chosen(self, share: float, purpose: seeds.Purpose) -> bool:
        """Return whether this client is one of a fixed random set of clients, drawn once per run.

        Args:
            share: Fraction of clients in the set, in [0, 1]. The set has round(share · N) of the N clients
                that may train.
            purpose: Which random stream draws the set.
        """
        if not isinstance(self.client, int):  # in an objective of stacked clients
            raise TypeError(
                "k.chosen belongs into client_init() or finish(), not into an objective: keep its answer in "
                "the client's memory, as a tensor"
            )
        count = round(share * self.spec.num_clients)
        order: NDArray[np.int64] = seeds.rng(self.run_seed, purpose).permutation(self.spec.num_clients)
        if self.client in self.spec.unseen:
            return False
        place = self.client - sum(client < self.client for client in self.spec.unseen)
        return bool(place in order[:count])

    def replace(self, **changes: Any) -> Context:
        """Return a copy with some fields replaced.

        It is called several times in each client's round, so for speed it does not go through `__init__`.

        Raises:
            TypeError: A name in `changes` is not a field.
        """
        if not changes.keys() <= _FIELDS:
            raise TypeError(f"Context has no field {', '.join(sorted(changes.keys() - _FIELDS))}")
        context = object.__new__(Context)
        context.__dict__.update(self.__dict__, **changes)
        return context


_FIELDS = {field.name for field in fields(Context)}


@dataclass(frozen=True, slots=True)
class ServerContext:
    """What the server knows when it makes the model w^{t+1} at the end of a round.

    Attributes:
        spec: Sizes of the model and of the federation.
        round: Number of the round, counted from 0.
        count: Number of participants whose uploads count.
        samples: Their training samples, all together.
        received: Slot → what the participants sent for the ingredient in that slot.
        run_seed: Seed of the run.
        b: Mean of the uploaded BatchNorm statistics.
        sent_b: BatchNorm statistics that were broadcast.
        net: Function from (model, inputs [B, ...]) to (logits [B, C], features [B, D]), in evaluation mode
            and with gradient.
        public: Prepared images [n, ...] without labels, if the server's rule asked for them
            (`ServerRule.required_data`).
        labelled: Prepared images [m, ...] and their labels [m] int64, if the rule asked for them.
    """

    spec: Spec
    round: int
    count: int
    samples: int
    received: Mapping[str, Received]
    run_seed: int = 0
    b: Params = NOTHING
    net: Callable[[State, Tensor], tuple[Tensor, Tensor]] | None = None
    public: Tensor | None = None
    labelled: tuple[Tensor, Tensor] | None = None
    sent_b: Params = NOTHING

    @property
    def uploads(self) -> list[Upload]:
        """All uploads in client order, if the server's rule needs them (`ServerRule.each`)."""
        return [upload for upload in self.received["server"].each if isinstance(upload, Upload)]


@dataclass(frozen=True)
class Spec:
    """What an ingredient may know about the model and the federation.

    Attributes:
        num_classes: Number of classes C.
        feature_dim: Length D of a feature vector.
        num_clients: Number of clients N that may train.
        expected_visits: How often a client is expected to take part in the whole run: int(Q·T), at least 1.
        rounds: Number of rounds T of the whole run.
        samples: Training samples of these clients together.
        rounds_per_cycle: Number of rounds in which every stage is visited once: the number of stages if these
            take turns, otherwise 1.
        unseen: Clients that never train and are only scored.
        norms: Names of the parameters of BatchNorm layers, found by their type when the network was built.
        run_seed: Seed of the run.
    """

    num_classes: int
    feature_dim: int
    num_clients: int
    expected_visits: int  # max(int(Q·T), 1)
    rounds: int = 1  # T
    samples: int = 1  # of all clients together
    rounds_per_cycle: int = 1  # the number of stages if these take turns, otherwise 1
    unseen: tuple[int, ...] = ()
    norms: tuple[str, ...] = ()
    run_seed: int = 0

    @property
    def everyone(self) -> int:
        """Number of all clients, also of those that never train. Their numbers are below it."""
        return self.num_clients + len(self.unseen)


class Received(Record, Generic[Sent]):
    """What the server received for one ingredient in one round.

    Attributes:
        count: Number of clients that sent a message.
        sum: The sum of the messages, if they are `Summable`.
        each: The messages in client order, if they are not.
        clients: Numbers of the clients that sent the messages in `each`.
        columns: In the slot "server", if clients have shares a_kc of columns (`Ingredient.shares`): the means
            Σ p_k a_kc w_k / Σ p_k a_kc. None for a column of which nobody has a share.
        totals: Σ p_k a_kc of each column [K], float64, as parts of their sum.
    """

    count: int
    sum: Sent | None = None
    each: tuple[Sent, ...] = ()
    clients: tuple[int, ...] = ()
    columns: tuple[State | None, ...] = ()
    totals: Tensor | None = None
