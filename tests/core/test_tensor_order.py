"""The order in which one's own code puts the tensors of a model together changes no number.

Models are sent, added up and copied as flat buffers, number by number. A dict comprehension over a part of
the names, and then over the rest, is all it takes to have them in another order.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch

from raffed.core.context import Context, Received, ServerContext, Spec
from raffed.core.ingredients import Descent, Gradient, Ingredient, LocalSolver, Opening, Personal
from raffed.core.messages import Summable, Wire
from raffed.core.method import Method
from raffed.core.params import Params, State, arranged_like
from raffed.core.parts import Budget
from raffed.core.server import ServerRule
from tests.tiny import Tiny, leaves, network

ALL = (0, 1, 2, 3)


def turned(w: Params, turn: bool = True) -> Params:
    return Params({name: w[name] for name in (reversed(w.names) if turn else w.names)})


class Outgoing(Ingredient):
    turn: bool = True

    def outgoing(self, w: Params, k: Context) -> Params:
        return turned(w, self.turn)


class OwnModel(Personal):
    turn: bool = True

    def model(self, k: Context) -> State:
        return State(turned(k.state.w, self.turn), turned(k.state.b, self.turn))


class OwnStart(Personal):
    turn: bool = True

    def budget(self, k: Context) -> Budget:
        return Budget(2)

    def start(self, k: Context) -> State:
        return State(turned(k.state.w, self.turn), k.state.b)

    def model(self, k: Context) -> State:
        return k.state


class OwnSteps(LocalSolver[Descent, None, None, None]):
    turn: bool = True

    def begin(self, k: Context) -> Descent:
        return Descent.begun(k.start)

    def step(self, carried: Descent, gradient: Gradient, k: Context) -> Descent:
        w = carried.model.w
        slope, b = gradient(State(turned(w, self.turn), carried.model.b), 0)
        after = State(turned(w - slope * k.lr, self.turn), turned(b, self.turn))
        return carried.replace(model=after)

    def end(self, carried: Descent) -> State:
        return State(turned(carried.model.w, self.turn), carried.model.b)


class OwnOpening(Opening[Descent, None, None, None]):
    turn: bool = True

    def begin(self, k: Context) -> Descent:
        return Descent.begun(k.start)

    def end(self, carried: Descent) -> State:
        return State(turned(carried.model.w, self.turn), turned(carried.model.b, self.turn))


class OwnRule(ServerRule):
    turn: bool = True

    def step(self, own: Any, w: Params, mean: Params, k: ServerContext) -> tuple[Any, Params]:
        return None, turned(mean, self.turn)

    def statistics(self, b: Params, mean: Params, k: ServerContext) -> Params:
        return turned(mean, self.turn)

    def evaluation_weights(self, own: Any, w: Params) -> Params:
        return turned(w, self.turn)


class Told(Summable):
    w: Params


class Mean(Wire):
    w: Params


class OwnMessage(Ingredient[None, Told, Mean]):
    """The odd clients name their tensors in another order. The server keeps the sum of all."""

    turn: bool = True

    def server_init(self, w: Params, spec: Spec) -> Mean:
        return Mean(w.zeros())

    def finish(self, k: Context) -> tuple[None, Told]:
        return None, Told(turned(k.w, self.turn and k.client % 2 == 1))

    def server_step(self, s: Mean, got: Received[Told], spec: Spec) -> Mean:
        return s if got.sum is None else Mean(s.w + got.sum.w)


SLOTS: dict[str, tuple[str, type[Any]]] = {
    "outgoing": ("message", Outgoing),
    "a personal model": ("personal", OwnModel),
    "a start of private training": ("personal", OwnStart),
    "a local solver": ("solver", OwnSteps),
    "an opening": ("opening", OwnOpening),
    "a server's rule": ("server", OwnRule),
    "messages of two orders": ("message", OwnMessage),
}


@pytest.mark.parametrize("cohort", [False, True], ids=["alone", "stacked"])
@pytest.mark.parametrize("what", SLOTS)
def test_another_order_of_the_tensors_changes_no_number(what: str, cohort: bool) -> None:
    slot, kind = SLOTS[what]
    usual, other = (
        Tiny(Method("own", **{slot: kind(turn=turn)}), net=network(norm=True), cohort=cohort).run(3, ALL)
        for turn in (False, True)
    )
    assert other.server.w.names == usual.server.w.names
    assert other.server.b.names == usual.server.b.names
    for a, b in zip(leaves(usual.server), leaves(other.server), strict=True):
        torch.testing.assert_close(b, a, rtol=1e-5, atol=1e-6)
    for client in ALL:
        models = [one.last[client].personal_state(one.method) for one in (usual, other)]
        torch.testing.assert_close(models[1].w.flat, models[0].w.flat, rtol=1e-5, atol=1e-6)


def test_points_are_added_and_arranged_by_name() -> None:
    one = Params({"a": torch.tensor([1.0]), "b": torch.tensor([2.0])})
    other = Params({"b": torch.tensor([20.0]), "a": torch.tensor([10.0])}).clone()
    total = one + other
    assert (total.names, total["a"].item(), total["b"].item()) == (("a", "b"), 11.0, 22.0)
    assert float(one.dot(other)) == 50.0
    assert one.arranged(("a", "b")) is one
    assert other.arranged(("a", "b")).flat.tolist()[0] == 10.0
    with pytest.raises(ValueError, match="different names: b, c"):
        one.arranged(("a", "c"))
    assert arranged_like(Told(other), Told(one)).w.names == ("a", "b")
