"""What a user's own ingredient must say: the hooks that it has, their arguments, and its words.

It is looked at when a method is built, so that nothing has been started. raffed's own ingredients are not
looked at.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Final

from raffed.core.ingredients.base import is_raffeds
from raffed.core.ingredients.kinds import SGD_SETTINGS, Correction, Head, LocalSolver, Opening, Personal, Term
from raffed.core.params import Record
from raffed.core.seeds import PURPOSES
from raffed.errors import UsageError, check_choice
from raffed.own.user_code import check_many, described, place_of

# Kind of ingredient, hooks of which it must have one, and how the first one is written
Needed = tuple[tuple[type[Record], tuple[str, ...], str], ...]
NEEDED: Final[Needed] = (
    (Term, ("loss",), "loss(self, f, k)"),
    (Head, ("logits", "loss"), "logits(self, a, k)"),
    (Correction, ("gradient", "gradient_at", "after_step"), "gradient(self, g, k)"),
    (LocalSolver, ("step",), "step(self, carried, gradient, k)"),
    (Personal, ("model",), "model(self, k)"),
)
# Hook → another one of the same kind, without which nothing would ever call it, and what that one says
ONLY_WITH: Final[tuple[tuple[type[Record], str, str, str], ...]] = (
    (Opening, "step", "epochs", "how often it goes through the samples"),
    (Opening, "loss", "epochs", "how often it goes through the samples"),
    (Opening, "samples", "epochs", "how often it goes through them"),
    (Personal, "private_loss", "budget", "how long private training lasts"),
    (Personal, "loss_parts", "loss", "what is added to the shared objective"),
    (Personal, "predict", "predicts", "that scores come from it (predicts = True)"),
    (Personal, "update_gates", "gates", "which parameters of the companion it moves"),
    (Personal, "gates", "companion", "the parameters to which they belong"),
)
BETWEEN: Final[tuple[str, ...]] = ("memory", "private", "round")


def check_declared(owner: str, slot: str, ingredient: Record, needed: Needed = NEEDED) -> None:
    """Check what an ingredient or a server's rule declares.

    Args:
        owner: What messages call the method.
        slot: The slot that it is in.
        ingredient: The ingredient or the rule.
        needed: The hooks that it must have.

    Raises:
        UsageError: A hook is missing, takes other arguments or has a misspelt name, or a word is unknown.
    """
    kind = type(ingredient)
    if is_raffeds(kind):
        return
    try:
        for name, base in _hooks(kind).items():
            _check_hook(kind, ingredient, name, base)
        _check_names(kind)
        _check_words(kind, ingredient)
        for base, names, written in needed:
            if isinstance(ingredient, base):
                _check_needed(kind, ingredient, names, written)
        for base, hook, other, says in ONLY_WITH:
            if isinstance(ingredient, base):
                _check_called(kind, ingredient, hook, other, says)
    except UsageError as error:
        raise UsageError(f"{place_of(kind)}: {owner}: {slot}: {error}") from None


def _hooks(kind: type) -> dict[str, Any]:
    """Return the public attributes that raffed's own bases of a class define, by name."""
    hooks: dict[str, Any] = {}
    for base in reversed(kind.__mro__):
        if is_raffeds(base) and base is not Record:
            hooks.update({name: value for name, value in vars(base).items() if not name.startswith("_")})
    return hooks


def _check_hook(kind: type, ingredient: Record, name: str, base: Any) -> None:
    """Check that what overrides a hook is a function of the same arguments, or a value if that is one."""
    if inspect.getattr_static(kind, name) is base and name not in ingredient._names:
        return
    if not inspect.isfunction(base):
        if isinstance(base, property | bool) and callable(getattr(ingredient, name)):
            raise UsageError(f"{kind.__name__}.{name} is a function; put @property above it")
        return
    hook = getattr(ingredient, name)
    if not callable(hook):
        raise UsageError(
            f"{kind.__name__}.{name} is {described(hook)}, but {name} is the name of a hook; rename the field"
        )
    wanted = list(inspect.signature(base).parameters)
    try:
        inspect.signature(hook).bind(*wanted[1:])
    except TypeError:
        parameters = ", ".join(inspect.signature(getattr(kind, name)).parameters)
        raise UsageError(
            f"{kind.__name__}.{name} takes ({parameters}), but it must take ({', '.join(wanted)})"
        ) from None


