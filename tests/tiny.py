"""A whole federation that fits on a page, from raffed.testing, and what only raffed's own tests need."""

from __future__ import annotations

import copy
import functools
import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.utils import _pytree as pytree

from raffed import Data, Federation, Local, Model, RunConfig, Runtime
from raffed.core.context import ClientData, Context, Forward, ServerContext, Spec
from raffed.core.method import Method
from raffed.core.params import Params, State
from raffed.core.parts import Part, Pass
from raffed.core.training.network import Network
from raffed.core.training.objective import shared_task, term_streams
from raffed.core.training.phases import Visit, train_private
from raffed.core.training.session import ClientClock, Participant
from raffed.core.training.sgd import SgdPhase
from raffed.core.training.task import (
    Augmentation,
    ClientTask,
    OptimizerState,
    Solver,
    Trained,
    TrainingPhase,
    Views,
    draws_of,
    with_draws,
)
from raffed.methods import METHODS, build_method
from raffed.methods.common import Companion
from raffed.testing.federation import (  # noqa: F401  tests take them from here
    CLASSES,
    FEATURES,
    OWNED,
    PLAIN,
    SIZES,
    WIDTH,
    TinyFederation,
    client_data,
    clients,
    leaves,
    module,
    network,
    same_bits,
)
from tests.params import one_in

Kind = TypeVar("Kind")
EVERYBODY = (0, 1, 2, 3)
# Lengths of what a method repeats by the hundred on the server, of FedALA's first opening, and of GLDP's
# two passes; and by what FedFomo judges, because these runs hold nothing out
SHORT: dict[str, dict[str, Any]] = {
    "creff": {"match_steps": 3, "retrain_epochs": 3},
    "feddf": {"server_steps": 3, "public": 20},
    "fedic": {"copy_steps": 3, "gate_steps": 3, "distil_steps": 3, "public": 20},
    "fedala": {"first_epochs": 3.0},
    "fedfomo": {"judge": "train"},
    "fedtgp": {"server_epochs": 3},
    "gldp": {"body_epochs": 1.0, "head_epochs": 2.0},
}
over_methods = pytest.mark.parametrize("name", one_in(3, METHODS))
# No memory, the client's and the server's, own layers, a second model, a teacher, statistics of the features,
# and the server's own training: for laws of the trainer, which does not know one method from another
OF_EACH_KIND = ("fedavg", "scamap", "fedrep", "ditto", "fedphp", "ccvr", "feddf", "gldp", "fedmr")
NOISY = Augmentation(  # one number an image, added to all of it
    lambda batch, g: torch.randn(batch, generator=g),
    lambda x, drawn: x + 0.1 * drawn.to(x.device).view(-1, *(1,) * (x.dim() - 1)),
)


def short(name: str, args: Mapping[str, Any] | None = None) -> Method:
    """The method, with few repetitions where a test says nothing of their number."""
    return build_method(name, {**SHORT.get(name, {}), **(args or {})})


class Tiny(TinyFederation):
    """The federation, and the contexts that its ingredients saw."""

    def context(self, client: int, slot: str, **changes: Any) -> Context:
        """The context of one ingredient as it was after the last round's training."""
        return self.last[client].views[slot].replace(**changes)


def experienced(
    name: str,
    args: Mapping[str, Any] | None = None,
    *,
    norm: bool = False,
    rounds: int = 2,
    chosen: Sequence[int] | None = (0, 1, 2, 3),
) -> Tiny:
    """A federation of `short(name, args)` after some rounds of the clients `chosen`, or of those drawn.

    The rounds are computed once a process. Each call returns a federation of its own, with which a test can
    go on; a test that changes tensors in place needs one that it made itself.
    """
    who = None if chosen is None else tuple(chosen)
    return _copied(_experienced(name, json.dumps(args or {}, sort_keys=True), norm, rounds, who))


def _copied(tiny: Tiny) -> Tiny:
    made = copy.copy(tiny)
    made.client_states, made.last = dict(tiny.client_states), dict(tiny.last)
    return made


@functools.cache
def _experienced(name: str, args: str, norm: bool, rounds: int, chosen: tuple[int, ...] | None) -> Tiny:
    if rounds == 0:
        return Tiny(short(name, json.loads(args)), net=network(norm))
    tiny = _copied(_experienced(name, args, norm, rounds - 1, chosen))
    tiny.step(chosen)
    return tiny


def bare_context(**changes: Any) -> Context:
    """A context for calling one hook by hand: 3 classes all present, no network, memories as given."""
    nothing = State(Params({}), Params({}))
    usual: dict[str, Any] = {
        "spec": Spec(CLASSES, WIDTH, 4, 4),
        "run_seed": 0,
        "round": 0,
        "client": 0,
        "class_counts": torch.ones(CLASSES, dtype=torch.int64),
        "initial": nothing,
        "start": nothing,
        "state": nothing,
        "net": None,
        "features": None,
        "reestimate": lambda state: state,
    }
    return Context(**{"mine": None, "server": None, **usual, **changes})


