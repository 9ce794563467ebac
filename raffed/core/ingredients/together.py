"""What the slots of a method may hold together: a part that nothing would use is refused with the method."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Protocol

from raffed.config.slots import with_article
from raffed.core.ingredients import (
    Compression,
    Correction,
    Head,
    Ingredient,
    LocalSolver,
    Opening,
    Personal,
    Term,
)
from raffed.core.parts import Pass
from raffed.core.training.optimizer_state import KeptOptimizer
from raffed.errors import UsageError

# Kinds of ingredients that act in one slot alone, which is named beside them
_PLACES: Final[tuple[tuple[type[Ingredient], str], ...]] = (
    (Term, "terms"),
    (Head, "head"),
    (Correction, "correction"),
    (Opening, "opening"),
    (LocalSolver, "solver"),
    (Personal, "personal"),
    (Compression, "compression"),
)


class Slots(Protocol):
    """The slots of a `Method` that are looked at here."""

    @property
    def name(self) -> str: ...
    @property
    def terms(self) -> tuple[Term, ...]: ...
    @property
    def correction(self) -> Correction | None: ...
    @property
    def solver(self) -> LocalSolver | None: ...
    @property
    def message(self) -> Ingredient | None: ...
    @property
    def optimizer(self) -> Ingredient | None: ...
    @property
    def personal(self) -> Personal | None: ...
    @property
    def passes(self) -> tuple[Pass, ...]: ...


def check_together(m: Slots) -> None:
    """Refuse ingredients of a method that do not fit together.

    Raises:
        UsageError: One of them would not be used, or not be exact. The message says what to do.
    """
    for why in (*_misplaced(m), *_of_terms(m), *_of_a_solver(m), *_of_a_correction(m)):
        raise UsageError(f"{m.name}: {why}")


def _misplaced(m: Slots) -> Iterator[str]:
    """Yield what is in a slot where it would not do what its kind does."""
    for slot, one in (("message", m.message), ("solver", m.solver)):
        place = next((place for kind, place in _PLACES if isinstance(one, kind)), slot)
        if place != slot:
            yield (
                f"{slot} is {with_article(type(one).__name__)}, which only acts in the slot {place}; put it "
                f"there"
            )
    if m.optimizer is not None and not isinstance(m.optimizer, KeptOptimizer):
        yield (
            f"optimizer is {with_article(type(m.optimizer).__name__)}; only a run's keep_optimizer fills "
            "that slot, so leave it out (a rule of your own is a LocalSolver)"
        )


def _of_terms(m: Slots) -> Iterator[str]:
    names = [type(t).__name__ for t in m.terms]
    for name in names:
        if names.count(name) > 1:
            yield (
                f"two terms of class {name}; their memories would share one slot; give them different classes"
            )


def _of_a_solver(m: Slots) -> Iterator[str]:
    """Yield what is only used in steps of SGD, although the method's solver steps by a rule of its own."""
    if m.solver is None:
        return
    rule = type(m.solver).__name__
    if any(type(term).note is not Term.note for term in m.terms):
        yield f"one of its terms records something at every step, which needs SGD, not {rule}"
    if m.correction is not None:
        yield (
            f"{type(m.correction).__name__} corrects the steps of SGD, but {rule} makes its own; write the "
            f"correction into {rule}.step"
        )
    if m.personal is not None and type(m.personal).companion is not Personal.companion:
        yield (
            f"the companion of {type(m.personal).__name__} is trained by SGD, but {rule} makes the steps and "
            f"knows no companion; leave out companion, or the solver"
        )
    if len(m.passes) > 1:
        yield f"it has {len(m.passes)} passes, but {rule} trains in one; leave the others out"
    if m.passes[0].part != "all":
        yield (
            f"its pass trains the part {m.passes[0].part!r} of the network, but {rule} steps all of it; "
            f"leave out part, and let {rule}.step keep the other weights"
        )


def _of_a_correction(m: Slots) -> Iterator[str]:
    if m.correction is not None and m.correction.plain_sgd and any(p.momentum != 0.0 for p in m.passes):
        yield (
            f"{type(m.correction).__name__} needs plain SGD (momentum 0 in every pass): its control variates "
            "divide the displacement by the summed learning rates, which momentum breaks"
        )


__all__ = ["check_together"]
