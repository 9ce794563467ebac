"""What own methods are told of hooks with wrong results, and of words and slots that are not known."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal

import pytest
import torch

from raffed.config.validation import Length, Range, Words
from raffed.core.context import Context, Forward
from raffed.core.ingredients import Correction, Head, Ingredient, LocalSolver, Opening, Personal, Term
from raffed.core.messages import Private, ServerMemory
from raffed.core.method import Method
from raffed.core.params import Params
from raffed.core.parts import Budget, ParameterSplit, Pass, in_part
from raffed.core.server import Mean, Reweighting, ServerRule, ServerSGD
from raffed.errors import NumericsError, UsageError
from raffed.methods.own import method
from raffed.own.user_code import UserCodeError
from raffed.testing import check_method, tiny_federation

# What the hooks of own ingredients return: wrong things are reported by the hook's file and line.
from tests.params import one_in

WEIGHTS = Params({"head.weight": torch.zeros(2)})


class Kept(Private):
    """What a client keeps."""

    w: Params


def returning(kind: type, hook: str, made: Any, **others: Any) -> Any:
    """Return an ingredient of a kind whose hook returns something."""
    if callable(made):
        function = made
    else:

        def function(self: Any, *given: Any) -> Any:
            return made

    function.__name__ = hook
    return type("Mine", (kind,), {hook: function, "__module__": __name__, **others})()


def pull(self: Any, f: Any, k: Any) -> Any:
    return (f.w - k.w0).sq_norm()


def unchanged(self: Any, own: Any, w: Any, mean: Any, k: Any) -> Any:
    return None, mean


def model(self: Any, k: Any) -> Any:
    return k.state


def stays(self: Any, carried: Any, gradient: Any, k: Any) -> Any:
    gradient(carried, 0)
    return carried


NUMBER = "it must return a tensor of one number, without dimensions"
TERM: dict[str, Any] = {"loss": pull}
RULE: dict[str, Any] = {"step": unchanged}
OWN: dict[str, Any] = {"model": model}
STEP: dict[str, Any] = {"step": stays}


def _term(hook: str, made: Any, **more: Any) -> dict[str, Any]:
    return {"terms": (returning(Term, hook, made, **({} if hook == "loss" else TERM), **more),)}


def _message(hook: str, made: Any) -> dict[str, Any]:
    return {"message": returning(Ingredient, hook, made)}


def _head(hook: str, made: Any) -> dict[str, Any]:
    return {"head": returning(Head, hook, made)}


def _personal(hook: str, made: Any, **more: Any) -> dict[str, Any]:
    return {"personal": returning(Personal, hook, made, **({} if hook == "model" else OWN), **more)}


def _rule(hook: str, made: Any) -> dict[str, Any]:
    return {"server": returning(ServerRule, hook, made, **({} if hook == "step" else RULE))}


def _solver(hook: str, made: Any) -> dict[str, Any]:
    return {"solver": returning(LocalSolver, hook, made, **({} if hook == "step" else STEP))}


def _opening(hook: str, made: Any) -> dict[str, Any]:
    epochs = {} if hook == "epochs" else {"epochs": lambda self, k: 1.0}
    return {"opening": returning(Opening, hook, made, **STEP, **epochs)}


def _reduced(self: Any, w: Any, lr: Any, k: Any) -> Any:
    return Params({name: w[name].sum() for name in w.names})


def _trains(self: Any, k: Any) -> Budget:
    return Budget(2)


CASES: tuple[tuple[dict[str, Any], str], ...] = (
    (_term("loss", None), "loss returned None; it must return a Tensor"),
    (_term("loss", 0.3), r"loss returned the number 0\.3, which has no gradient"),
    (
        _term("loss", lambda self, f, k: f.logits.mean(1)),
        rf"returned a tensor \[4\] of torch.float32; {NUMBER}",
    ),
    (_term("loss", lambda self, f, k: f.y.sum()), r"returned a tensor \[\] of torch.int64"),
    (_term("note", 3), "note returned 3; it must return a Tensor or None"),
    (_term("finish", None), "finish returned None; it must return a tuple"),
    (_term("finish", lambda self, k: (k.w, None)), "finish returned a Params to keep and None to send"),
    (_term("finish", lambda self, k: (None, {"n": 3})), "a dict to send; .* only a Wire may travel"),
    (_term("client_init", torch.zeros(3)), "client_init returned a Tensor; it must return a Private or None"),
    (_term("server_init", 3), "server_init returned 3; it must return a Wire or a Private or None"),
    (_message("outgoing", WEIGHTS), "outgoing returned other tensors than it must: .*different names: body"),
    (_head("logits", lambda self, a, k: a.mean(0)), r"logits returned a tensor \[3\]; .*\[4, 3\], as given"),
    (_head("logits", lambda self, a, k: a.detach()), "logits returned a value without a gradient"),
    (_head("loss", lambda self, f, k: k.ce(f).detach()), "loss returned a value without a gradient"),
    ({"correction": returning(Correction, "gradient", None, plain_sgd=False)}, "gradient returned None"),
    (
        {"correction": returning(Correction, "gradient", WEIGHTS, plain_sgd=False)},
        "gradient returned other tensors than it must: .*different names: body",
    ),
    (
        {"correction": returning(Correction, "after_step", _reduced, plain_sgd=False)},
        "after_step returned other tensors than it must: other shapes of body",
    ),
    (_personal("model", lambda self, k: k.state.w), "model returned a Params; it must return a State"),
    (_personal("budget", 3), "budget returned 3; it must return a Budget or None"),
    (
        _personal("start", lambda self, k: k.w, budget=_trains),
        "start returned a Params; it must return a State",
    ),
    (
        _personal("private_loss", lambda self, f, k: k.ce(f).detach(), budget=_trains),
        "private_loss returned a value without a gradient",
    ),
    (
        _solver("step", lambda self, carried, gradient, k: gradient(carried, 0) and None),
        "step returned None; it must return a Record",
    ),
    (_solver("begin", None), "begin returned None; it must return a Record"),
    (_solver("batches", 0), "batches returned 0; it must return a number of at least 1"),
    (_opening("epochs", -1), "epochs returned -1; it must return a number of at least 0"),
    (_opening("samples", [1]), "samples returned a list; it must return a Tensor"),
    (_rule("step", lambda self, own, w, mean, k: mean), "step returned a Params; it must return a tuple"),
    (_rule("step", lambda self, own, w, mean, k: (mean, None)), "step returned .*None in place of a Params"),
    (_rule("step", (None, WEIGHTS)), "step returned other tensors than it must: .*different names: body"),
    (_rule("extra_broadcast", None), "extra_broadcast returned None; it must return a dict"),
    (_rule("extra_broadcast", {"term": 3}), "extra_broadcast has 3; only a Wire may travel"),
    (
        {"mean": Mean(reweighting=returning(Reweighting, "weights", [2.0, -1.0], report=lambda self, n: n))},
        "weights must return 4 numbers from 0 to 1 that add up to 1",
    ),
    (
        {"mean": Mean(reweighting=returning(Reweighting, "weights", [0.1] * 4, report=lambda self, n: n))},
        "weights must return 4 numbers from 0 to 1 that add up to 1",
    ),
)


def _round(stacked: bool, slots: dict[str, Any]) -> None:
    tiny = tiny_federation(Method("Mine", **slots), stacked=stacked)
    tiny.method.server.required_data()
    for client, done in tiny.step((0, 1, 2, 3)).items():
        personal = tiny.method.personal
        if personal is not None:
            done.personal_state(tiny.method)
            done.personal_logits(personal, tiny.data[client].x)


@pytest.mark.parametrize("stacked", [False, True])
@pytest.mark.parametrize(("slots", "words"), CASES)
def test_a_wrong_result_of_a_hook_is_reported_by_its_file_and_line(
    slots: dict[str, Any], words: str, stacked: bool
) -> None:
    with pytest.raises(UserCodeError, match=rf"^\S*test_hook_results\.py:\d+: Mine\..*{words}"):
        _round(stacked, slots)


def constant(self: Any, f: Any, k: Any) -> Any:
    return k.w0.sq_norm()


def detached(self: Any, f: Any, k: Any) -> Any:
    return (f.w - k.w0).sq_norm().detach()


def later(self: Any, f: Any, k: Any) -> Any:
    """As a term that has nothing to compare with in the first round."""
    return f.logits.square().mean() if k.round else f.logits.new_zeros(())


@pytest.mark.parametrize("stacked", [False, True])
@pytest.mark.parametrize(("loss", "idle"), [(constant, ("Mine",)), (detached, ("Mine",)), (pull, ())])
def test_a_term_without_a_gradient_is_noted_at_every_client(
    loss: Callable[..., Any], idle: tuple[str, ...], stacked: bool
) -> None:
    done = tiny_federation(Method("Mine", **_term("loss", loss)), stacked=stacked).step((0, 1))
    assert [one.idle for one in done.values()] == [idle, idle]


@pytest.mark.parametrize(
    ("loss", "state"), one_in(2, [(detached, "fails"), (pull, "holds"), (later, "holds")])
)
def test_check_finds_a_term_that_never_has_a_gradient(loss: Callable[..., Any], state: str) -> None:
    found = {one.name: one for one in check_method(Method("Mine", **_term("loss", loss)))}
    assert found["terms-have-gradients"].state == state
    assert ("test_hook_results.py:" in found["terms-have-gradients"].why) == (state == "fails")


def test_a_rule_that_makes_nan_is_found_in_its_round_with_the_place_of_the_rule() -> None:
    nan = _rule("step", lambda self, own, w, mean, k: (None, mean * float("nan")))
    with pytest.raises(
        NumericsError,
        match=r"after round 1 has diverged \(the model\).*look at \S*test_hook_results\.py:\d+, Mine\.step",
    ):
        tiny_federation(Method("Mine", **nan)).step()


def test_a_server_s_memory_that_diverges_is_found() -> None:
    def step(self: Any, own: Any, w: Any, mean: Any, k: Any) -> Any:
        return Kept(w / 0.0), mean

    rule = returning(ServerRule, "step", step, init=lambda self, w: Kept(w))
    with pytest.raises(NumericsError, match=r"server's state after round 1 has diverged \(server\.w\)"):
        tiny_federation(Method("Mine", server=rule)).step()


class Score(Private):
    """A number of a client's own."""

    value: torch.Tensor


