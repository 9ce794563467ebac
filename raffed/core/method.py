"""A federated-learning algorithm as plain data: named slots filled with ingredients.

See docs/design.md §9.

Hooks of ingredients are named after lines of the papers' algorithm boxes. What runs inside the training loop
(`loss`, `logits`, `gradient`, `private_loss`) is a dense function of tensors. Then the same line runs for one
client and, under vmap, for many.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final, NamedTuple

from raffed.config.validation import Value
from raffed.core.ingredients import (
    Compression,
    Correction,
    Head,
    Ingredient,
    LocalSolver,
    Opening,
    Personal,
    Term,
    UnchangedLogits,
)
from raffed.core.ingredients.base import is_raffeds, remembers
from raffed.core.ingredients.declared import Needed, check_declared
from raffed.core.losses import Criterion
from raffed.core.params import REGISTRY, Params, Record
from raffed.core.parts import SHARE_ALL, ParameterSplit, Pass
from raffed.core.server import Assign, Mean, Reweighting, ServerRule
from raffed.core.training.task import KeptOptimizer
from raffed.errors import UsageError
from raffed.own.user_code import check_many, check_pairs, check_slot, with_article

# Hooks of an ingredient that are called only if its class has one of its own
HOOKS: Final = (
    *("needs_held_out", "caution", "server_init", "server_step", "report"),
    *("client_init", "finish", "outgoing", "shares", "report_client"),
)


class Training(NamedTuple):
    """What of a method decides how its clients step, whatever they minimise.

    Attributes:
        name: Name of the method.
        passes: As in `Method`.
        solver: As in `Method`.
        head: As in `Method`.
        personal: As in `Method`.
        needs_sgd: Whether shared training must be SGD, whatever optimiser the run has.
        needs_one_rate: Whether all steps of a round must have one learning rate.
    """

    name: str
    passes: tuple[Pass, ...]
    solver: LocalSolver | None
    head: Head | None
    personal: Personal | None
    needs_sgd: bool
    needs_one_rate: bool


@dataclass(frozen=True)
class Method:
    """A federated-learning algorithm as plain data: it holds no tensor and knows no device and no Ray.

    Attributes:
        name: Name of the method, as in messages and metric rows.
        terms: Terms that are added to the cross-entropy of the shared objective.
        head: A change of the logits before the loss, or None.
        correction: A change of each step of SGD, by its gradient or after it, or None.
        solver: A rule that trains in place of SGD, or None for SGD.
        opening: What a client makes of the downloaded model before its passes, or None.
        message: An ingredient that only sends something, in addition to the trained weights or instead of
            them. It does not change the objective. Default None.
        optimizer: An ingredient that keeps the state of the clients' optimiser, or None. The run's
            `keep_optimizer` sets it (`raffed.core.training.session.with_optimizer`).
        compression: What compresses the weights that clients upload, or None. The run's
            `federation.compression` sets it (`raffed.runtime.run_method.with_compression`).
        split: Which parameters and BatchNorm statistics stay with the client. Default: all are shared.
        passes: The passes of shared training in a round, in order.
        personal: How the client's own model is made, or None if the trained model is evaluated instead.
        mean: The weights with which uploads are averaged.
        server: How the server makes its next model from the mean.
        criterion: A loss in the place of the cross-entropy, or None (`with_loss`).
        network: (argument, value) of what the method requires of the network, such as ("head_init", "etf").
            A run builds its network accordingly, and refuses other values. Default: nothing.
        strengths: (argument, value) of coefficients that should be smaller if training diverges.
        has_global: Whether the server holds a whole model. Otherwise there is no accuracy on the global test
            set. This and all that follow are found from the fields above.
        needs_sgd: Whether shared training must be SGD, whatever optimiser the run has.
        needs_one_rate: Whether all steps of a round must have one learning rate.
        needs_held_out: Whether clients need their validation parts.
        sends_update: Whether clients upload the update w^t − w_k, times a number, in place of their weights.
        keeps_state: Whether clients keep own layers, own buffers, or the memory of an ingredient between
            rounds.
        keeps_uploads: Whether the server gets every upload, and not only their mean.
        steps_repeat: Whether all steps of a client's phase are known to be the same operations on tensors. It
            is known of raffed's own ingredients. Those of others may keep something between two steps.
        hooks: Name of a hook → the ingredients whose class has one of its own, by slot.
        training: What of the method decides how its clients step.

    Raises:
        UsageError: A slot holds something that does not belong there, an ingredient of the user's own lacks a
            hook, or the ingredients do not fit together.
    """

    name: str
    terms: tuple[Term, ...] = ()
    head: Head | None = None
    correction: Correction | None = None
    solver: LocalSolver | None = None  # None: SGD
    opening: Opening | None = None
    message: Ingredient | None = (
        None  # sends something in addition to the trained weights, or instead of them
    )
    optimizer: Ingredient | None = None
    compression: Compression | None = None
    split: ParameterSplit = SHARE_ALL
    passes: tuple[Pass, ...] = (Pass(),)
    personal: Personal | None = None
    mean: Mean = field(default_factory=Mean)
    server: ServerRule = field(default_factory=Assign)
    criterion: Criterion | None = None  # None: the cross-entropy
    network: tuple[tuple[str, Value], ...] = ()  # required arguments of the network
    strengths: tuple[tuple[str, float], ...] = field(
        default=(), compare=False
    )  # coefficients to lower if training diverges

    has_global: bool = field(init=False, repr=False, compare=False)
    needs_sgd: bool = field(init=False, repr=False, compare=False)
    needs_one_rate: bool = field(init=False, repr=False, compare=False)
    needs_held_out: bool = field(init=False, repr=False, compare=False)
    sends_update: bool = field(init=False, repr=False, compare=False)
    keeps_state: bool = field(init=False, repr=False, compare=False)
    keeps_uploads: bool = field(init=False, repr=False, compare=False)
    steps_repeat: bool = field(init=False, repr=False, compare=False)
    _held: tuple[tuple[str, Ingredient], ...] = field(init=False, repr=False, compare=False)
    hooks: Mapping[str, Mapping[str, Ingredient]] = field(init=False, repr=False, compare=False)
    training: Training = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        self._check_slots()
        if self.criterion is not None:
            self._check_loss(self.criterion)
        held, split = self.ingredients(), self.split
        hooks = {
            hook: {
                slot: ingredient
                for slot, ingredient in held
                if getattr(type(ingredient), hook) is not getattr(Ingredient, hook)
            }
            for hook in HOOKS
        }
        for why in (
            *_misplaced(self.message, self.solver, self.optimizer),
            *_of_terms([type(term).__name__ for term in self.terms]),
            *_of_shares([type(ingredient).__name__ for ingredient in hooks["shares"].values()]),
            *(() if self.solver is None else _of_a_solver(self, self.solver)),
            *_of_a_correction(self.correction, self.passes),
        ):
            raise UsageError(f"{self.name}: {why}")
        own_layers = split.personal != "none" or split.buffers == "local"
        needs_sgd = any(ingredient.needs_sgd for _, ingredient in held)
        one_rate = any(ingredient.needs_one_rate for _, ingredient in held)
        derived = {
            "has_global": not own_layers and self.server.has_global,
            "needs_sgd": needs_sgd,
            "needs_one_rate": one_rate,
            "needs_held_out": any(part.needs_held_out for part in hooks["needs_held_out"].values()),
            "sends_update": any(ingredient.sends_update for _, ingredient in held),
            "keeps_state": own_layers or any(remembers(type(ingredient)) for _, ingredient in held),
            "keeps_uploads": self.server.each or self.mean.rule is not None,
            "steps_repeat": self.criterion is None
            and all(type(ingredient).__module__.startswith("raffed.") for _, ingredient in held),
            "hooks": hooks,
            "training": Training(
                self.name, self.passes, self.solver, self.head, self.personal, needs_sgd, one_rate
            ),
        }
        for name, value in derived.items():
            object.__setattr__(self, name, value)

    def _check_slots(self) -> None:
        """Refuse what does not belong into a slot. A list of terms or passes becomes a tuple."""
        check_slot("Method", "name", self.name, str)
        for slot, kind in _SLOTS.items():
            check_slot(self.name, slot, getattr(self, slot), kind, optional=slot not in _FILLED)
        for slot, kind in (("terms", Term), ("passes", Pass)):
            check_many(self.name, slot, getattr(self, slot), kind, some=slot == "passes")
            object.__setattr__(self, slot, tuple(getattr(self, slot)))
        if self.criterion is not None and self.head is None:  # a head hands the logits to the loss
            object.__setattr__(self, "head", UnchangedLogits())
        slots: tuple[tuple[str, Ingredient | None], ...] = (
            ("head", self.head),
            ("correction", self.correction),
            ("solver", self.solver),
            ("opening", self.opening),
            ("message", self.message),
            ("personal", self.personal),
            ("optimizer", self.optimizer),
            ("compression", self.compression),
        )
        terms = tuple((f"term-{type(term).__name__}", term) for term in self.terms)
        held = *((slot, ingredient) for slot, ingredient in slots if ingredient is not None), *terms
        object.__setattr__(self, "_held", held)
        check_pairs(self.name, "network", self.network)
        for slot, ingredient in self.ingredients():
            if not is_raffeds(type(ingredient)):
                check_declared(self.name, slot, ingredient)
        check_declared(self.name, "server", self.server, RULE_NEEDED)
        if self.mean.reweighting is not None:
            check_declared(self.name, "mean", self.mean.reweighting, RULE_NEEDED)

    def with_loss(self, criterion: Criterion) -> Method:
        """Return the same method with a loss in the place of the cross-entropy.

        A head changes the logits before this loss, and terms are added to it. `Context.ce` is this loss, too.

        Raises:
            UsageError: The method has a loss of its own, or needs the cross-entropy.
        """
        return replace(self, criterion=criterion)

    def _check_loss(self, criterion: Criterion) -> None:
        """Refuse a loss in the place of the cross-entropy that this method would not use."""
        if self.head is not None and type(self.head).loss is not Head.loss:
            raise UsageError(
                f"{self.name} has a loss of its own ({type(self.head).__name__}), so {criterion.name} cannot "
                f"replace it; leave out --loss"
            )
        for _, part in self.ingredients():
            if part.needs_cross_entropy:
                raise UsageError(
                    f"{self.name} works with gradients of the cross-entropy ({type(part).__name__}), so "
                    f"{criterion.name} cannot replace it; leave out --loss"
                )

    def acts_last(self, models: str) -> bool:
        """Whether these models, "global" or "personal", are finished by the run's last round only."""
        personal = models == "personal" and self.personal is not None and self.personal.acts_last
        return self.server.acts_last or personal

    @cached_property
    def why_no_robust_mean(self) -> str:
        """Why no robust rule can take the place of the mean of this method's uploads, or ""."""
        summed = [
            slot
            for slot, part in self.ingredients()
            if slot == "message" or slot in {**self.hooks["server_step"], **self.hooks["shares"]}
        ]
        if self.split.personal == "all":
            return "its clients share no weights"
        if self.server.each:
            return "its server also uses every upload in another way than by the mean"
        if summed:
            return f"its server also adds up messages ({', '.join(summed)}), which the rule would not protect"
        if self.mean.reweighting is not None:
            return "the weights of its mean depend on what clients report, which the rule would not protect"
        return "it relies on the weights of the mean elsewhere too" if self.mean.fixed else ""

    @property
    def records(self) -> Mapping[str, type[Record]]:
        """The classes of records that a state of this method may name in a file, by stored name.

        A class is known as soon as its module is imported, which making the method does. So a file is read
        with the method of its run, and no command that reads one can forget the import.
        """
        return REGISTRY

    def ingredients(self) -> tuple[tuple[str, Ingredient], ...]:
        """Return all ingredients as (slot name, ingredient).

        The slot name is the key of an ingredient's memory and messages everywhere.
        """
        return self._held