def server_context(**changes: Any) -> ServerContext:
    """What a server rule is told, for calling one by hand: the first round of 4 clients, all of them
    there, no messages.
    """
    usual: dict[str, Any] = {
        "spec": Spec(CLASSES, WIDTH, 4, 4),
        "round": 0,
        "count": 4,
        "samples": 35,
        "received": {},
    }
    return ServerContext(**{**usual, **changes})


def of_kind(value: object, kind: type[Kind]) -> Kind:
    """The same value, which must be of this kind."""
    assert isinstance(value, kind)
    return value


def digits(
    split: str = "dirichlet:6:0.3",
    hidden: int = 8,
    *,
    method: str = "fedavg",
    args: Mapping[str, Any] | None = None,
    local: Local = Local(lr=0.05, batch_size=32, epochs=1),  # noqa: B008  it cannot be changed
    federation: Federation = Federation(2),  # noqa: B008
    **data: Any,
) -> RunConfig:
    """A serial run on digits with a hidden layer of this width."""
    return RunConfig(
        method,
        dict(args or {}),
        Data("digits", split, **data),
        Model("mlp", {"hidden": [hidden]}),
        local,
        federation,
        runtime=Runtime(execution="serial"),
    )


def companion(tiny: Tiny, client: int) -> Params:
    """What a client trains beside the shared model."""
    return of_kind(tiny.client_states[client].slots["personal"], Companion).own


def point(*numbers: float) -> Params:
    """One tensor w of these numbers, in memory of its own."""
    return Params({"w": torch.tensor(numbers, dtype=torch.float32)}).clone()


def body_point(*numbers: float) -> Params:
    """The same as a part of the body."""
    return Params({"body.w": torch.tensor(numbers, dtype=torch.float32)})


def activity(w: Params | Mapping[str, Tensor], x: Tensor) -> tuple[Tensor, Tensor]:
    """Logits and features of the tiny network by its formula."""
    z = torch.tanh(x @ w["body.fc.weight"].T + w["body.fc.bias"])
    return z @ w["head.weight"].T + w["head.bias"], z


def tiny_loss(w: Params | Mapping[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
    """The cross-entropy of the tiny network by its formula."""
    return cross_entropy(activity(w, x)[0], y)


def slopes(loss: Callable[[dict[str, Tensor]], Tensor], w: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The gradient of a function of weights, by their names."""
    live = {name: tensor.detach().clone().requires_grad_() for name, tensor in w.items()}
    return dict(zip(live, torch.autograd.grad(loss(live), list(live.values())), strict=True))


def forward(z: Tensor, y: Tensor, logits: Tensor | None = None, w: Params | None = None) -> Forward:
    """A forward pass made by hand."""
    return Forward(z, y, z, z if logits is None else logits, Params({}) if w is None else w)


def shared_objective(m: Method, views: Views) -> Callable[[Forward, int], Tensor]:
    """Return one client's objective: the loss of the head, by default CE(head(logits), y), + Σ terms.

    Terms get random numbers from their own streams.
    """
    task = shared_task(m, Pass(), Solver(0.0, 0.0, 0.0))
    phase = TrainingPhase(
        State(Params({}), Params({})),
        (),
        ClientData(torch.empty(0), torch.empty(0), torch.empty(0)),
        views,
        drawn=term_streams(task.draws, views),
    )
    return lambda f, step: task.objective(f, with_draws(views, draws_of(task, phase, len(f.y))))


def tree_stack(trees: Sequence[Any]) -> Any:
    """Records of equal shape stacked leaf by leaf, for vmap."""
    flat = [pytree.tree_flatten(tree) for tree in trees]
    columns = zip(*(values for values, _ in flat), strict=True)
    return pytree.tree_unflatten([torch.stack(list(column)) for column in columns], flat[0][1])


def sgd(
    net: Network,
    start: State,
    loss: Callable[[Forward, int], Tensor],
    data: ClientData,
    batches: Sequence[Tensor],
    solver: Solver,
    *,
    part: Part = "all",
    correct: Callable[[Params], Params] | None = None,
    augment: Callable[[Tensor], Tensor] | None = None,
    rates: Sequence[float] | None = None,
    begun: OptimizerState | None = None,
) -> Trained:
    """One phase of training whose loss is a function of the forward pass and of the number of the step."""
    steps = itertools.count()
    task = ClientTask(
        lambda f, views: loss(f, next(steps)),
        solver,
        part,
        None if correct is None else lambda g, w, views: correct(g),
    )
    change = (
        None
        if augment is None
        else Augmentation(lambda batch, stream: torch.empty(batch), lambda x, drawn: augment(x))
    )
    phase = TrainingPhase(
        start,
        batches,
        data,
        {},
        augment=torch.Generator() if augment else None,
        dropout=net.noise.generator,
        rates=rates,
        optimizer=begun,
    )
    return SgdPhase(net, task, phase, change).run()


def privately_trained(method: Method, tiny: Tiny, view: Context, data: ClientData) -> State | None:
    """Client 0's personal model, after private training alone, from what its ingredient knows."""
    who = Participant(0, None, data)
    clock = ClientClock.of(method, tiny.session, view.round, who)
    visit = Visit(participant=who, clock=clock, downloaded=view.start, k=view, views={"personal": view})
    train_private(method, [visit], tiny.session)
    return visit.views["personal"].private