@pytest.mark.parametrize(
    ("value", "where"),
    [(float("nan"), r"client 0 keeps after round 1 .*\(term-Mine\.value\)"), (float("inf"), "")],
)
def test_nan_in_a_client_s_memory_is_found_and_infinity_may_be_meant(value: float, where: str) -> None:
    def begun(self: Any, k: Any) -> Any:
        return Score(torch.zeros(2))

    def finish(self: Any, k: Any) -> Any:
        return Score(torch.tensor([0.0, value])), None

    tiny = tiny_federation(Method("Mine", **_term("finish", finish, client_init=begun)))
    if where:
        with pytest.raises(NumericsError, match=where):
            tiny.step((0,))
    else:
        assert tiny.step((0,))[0].client_state.slots["term-Mine"].value[1] == float("inf")


@pytest.mark.parametrize("hook", ["report", "report_client"])
@pytest.mark.parametrize(
    ("made", "words"),
    [
        (0.3, r"returned 0\.3; it must return a Mapping"),
        ({"Mu": 1.0}, "has the name 'Mu'; write it in small letters"),
        ({3: 1.0}, "has the name 3; write it"),
        ({"mu": torch.ones(())}, r"has a Tensor for mu; it must be a finite number or NaN: write float"),
        ({"mu": float("inf")}, "has inf for mu; it must be a finite number or NaN"),
    ],
)
def test_numbers_that_could_not_be_recorded_are_refused(hook: str, made: Any, words: str) -> None:
    with pytest.raises(UserCodeError, match=rf"test_hook_results\.py:\d+: Mine\.{hook} {words}"):
        tiny_federation(Method("Mine", **_message(hook, made))).step()


