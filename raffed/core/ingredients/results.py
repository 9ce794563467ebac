"""What the hooks of a user's own ingredients must return, looked at where they return it.

A wrong result would end in an error some lines further on, in raffed's own code, or in none at all. So each
hook of a class from outside raffed that is called once or a few times in a client's round is wrapped when the
class is made, and its results are looked at. What runs in every step of training is looked at in the first
step only (`raffed.core.training.first_step`). raffed's own ingredients are not wrapped.
"""

from __future__ import annotations

import functools
import math
import types
from collections.abc import Callable, Mapping
from typing import Any, Final

from torch import Tensor

from raffed.config.slots import described, with_article
from raffed.core.messages import Private, Wire
from raffed.core.params import Params, State, arranged_like
from raffed.core.parts import Budget
from raffed.core.record import Record
from raffed.references.places import place_of
from raffed.references.user_code import UserCodeError

# Given what a hook returned and what it was called with, it returns what is wrong, or ""
Look = Callable[..., str]
# Given the same, it returns the result with its tensors in the order in which raffed has them
Arrange = Callable[..., Any]
_MARK: Final = "__raffed_watched__"
_NO_ORDERS: Final[Mapping[str, Arrange]] = {}


def is_raffeds(kind: type) -> bool:
    """Return whether a class is one of raffed's own."""
    return kind.__module__.split(".")[0] == "raffed"


def fault(one: Any, hook: str, why: str) -> UserCodeError:
    """Return the error about a result, which begins with the file and line of the hook.

    Args:
        one: The ingredient.
        hook: Name of the hook.
        why: What it did, and what it must do.
    """
    kind = type(one)
    return UserCodeError(f"{place_of(getattr(kind, hook, kind))}: {kind.__name__}.{hook} {why}")


def watch(kind: type, looks: Mapping[str, Look], orders: Mapping[str, Arrange] = _NO_ORDERS) -> None:
    """Look at the results of a class's hooks from now on. raffed's own classes stay as they are.

    Args:
        kind: The class of an ingredient or of a server's rule.
        looks: Hook → what looks at its results. Hooks that the kind of ingredient does not have are left out.
        orders: Hook → what arranges a result that was found to be right.
    """
    if is_raffeds(kind):
        return
    known = {name for base in kind.__mro__ if base is not object and is_raffeds(base) for name in vars(base)}
    for hook in looks.keys() & known:
        found = next(vars(base)[hook] for base in kind.__mro__ if hook in vars(base))
        own = isinstance(found, types.FunctionType) and not found.__module__.startswith("raffed.")
        if own and not hasattr(found, _MARK):
            setattr(kind, hook, _watched(hook, found, looks[hook], orders.get(hook)))


def _watched(
    hook: str, function: Callable[..., Any], look: Look, arrange: Arrange | None
) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(self: Any, *given: Any, **named: Any) -> Any:
        made = function(self, *given, **named)
        why = look(made, *given)
        if why:
            raise UserCodeError(f"{place_of(function)}: {type(self).__name__}.{hook} {why}")
        return made if arrange is None else arrange(made, *given)

    setattr(call, _MARK, True)
    return call


def a_result(*kinds: type, optional: bool = False) -> Look:
    """Return what checks that a result belongs to one of some classes."""
    wanted = " or ".join([with_article(one.__name__) for one in kinds] + (["None"] if optional else []))

    def look(made: Any, *_: Any) -> str:
        good = isinstance(made, kinds) or (optional and made is None)
        return "" if good else f"returned {described(made)}; it must return {wanted}"

    return look


def _memory(made: Any) -> str:
    if made is None or isinstance(made, Private):
        return ""
    return f"returned {described(made)} as the client's memory; make it a subclass of Private"


def _client_init(made: Any, *_: Any) -> str:
    return _memory(made)


def _finish(made: Any, *_: Any) -> str:
    if not (isinstance(made, tuple) and len(made) == 2):
        return (
            f"returned {described(made)}; it must return two things, what the client keeps and what it "
            "sends, as in `return memory, None`"
        )
    kept, sent = made
    if sent is not None and not isinstance(sent, Wire):
        return f"returned {described(sent)} as the message; only a Wire may travel, and None sends nothing"
    return _memory(kept)


def _unlike(made: Any, like: Params, what: str, hook: str) -> str:
    """Return why weights cannot take the place of others: "" if names and shapes are the same."""
    if not isinstance(made, Params):
        return f"returned {described(made)} as {what}; it must be Params"
    odd = sorted({*made.names} ^ {*like.names})
    if odd:
        return (
            f"returned {what} that differ in {', '.join(odd[:4])}; `{hook}` must return weights with the "
            f"names that it was given"
        )
    shapes = [name for name in like.names if made[name].shape != like[name].shape]
    return f"returned {what} with other shapes of {', '.join(shapes[:4])}" if shapes else ""


def _like(place: int, what: str, hook: str) -> Look:
    """Return what checks that a result has the names and shapes of an argument."""

    def look(made: Any, *given: Any) -> str:
        return _unlike(made, given[place], what, hook) if place < len(given) else ""

    return look


def _server_step(made: Any, *given: Any) -> str:
    if not (isinstance(made, tuple) and len(made) == 2):
        return (
            f"returned {described(made)}; it must return two things, its memory and the next weights, as in "
            "`return None, mean`"
        )
    own, w = made
    if own is not None and not isinstance(own, Private | Wire):
        return f"returned {described(own)} as its memory; it must be a Private record or None"
    return _unlike(w, given[1], "next weights", "step") if len(given) > 1 else ""