def unmoved(received: Params, sends_update: bool) -> Params:
    """Return what a client uploads that has not moved: what it received, or an update of 0.

    Args:
        received: The shared weights w^t that the client received.
        sends_update: Whether clients upload the update (`Method.sends_update`).
    """
    return received.zeros() if sends_update else received


_SLOTS: Final[dict[str, type]] = {
    "head": Head,
    "correction": Correction,
    "solver": LocalSolver,
    "opening": Opening,
    "message": Ingredient,
    "optimizer": Ingredient,
    "compression": Compression,
    "split": ParameterSplit,
    "personal": Personal,
    "mean": Mean,
    "server": ServerRule,
    "criterion": Criterion,
}
_FILLED: Final = ("split", "mean", "server")  # slots that are never None
RULE_NEEDED: Final[Needed] = (
    (ServerRule, ("step",), "step(self, own, w, mean, k)"),
    (Reweighting, ("report",), "report(self, class_counts)"),
    (Reweighting, ("weights",), "weights(self, usual, reports)"),
)
Factory = Callable[..., Method]
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


def _misplaced(
    message: Ingredient | None, solver: LocalSolver | None, optimizer: Ingredient | None
) -> Iterator[str]:
    """Yield what is in a slot where it would not do what its kind does."""
    for slot, part in (("message", message), ("solver", solver)):
        place = next((place for kind, place in _PLACES if isinstance(part, kind)), slot)
        if place != slot:
            yield (
                f"{slot} is {with_article(type(part).__name__)}, which only acts in the slot {place}; put it "
                f"there"
            )
    if optimizer is not None and not isinstance(optimizer, KeptOptimizer):
        yield (
            f"optimizer is {with_article(type(optimizer).__name__)}; only a run's keep_optimizer fills "
            "that slot, so leave it out (a rule of your own is a LocalSolver)"
        )