def _check_needed(kind: type, ingredient: Record, names: tuple[str, ...], written: str) -> None:
    if any(_overrides(kind, name) for name in names):
        return
    if isinstance(ingredient, Opening) and not _overrides(kind, "epochs"):
        return  # an opening without epochs makes no step
    raise UsageError(f"{kind.__name__} has no {' or '.join(names)}; write `def {written}` in it")


def _check_called(kind: type, ingredient: Record, hook: str, other: str, says: str) -> None:
    """Refuse a hook that nothing calls, because the one that it needs is left as it is."""
    if _says(kind, ingredient, hook) and not _says(kind, ingredient, other):
        raise UsageError(
            f"{kind.__name__} has {hook}, which has no effect without {other}; say in {other} {says}, or "
            f"leave {hook} out"
        )


def _says(kind: type, ingredient: Record, name: str) -> bool:
    """Return whether a hook is another function than the usual one, or a declared value is not empty."""
    value = getattr(ingredient, name)
    return _overrides(kind, name) if callable(value) else bool(value)


def _overrides(kind: type, name: str) -> bool:
    """Return whether a class has another hook than the one that does nothing."""
    empty = next(vars(base)[name] for base in reversed(kind.__mro__) if name in vars(base))
    return inspect.getattr_static(kind, name) is not empty


def _check_names(kind: type) -> None:
    """Refuse a function whose name is a hook's name misspelt, since nothing would ever call it."""
    hooks = {name: value for name, value in _hooks(kind).items() if inspect.isfunction(value)}
    for base in kind.__mro__:
        if is_raffeds(base) or base is object:
            continue
        for name, function in vars(base).items():
            if name.startswith("_") or name in hooks or not inspect.isfunction(function):
                continue
            for hook, usual in hooks.items():
                if _misspelt(name, hook) and not _overrides(kind, hook) and _fits(function, usual):
                    raise UsageError(
                        f"{kind.__name__}.{name} is never called; the hook is called {hook}: rename {name} "
                        f"to {hook}, or to _{name} if it is your own"
                    )


def _fits(function: Callable[..., Any], usual: Callable[..., Any]) -> bool:
    try:
        inspect.signature(function).bind(*inspect.signature(usual).parameters)
    except TypeError:
        return False
    return True


def _misspelt(name: str, hook: str) -> bool:
    """Return whether two names have the same letters, or differ in one letter."""
    first, second = (text.replace("_", "").lower() for text in (name, hook))
    if sorted(first) == sorted(second):
        return True
    short, long = sorted((first, second), key=len)
    if len(long) - len(short) > 1 or len(short) < 4:
        return False
    same = next((i for i, (a, b) in enumerate(zip(short, long, strict=False)) if a != b), len(short))
    return short[same + (len(short) == len(long)) :] == long[same + 1 :]


def _check_words(kind: type, ingredient: Record) -> None:
    """Check the words and the switches that a class declares."""
    for name, base in _hooks(kind).items():
        value = getattr(ingredient, name, None)
        if isinstance(base, bool) and not isinstance(value, bool):
            raise UsageError(f"{kind.__name__}.{name} is {described(value)}; it must be True or False")
    if isinstance(ingredient, Term):
        if ingredient.purpose is not None:
            check_choice(f"{kind.__name__}.purpose", ingredient.purpose, PURPOSES)
        elif _overrides(kind, "draw"):
            raise UsageError(
                f"{kind.__name__} draws random numbers, but does not say which stream they come from; write "
                'purpose = "noise" in it'
            )
    if isinstance(ingredient, Personal):
        check_choice(f"{kind.__name__}.between", ingredient.between, BETWEEN)
        check_many(kind.__name__, "gates", ingredient.gates, str)
    if isinstance(ingredient, LocalSolver):
        for word in ingredient.follows:
            check_choice(f"{kind.__name__}.follows", word, SGD_SETTINGS)