def _solver_step(made: Any, carried: Any, *_: Any) -> str:
    wanted = type(carried)
    if type(made) is wanted:
        return ""
    return f"returned {described(made)}; it must return {with_article(wanted.__name__)}, as it was given"


def _number(low: float, whole: bool) -> Look:
    """Return what checks that a result is a number of at least `low`."""

    def look(made: Any, *_: Any) -> str:
        good = type(made) in ((int,) if whole else (int, float)) and low <= made < math.inf
        kind = "a whole number" if whole else "a number"
        return "" if good else f"returned {described(made)}; it must return {kind} of at least {low:g}"

    return look


def _slopes(made: Any, names: tuple[str, ...] = (), *_: Any) -> str:
    odd = [str(one) for one in made if one not in names] if isinstance(made, tuple | list) else ["?"]
    return f"returned {described(made)}; it must return some of the names that it was given" if odd else ""


def _words(made: Any, *_: Any) -> str:
    return "" if isinstance(made, str) else f"returned {described(made)}; it must return a line of text"


def _broadcast(made: Any, *_: Any) -> str:
    good = isinstance(made, dict) and all(
        isinstance(slot, str) and isinstance(one, Wire) for slot, one in made.items()
    )
    return "" if good else f"returned {described(made)}; it must return a dict from slots to Wires"


def _weights(made: Any, usual: Any = (), *_: Any) -> str:
    good = isinstance(made, list) and len(made) == len(usual)
    if not good or not all(isinstance(one, int | float) and 0.0 <= one <= 1.0 for one in made):
        return f"returned {described(made)}; it must return a list of {len(usual)} numbers from 0 to 1"
    return "" if abs(sum(made) - 1.0) < 1e-6 else "returned weights that do not add up to 1"


def _model(made: Any, *given: Any) -> str:
    """Look at a whole model that a hook makes from what the client knows, its first argument."""
    if not isinstance(made, State):
        return f"returned {described(made)}; it must return a State"
    like = _start_of(given)
    if like is None:
        return ""
    odd = odd_tensors(made, like)
    return f"returned a model that differs in {odd} from the client's (k.state)" if odd else ""


def odd_tensors(made: State, like: State) -> str:
    """Return the names of up to four tensors that only one of two models has; "" if there are none."""
    return ", ".join(sorted({*made.w.names, *made.b.names} ^ {*like.w.names, *like.b.names})[:4])


def _start_of(given: tuple[Any, ...]) -> State | None:
    """Return the model with which the client began, or None where a hook is called by hand without one."""
    start = getattr(given[0], "start", None) if given else None
    return start if isinstance(start, State) and len(start.w) else None


def _arranged_model(made: State, *given: Any) -> State:
    like = _start_of(given)
    return made if like is None else made.arranged(like)


def _arranged(place: int) -> Arrange:
    """Return what puts a point in the order of an argument."""
    return lambda made, *given: made.arranged(given[place].names) if place < len(given) else made


def _arranged_carried(made: Record, *given: Any) -> Record:
    """Put the points of what a local solver carries in the order in which it was given them.

    Fields may begin as None, and then there is nothing to compare with.
    """
    try:
        return arranged_like(made, given[0]) if given else made
    except ValueError:
        return made


def _arranged_step(made: tuple[Any, Params], *given: Any) -> tuple[Any, Params]:
    return (made[0], made[1].arranged(given[1].names)) if len(given) > 1 else made


_KEPT = a_result(Wire, Private, optional=True)

INGREDIENT: Final[Mapping[str, Look]] = {
    "caution": _words,
    "server_init": _KEPT,
    "client_init": _client_init,
    "finish": _finish,
    "outgoing": _like(0, "weights", "outgoing"),
    "server_step": _KEPT,
    "draw": a_result(Tensor, optional=True),
    "note": a_result(Tensor, optional=True),
    "companion": a_result(Params, optional=True),
    "update_gates": _like(0, "gates", "update_gates"),
    "start": _model,
    "budget": a_result(Budget, optional=True),
    "loss_parts": a_result(Mapping),
    "model": _model,
    "predict": a_result(Tensor),
    "begin": a_result(Record),
    "step": _solver_step,
    "end": a_result(State),
    "batches": _number(1, whole=True),
    "iterations": _number(0, whole=True),
    "slopes": _slopes,
    "epochs": _number(0, whole=False),
    "samples": a_result(Tensor),
}
RULE: Final[Mapping[str, Look]] = {
    "init": _KEPT,
    "step": _server_step,
    "statistics": _like(1, "statistics", "statistics"),
    "extra_broadcast": _broadcast,
    "evaluation_weights": _like(1, "weights", "evaluation_weights"),
}
INGREDIENT_ORDERS: Final[Mapping[str, Arrange]] = {
    "outgoing": _arranged(0),
    "update_gates": _arranged(0),
    "start": _arranged_model,
    "model": _arranged_model,
    "step": _arranged_carried,
}
RULE_ORDERS: Final[Mapping[str, Arrange]] = {
    "step": _arranged_step,
    "statistics": _arranged(1),
    "evaluation_weights": _arranged(1),
}
REWEIGHTING: Final[Mapping[str, Look]] = {"report": a_result(Tensor), "weights": _weights}

__all__ = [
    "INGREDIENT",
    "INGREDIENT_ORDERS",
    "REWEIGHTING",
    "RULE",
    "RULE_ORDERS",
    "Look",
    "a_result",
    "fault",
    "is_raffeds",
    "odd_tensors",
    "watch",
]
