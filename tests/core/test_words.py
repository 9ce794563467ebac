"""Words, numbers and slots of the public interface: what is not known is refused where it is written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal

import pytest

from raffed.config.validation import Length, Range, Words
from raffed.core.context import Context, Forward
from raffed.core.ingredients import Head, LocalSolver, Personal, Term
from raffed.core.messages import ServerMemory
from raffed.core.method import Method
from raffed.core.parts import Budget, ParameterSplit, Pass, in_part
from raffed.core.server import Mean, ServerRule, ServerSGD
from raffed.errors import UnknownNameError, UsageError
from raffed.methods.own import method


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Mean("uniform"), r"Mean\.by 'uniform'; known: clients, samples"),
        (lambda: ParameterSplit(buffers="locale"), r"nearest: local \(known: average, local\)"),
        (lambda: Pass("bodies"), r"Pass\.part 'bodies'; nearest: body"),
        (lambda: in_part("body.fc", "heads"), r"part of a network 'heads'"),
    ],
)
def test_an_unknown_word_is_refused_with_the_words_that_are_known(
    make: Callable[[], Any], words: str
) -> None:
    with pytest.raises(UnknownNameError, match=words):
        make()


@pytest.mark.parametrize(
    ("make", "words"),
    [
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
def test_a_number_or_a_type_that_cannot_be_meant_is_refused(make: Callable[[], Any], words: str) -> None:
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
    with pytest.raises(UsageError, match=rf"test_words\.py:\d+: .*{words}"):
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
    with pytest.raises(UsageError, match=rf"test_words\.py:\d+: Mine: \w+\S*: .*{words}"):
        Method("Mine", **slots)