def test_two_ingredients_cannot_report_the_same_name() -> None:
    twice = {**_message("report", {"mu": 1.0}), **_rule("report", {"mu": 2.0})}
    with pytest.raises(UserCodeError, match="'mu', which another ingredient reports; choose another"):
        tiny_federation(Method("Mine", **twice)).step()


def server_w(self: Any, *given: Any) -> Any:
    memory = given[0] if len(given) != 2 else given[1].server
    return (memory.w - memory.w).sq_norm()


@pytest.mark.parametrize(("hook", "name"), [("loss", "k.server"), ("server_step", "s"), ("report", "s")])
def test_a_server_s_memory_that_nobody_made_is_named(hook: str, name: str) -> None:
    with pytest.raises(AttributeError, match=rf"'w'; {name} is None unless Mine\.server_init\(.* a Wire"):
        tiny_federation(Method("Mine", **_term(hook, server_w))).step()


# Words, numbers and slots of the public interface: what is not known is refused where it is written.


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Mean("uniform"), r"Mean\.by 'uniform'; known: clients, samples"),
        (lambda: ParameterSplit(buffers="locale"), r"nearest: local \(known: average, local\)"),
        (lambda: Pass("bodies"), r"Pass\.part 'bodies'; nearest: body"),
        (lambda: in_part("body.fc", "heads"), r"part of a network 'heads'"),
        (lambda: Pass(epochs="3"), r"Pass\.epochs = '3' is a str"),
        (lambda: Pass(epochs=-1), r"Pass\.epochs = -1 is outside"),
        (lambda: Pass(weight_decay=float("nan")), "weight_decay = nan is outside"),
        (lambda: Pass(cross_entropy_only=1), "cross_entropy_only = 1 is an int"),
        (lambda: Budget(-1), r"Budget\.steps = -1 is below 0"),
        (lambda: ServerSGD(float("inf")), r"ServerSGD\.lr = inf is outside"),
        (
            lambda: Mean(reweighting="shares"),
            "Mean: reweighting is 'shares'; it must be a Reweighting or None",
        ),
    ],
)
def test_a_word_a_number_or_a_type_that_cannot_be_meant_is_refused(
    make: Callable[[], Any], words: str
) -> None:
    with pytest.raises(UsageError, match=words):
        make()


