"""What a client knows during a round, and one forward pass. Ingredients see these two and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from torch import Tensor

from raffed.core import seeds
from raffed.core.losses import cross_entropy
from raffed.core.messages import Summable, Wire
from raffed.core.params import Params, State
from raffed.core.record import Record

NOTHING = Params({})


@dataclass(frozen=True, slots=True)
class Forward:
    """A forward pass on a batch: inputs x, labels y [B], features z [B, D] (input of the head), logits [B,
    C]; `w` live.

        `own`: the companion's live parameters. `through(w)`: (logits, z) of the same batch under other
        weights, with gradient, in the same mode and with the same dropout; it leaves no trace in BatchNorm's
        statistics nor in a random stream.
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
    """A client's training part on its device: x [n, ...] prepared, y [n] int64, class_counts [C] int64."""

    x: Tensor
    y: Tensor
    class_counts: Tensor

    @property
    def n(self) -> int:
        return self.y.shape[0]


@dataclass(frozen=True)
class Context:
    """What client `client` knows in round `round`.

    `initial`: the run's initial model, which every client can derive; `start`: the model as downloaded and
    joined with the client's own layers; `state`: the same after training; `private`: the result of private
    training; `own`: the companion after shared training; `carried`: what the method's local solver ended
    with; `mine`, `server`: this ingredient's own memory and the server's message to it, nobody else's;
    `lr_sum` = Σ_j η_j over the shared steps as used, `steps` their number, `usual_steps` that of a client
    with the mean number of samples; `momentum` and `weight_decay`: those of the first pass; `warmth`: the
    share of its rate that this round has (Local.warmth); `drawn`: this term's random numbers for this step;
    `noted`: after training, the sum over the steps of what this term noted, None where it notes nothing.
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
    mine: Any = None
    server: Any = None
    private: State | None = None
    own: Params = NOTHING
    carried: Any = None
    steps: int = 0
    usual_steps: int = 0
    lr_sum: float = 0.0
    momentum: float = 0.0
    weight_decay: float = 0.0
    warmth: float = 1.0
    drawn: Tensor | None = None
    noted: Tensor | None = None

    @property
    def w0(self) -> Params:
        return self.start.w

    @property
    def w(self) -> Params:
        return self.state.w

    def ce(self, f: Forward) -> Tensor:
        """Plain cross-entropy over all C classes, mean over the batch."""
        return cross_entropy(f.logits, f.y)

    def chosen(self, share: float, purpose: seeds.Purpose) -> bool:
        """Whether this client is among the fixed random round(share · N) clients of a purpose, drawn once
        per run.
        """
        count = round(share * self.spec.num_clients)
        order: np.ndarray[Any, np.dtype[np.int64]] = seeds.rng(self.run_seed, purpose).permutation(
            self.spec.num_clients
        )
        return bool(self.client in order[:count])

    def replace(self, **changes: Any) -> Context:
        """A copy with some fields replaced, several times a client's round: so not by __init__, field by
        field.
        """
        if not changes.keys() <= _FIELDS:
            raise TypeError(f"Context has no field {', '.join(sorted(changes.keys() - _FIELDS))}")
        made = object.__new__(Context)
        made.__dict__.update(self.__dict__, **changes)
        return made


_FIELDS = {field.name for field in fields(Context)}


@dataclass(frozen=True, slots=True)
class ServerContext:
    """What the server knows when it makes w^{t+1} of round `round`: `count` participants, their `samples`
    (training samples together), and what each slot `received`.

    b: the mean of BatchNorm's statistics; `net(state, x)`: (logits, z) in evaluation mode with gradient;
    public [n, ...], labelled (x [m, ...], y [m] int64): prepared images that the server's rule asked for
    (ServerRule.required_data).
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


@dataclass(frozen=True)
class Spec:
    """What an ingredient may know of the model and the federation."""

    num_classes: int
    feature_dim: int
    num_clients: int
    expected_visits: int  # max(int(Q·T), 1): how often a client is expected to take part in the whole run
    rounds: int = 1  # T, the rounds of the whole run
    samples: int = 1  # training samples of all clients together
    turn: int = 1  # rounds that visit every stage once: M where stages take turns, else 1


class Received(Record):
    """What the server got for one ingredient in one round: a sum of Summable Wires, or each Wire in
    client order.
    """

    count: int
    sum: Summable | None = None
    each: tuple[Wire, ...] = ()