def _of_terms(names: list[str]) -> Iterator[str]:
    for name in names:
        if names.count(name) > 1:
            yield (
                f"two terms of class {name}; their memories would share one slot; give them different classes"
            )


def _of_shares(tellers: list[str]) -> Iterator[str]:
    """Yield that several ingredients tell shares of columns, of which only one set can be added up."""
    if len(tellers) > 1:
        yield f"{' and '.join(tellers)} both tell shares of columns; leave `shares` out of all but one"


def _of_a_solver(m: Method, solver: LocalSolver) -> Iterator[str]:
    """Yield what is only used in steps of SGD, although the method's solver steps by a rule of its own."""
    rule = type(solver).__name__
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
    if m.passes[0].lr_scale != 1.0:
        yield f"its pass has an lr_scale, but {rule} makes its own steps; leave lr_scale out"
    if m.passes[0].part != "all":
        yield (
            f"its pass trains the part {m.passes[0].part!r} of the network, but {rule} steps all of it; "
            f"leave out part, and let {rule}.step keep the other weights"
        )


def _of_a_correction(correction: Correction | None, passes: tuple[Pass, ...]) -> Iterator[str]:
    if correction is not None and correction.plain_sgd and any(pass_.momentum != 0.0 for pass_ in passes):
        yield (
            f"{type(correction).__name__} needs plain SGD (momentum 0 in every pass): its control variates "
            "divide the displacement by the summed learning rates, which momentum breaks"
        )