def _outside(mu: Annotated[float, Range(0, 1)] = 7.0) -> Method: ...
def _other(mode: Literal["mean", "sum"] = "sun") -> Method: ...
def _kind(steps: int = 1.5) -> Method: ...
def _list(sizes: Annotated[list[int], Length(2)] = [1]) -> Method: ...  # noqa: B006
def _several(parts: Annotated[str, Words("a", "b")] = "a,c") -> Method: ...


@pytest.mark.parametrize(
    ("factory", "words"),
    [
        (_outside, r"_outside: default of mu = 7\.0 is outside \[0"),
        (_other, "default of mode 'sun'; nearest: sum"),
        (_kind, r"default of steps = 1\.5 is a float"),
        (_list, "default of sizes = .1. has 1 numbers"),
        (_several, "default of parts 'c'; known: a, b"),
    ],
)
def test_a_default_that_could_not_be_given_is_refused_by_its_file_and_line(
    factory: Callable[..., Method], words: str
) -> None:
    with pytest.raises(UsageError, match=rf"test_hook_results\.py:\d+: .*{words}"):
        method(factory)


class Own(Term):
    def loss(self, f: Forward, k: Context) -> Any:
        return f.logits.mean()


class OwnRule(ServerRule[None]):
    def step(self, own: ServerMemory, w: Any, mean: Any, k: Any) -> Any:
        return None, mean


