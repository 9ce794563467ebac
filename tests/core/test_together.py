"""Slots and hooks together, and the order of tensors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from raffed.core.context import Context, Forward, Received, ServerContext, Spec
from raffed.core.ingredients import (
    Correction,
    Descent,
    Gradient,
    Head,
    Ingredient,
    LocalSolver,
    Opening,
    Personal,
    Term,
)
from raffed.core.losses import Criterion
from raffed.core.messages import Private, Summable, Wire
from raffed.core.method import Method
from raffed.core.params import Params, State, arranged_like
from raffed.core.parts import Budget, Pass
from raffed.core.server import ServerRule
from raffed.core.training.session import with_optimizer
from raffed.errors import UsageError
from raffed.own.user_code import UserCodeError
from raffed.testing.federation import PLAIN, TinyFederation, tiny_federation
from tests.tiny import Tiny, leaves, network

# Slots and hooks together: both act, or the method is refused where it is written.

EVERYBODY = (0, 1, 2, 3)
FALLING = replace(PLAIN, schedule="step", schedule_args={"every": 3, "gamma": 0.3}, schedule_by="step")


class Kept(Private):
    w: Params


class Told(Wire):
    number: Tensor


class Pull(Term):
    def loss(self, f: Forward, k: Context) -> Tensor:
        return (f.w - k.w0).sq_norm()


class Halved(Correction):
    plain_sgd = False

    def gradient(self, g: Params, k: Context) -> Params:
        return g * 0.5


class Doubled(Head):
    def logits(self, a: Tensor, k: Context) -> Tensor:
        return a * 2


class Plain(LocalSolver):
    def step(self, carried: State, gradient: Any, k: Context) -> State:
        slope, b = gradient(carried, 0)
        return State(carried.w - slope * k.lr, b)


class InPairs(LocalSolver[State, Kept]):
    def batches(self) -> int:
        return 2

    def step(self, carried: State, gradient: Any, k: Context) -> State:
        slope, b = gradient(carried, 1)
        return State(carried.w - slope * k.lr, b)

    def client_init(self, k: Context) -> Kept:
        return Kept(k.w0)

    def finish(self, k: Context) -> tuple[Kept, None]:
        return Kept(Params({"sum": torch.tensor(k.lr_sum)})), None


class Begun(Opening):
    def step(self, carried: State, gradient: Any, k: Context) -> State:
        return Plain().step(carried, gradient, k)

    def epochs(self, k: Context) -> float:
        return 1.0


class Own(Personal):
    def model(self, k: Context) -> State:
        return k.state


class Beside(Own):
    def companion(self, k: Context) -> Params:
        return k.w0

    def loss(self, f: Forward, k: Context) -> Tensor:
        return f.own.sq_norm()


@pytest.mark.parametrize(
    ("slots", "words"),
    [
        ({"message": Pull()}, "message is a Pull, which only acts in the slot terms"),
        ({"message": Halved()}, "message is a Halved, which only acts in the slot correction"),
        ({"message": Doubled()}, "message is a Doubled, which only acts in the slot head"),
        ({"message": Own()}, "message is an Own, which only acts in the slot personal"),
        ({"message": Plain()}, "message is a Plain, which only acts in the slot solver"),
        ({"solver": Begun()}, "solver is a Begun, which only acts in the slot opening"),
        ({"optimizer": Halved()}, "optimizer is a Halved; only a run's keep_optimizer fills that slot"),
        ({"solver": Plain(), "correction": Halved()}, "Halved corrects the steps of SGD"),
        ({"solver": Plain(), "personal": Beside()}, "companion of Beside is trained by SGD, but Plain"),
        ({"solver": Plain(), "passes": (Pass(), Pass())}, "has 2 passes, but Plain trains in one"),
        ({"solver": Plain(), "passes": (Pass("head"),)}, "trains the part 'head' of the network, but Plain"),
    ],
)
def test_an_ingredient_that_would_not_be_used_beside_another_is_refused(
    slots: dict[str, Any], words: str
) -> None:
    with pytest.raises(UsageError, match=words):
        Method("Mine", **slots)


def _with(kind: type, hook: str, made: Any = None, **others: Any) -> Any:
    def function(self: Any, *given: Any) -> Any:
        return made

    return type("Mine", (kind,), {hook: function, "__module__": __name__, **others})()


@pytest.mark.parametrize(
    ("slots", "words"),
    [
        ({"opening": _with(Opening, "step")}, "has step, which has no effect without epochs"),
        ({"opening": _with(Opening, "loss")}, "has loss, which has no effect without epochs"),
        ({"personal": _with(Own, "private_loss")}, "has private_loss, which has no effect without budget"),
        ({"personal": _with(Own, "loss_parts")}, "has loss_parts, which has no effect without loss"),
        ({"personal": _with(Own, "predict")}, "has predict, which has no effect without predicts"),
        ({"personal": _with(Own, "update_gates")}, "has update_gates, which has no effect without gates"),
        ({"personal": _with(Own, "loss", gates=("a",))}, "has gates, which has no effect without companion"),
    ],
)
def test_a_hook_that_nothing_would_call_is_refused(slots: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=rf"test_together.*: Mine: \w+: Mine {words}"):
        Method("Mine", **slots)


def test_a_loss_in_the_slot_of_the_criterion_is_the_one_that_clients_minimise() -> None:
    nothing = Criterion(lambda logits, y: logits.sum(-1) * 0.0, "nothing")
    still = replace(PLAIN, weight_decay=0.0)
    for method in (Method("Mine", criterion=nothing), Method("Mine").with_loss(nothing)):
        tiny = tiny_federation(method, local=still)
        before = tiny.server.w.flat.clone()
        torch.testing.assert_close(tiny.run(1).server.w.flat, before)


def test_a_memory_without_client_init_is_refused_because_no_run_would_keep_it() -> None:
    def finish(self: Any, k: Context) -> Any:
        return Kept(k.w), None

    term = type("Mine", (Pull,), {"finish": finish, "__module__": __name__})()
    with pytest.raises(UserCodeError, match=r"Mine\.finish returned a memory, but the class has no cli"):
        tiny_federation(Method("Mine", terms=(term,))).step()


def test_a_message_of_the_server_for_a_slot_that_does_not_exist_is_refused() -> None:
    class Rule(ServerRule[None]):
        def step(self, own: None, w: Params, mean: Params, k: Any) -> tuple[None, Params]:
            return None, mean

        def extra_broadcast(self, own: None) -> dict[str, Wire]:
            return {"massage": Told(torch.ones(1))}

    with pytest.raises(UserCodeError, match="a message for the slot 'massage', which nothing reads"):
        tiny_federation(Method("Mine", server=Rule())).step()


def _stepped(kind: type, hook: str, value: Callable[[Context], Any], **others: Any) -> Any:
    """Return an ingredient whose hook pulls the weights by a number of its client."""

    def loss(self: Any, f: Forward, k: Context) -> Any:
        return k.ce(f) + value(k) * f.w.sq_norm() if hook == "private_loss" else value(k) * f.w.sq_norm()

    def gradient(self: Any, g: Params, k: Context) -> Any:
        return g + k.w0 * value(k)

    function = gradient if hook == "gradient" else loss
    return type("Mine", (kind,), {hook: function, "__module__": __name__, **others})()


class Apart(Personal[Kept]):
    def client_init(self, k: Context) -> Kept:
        return Kept(k.w0)

    def budget(self, k: Context) -> Budget:
        return Budget(steps=3)

    def finish(self, k: Context) -> tuple[Kept, None]:
        assert k.private is not None
        return Kept(k.private.w), None

    def model(self, k: Context) -> State:
        return k.state


@pytest.mark.parametrize(
    "slots",
    [
        {"terms": (_stepped(Term, "loss", lambda k: 0.1 * k.client),)},
        {"terms": (_stepped(Term, "loss", lambda k: k.lr),)},
        {"terms": (_stepped(Term, "loss", lambda k: k.lr_fraction),)},
        {"correction": _stepped(Correction, "gradient", lambda k: 0.1 * k.client, plain_sgd=False)},
        {"personal": _stepped(Apart, "private_loss", lambda k: 0.1 * k.steps)},
        {"personal": _stepped(Apart, "private_loss", lambda k: k.lr_sum)},
        {"personal": _stepped(Apart, "private_loss", lambda k: 0.1 * k.client)},
    ],
    ids=["client", "lr", "lr_fraction", "client-gradient", "private-steps", "private-sum", "private-client"],
)
def test_a_number_of_a_client_is_its_own_in_a_stack(slots: dict[str, Any]) -> None:
    alone, stacked = (
        TinyFederation(Method("Mine", **slots), local=FALLING, cohort=cohort).run(2, EVERYBODY)
        for cohort in (False, True)
    )
    for one, other in zip(alone.everything(), stacked.everything(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)


def test_a_choice_of_clients_within_an_objective_of_a_stack_is_refused_in_words() -> None:
    term = _stepped(Term, "loss", lambda k: 1.0 if k.chosen(0.5, "noise") else 0.0)
    with pytest.raises(TypeError, match=r"k\.chosen belongs into client_init\(\) or finish\(\)"):
        tiny_federation(Method("Mine", terms=(term,)), stacked=True).step(EVERYBODY)


@pytest.mark.parametrize("by", ["round", "local_step"])
def test_the_rates_of_a_solver_are_added_up_over_its_own_steps(by: Any) -> None:
    """Client 3 has 11 samples: 3 batches of 4, which are 2 steps of 2 batches at rate 0.1."""
    local = replace(PLAIN, schedule="step", schedule_args={"every": 1000}, schedule_by=by)
    tiny = TinyFederation(Method("Mine", solver=InPairs()), local=local)
    tiny.step((3,))
    memory = tiny.client_states[3].slots["solver"]
    assert isinstance(memory, Kept)
    torch.testing.assert_close(memory.w["sum"], torch.tensor(0.2))


def test_private_training_beside_a_solver_keeps_its_optimiser_if_the_run_says_so() -> None:
    local = replace(PLAIN, keep_optimizer=True)
    method = with_optimizer(Method("Mine", solver=Plain(), personal=Apart()), local)
    tiny = TinyFederation(method, local=local)
    tiny.run(2, EVERYBODY)
    memory: Any = tiny.client_states[0].slots["optimizer"]
    assert {phase: int(state.count) for phase, state in memory.phases.items()} == {"private": 6}
    assert with_optimizer(Method("Mine", solver=Plain()), local).optimizer is None


@pytest.mark.parametrize("stacked", [False, True])
def test_a_network_without_weights_in_the_part_that_is_trained_is_refused_in_words(stacked: bool) -> None:
    tiny = tiny_federation(Method("Mine", passes=(Pass("norm"),)), stacked=stacked)
    with pytest.raises(
        UsageError, match=r"trains the part 'norm' of the network, .* \(it has no BatchNorm\)"
    ):
        tiny.step(EVERYBODY)


# The order in which one's own code puts the tensors of a model together changes no number.
#
# Models are sent, added up and copied as flat buffers, number by number. A dict comprehension over a part of
# the names, and then over the rest, is all it takes to have them in another order.


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


class OwnCorrection(Correction):
    plain_sgd = False
    turn: bool = True

    def gradient(self, g: Params, k: Context) -> Params:
        return turned(g, self.turn)

    def after_step(self, w: Params, lr: Any, k: Context) -> Params:
        return turned(w, self.turn)


class OwnRule(ServerRule):
    turn: bool = True

    def step(self, own: Any, w: Params, mean: Params, k: ServerContext) -> tuple[Any, Params]:
        return None, turned(mean, self.turn)

    def statistics(self, b: Params, mean: Params, k: ServerContext) -> Params:
        return turned(mean, self.turn)

    def evaluation_weights(self, own: Any, w: Params) -> Params:
        return turned(w, self.turn)


class ToldWeights(Summable):
    w: Params


class Mean(Wire):
    w: Params


class OwnMessage(Ingredient[None, ToldWeights, Mean]):
    """The odd clients name their tensors in another order. The server keeps the sum of all."""

    turn: bool = True

    def server_init(self, w: Params, spec: Spec) -> Mean:
        return Mean(w.zeros())

    def finish(self, k: Context) -> tuple[None, ToldWeights]:
        return None, ToldWeights(turned(k.w, self.turn and k.client % 2 == 1))

    def server_step(self, s: Mean, got: Received[ToldWeights], spec: Spec) -> Mean:
        return s if got.sum is None else Mean(s.w + got.sum.w)


SLOTS: dict[str, tuple[str, type[Any]]] = {
    "outgoing": ("message", Outgoing),
    "a personal model": ("personal", OwnModel),
    "a start of private training": ("personal", OwnStart),
    "a correction": ("correction", OwnCorrection),
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
        Tiny(Method("own", **{slot: kind(turn=turn)}), net=network(norm=True), cohort=cohort).run(
            3, EVERYBODY
        )
        for turn in (False, True)
    )
    assert other.server.w.names == usual.server.w.names
    assert other.server.b.names == usual.server.b.names
    for a, b in zip(leaves(usual.server), leaves(other.server), strict=True):
        torch.testing.assert_close(b, a, rtol=1e-5, atol=1e-6)
    for client in EVERYBODY:
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
    assert arranged_like(ToldWeights(other), ToldWeights(one)).w.names == ("a", "b")