@pytest.mark.parametrize(
    ("slots", "words"),
    [
        ({"name": 3}, "name is 3; it must be a str"),
        (
            {"terms": Own()},
            r"terms is an Own; it must be a tuple of Term; write terms=\(…,\), with the comma",
        ),
        ({"terms": (Own,)}, r"terms\[0\] is the class Own, not an object of it \(write Own\(…\)\)"),
        ({"terms": (0.1,)}, r"terms\[0\] is 0\.1; it must be a Term"),
        ({"solver": "sgd"}, "solver is 'sgd'; it must be a LocalSolver or None"),
        ({"split": "head"}, "split is 'head'; it must be a ParameterSplit"),
        ({"passes": Pass("head")}, r"passes is a Pass; it must be a tuple of Pass; write passes=\(…,\)"),
        ({"passes": ()}, "passes is empty; it must have at least one Pass"),
        ({"server": OwnRule}, r"server is the class OwnRule, not an object of it"),
        ({"network": {"head_init": "etf"}}, "network has a dict in it; it must be a tuple of pairs"),
    ],
)
def test_a_slot_with_something_else_in_it_is_refused_by_its_name(slots: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        Method(**{"name": "Mine", **slots})


class Nothing(Term): ...


class Capital(Term):
    def Loss(self, f: Forward, k: Context) -> Any:  # noqa: N802
        return f.logits.mean()


class Misspelt(Own):
    def finsih(self, k: Context) -> Any:
        return None, None


class TooFew(Term):
    def loss(self, f: Forward) -> Any:
        return f.logits.mean()


class FieldForHook(Own):
    draw: float


class NoStream(Own):
    def draw(self, batch: int, k: Context, generator: Any) -> Any:
        return None


class UnknownStream(NoStream):
    purpose = "nose"  # type: ignore[assignment]


class NoModel(Personal): ...


class Follower(LocalSolver):
    follows = ("lr", "momentun")  # type: ignore[assignment]

    def step(self, carried: Any, gradient: Any, k: Context) -> Any:
        return carried


class CallableWord(Head):
    def smooths(self) -> bool:  # type: ignore[override]
        return False

    def logits(self, a: Any, k: Context) -> Any:
        return a


class NoRule(ServerRule[None]): ...


class Switch(OwnRule):
    each = "yes"  # type: ignore[assignment]


@pytest.mark.parametrize(
    ("slots", "words"),
    [
        ({"terms": (Nothing(),)}, r"Nothing has no loss; write `def loss\(self, f, k\)` in it"),
        ({"terms": (Capital(),)}, "Capital.Loss is never called; the hook is called loss"),
        ({"terms": (Misspelt(),)}, "Misspelt.finsih is never called; the hook is called finish"),
        ({"terms": (TooFew(),)}, r"TooFew.loss takes \(self, f\), but it must take \(self, f, k\)"),
        ({"terms": (FieldForHook(0.1),)}, "FieldForHook.draw is 0.1, but draw is the name of a hook"),
        ({"terms": (NoStream(),)}, "does not say which stream they come from"),
        ({"terms": (UnknownStream(),)}, "UnknownStream.purpose 'nose'; nearest: noise"),
        ({"head": CallableWord()}, "CallableWord.smooths is a function; put @property above it"),
        ({"solver": Follower()}, "Follower.follows 'momentun'; nearest: momentum"),
        ({"personal": NoModel()}, "NoModel has no model"),
        ({"server": NoRule()}, "NoRule has no step"),
        ({"server": Switch()}, "Switch.each is 'yes'; it must be True or False"),
    ],
)
def test_an_own_ingredient_without_its_hook_or_with_an_unknown_word_is_refused_by_file_and_line(
    slots: dict[str, Any], words: str
) -> None:
    with pytest.raises(UsageError, match=rf"test_hook_results\.py:\d+: Mine: \w+\S*: .*{words}"):
        Method("Mine", **slots)
