"""What all ingredients have in common: memories on both sides, and a message; and compressed uploads."""

from __future__ import annotations

import functools
import math
import re
import types
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final, Generic

import torch
from torch import Tensor

from raffed.config.aggregation import CompressionRule, Quantize, TopK
from raffed.core import seeds
from raffed.core.context import Context, Received, Spec
from raffed.core.messages import Memory, Message, Private, ServerMemory, Upload, Wire
from raffed.core.params import Params, Record, State, arranged_like
from raffed.core.parts import Budget
from raffed.own.user_code import UserCodeError, described, place_of, with_article

# What the hooks of a user's own ingredients must return, looked at where they return it.
#
# A wrong result would end in an error some lines further on, in raffed's own code, or in none at all. So
# each hook of a class from outside raffed is wrapped when the class is made. Its results must be of the
# kinds that the annotation of raffed's own hook names, and its points get the order in which raffed has
# their tensors. raffed's own ingredients are not wrapped.


_MARK: Final = "__raffed_watched__"
# A word of an annotation → what a result may be
_KINDS: Final[Mapping[str, tuple[type, ...]]] = {
    "Memory": (Private,),
    "Message": (Wire,),
    "ServerMemory": (Wire, Private),
    "Carried": (Record,),
    "Params": (Params,),
    "State": (State,),
    "Budget": (Budget,),
    "Tensor": (Tensor,),
    "Mapping": (Mapping,),
    "tuple": (tuple,),
    "list": (list,),
    "dict": (dict,),
    "str": (str,),
    "int": (int,),
    "float": (int, float),
    "None": (type(None),),
}
_LOSSES: Final = ("loss", "private_loss")
# Hook → the argument whose names, order and shapes its result has
_LIKE: Final[Mapping[str, int]] = {
    "outgoing": 0,
    "update_gates": 0,
    "gradient": 0,
    "gradient_at": 0,
    "after_step": 0,
    "statistics": 1,
    "evaluation_weights": 1,
}


def is_raffeds(kind: type) -> bool:
    """Return whether a class is one of raffed's own."""
    return kind.__module__.split(".")[0] == "raffed"


def fault(ingredient: Any, hook: str, why: str) -> UserCodeError:
    """Return the error about a result, which begins with the file and line of the hook.

    Args:
        ingredient: The ingredient.
        hook: Name of the hook.
        why: What it did, and what it must do.
    """
    kind = type(ingredient)
    return UserCodeError(f"{place_of(getattr(kind, hook, kind))}: {kind.__name__}.{hook} {why}")


def watch(kind: type) -> None:
    """Look at the results of a class's hooks from now on. raffed's own classes stay as they are.

    Args:
        kind: The class of an ingredient or of a server's rule.
    """
    if is_raffeds(kind):
        return
    hooks: dict[str, Any] = {}
    for base in reversed(kind.__mro__):
        if base is not object and is_raffeds(base):
            hooks.update({name: value for name, value in vars(base).items() if not name.startswith("_")})
    for hook, usual in hooks.items():
        function = next(vars(base)[hook] for base in kind.__mro__ if hook in vars(base))
        from_user = isinstance(function, types.FunctionType) and not function.__module__.startswith("raffed.")
        if from_user and isinstance(usual, types.FunctionType) and not hasattr(function, _MARK):
            setattr(kind, hook, _watched(hook, function, _kinds(usual)))


def _kinds(hook: types.FunctionType) -> tuple[type, ...]:
    """Return the classes of which the result of a hook must be one; none if its annotation does not say."""
    words = re.sub(r"\[.*\]", "", str(hook.__annotations__.get("return", ""))).split(" | ")
    if not set(words) <= _KINDS.keys():
        return ()
    numbers = (int, float) if hook.__name__ in _LOSSES else ()  # 0 adds nothing
    return (*numbers, *(kind for word in words for kind in _KINDS[word]))


def _watched(hook: str, function: Callable[..., Any], kinds: tuple[type, ...]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(self: Any, *given: Any, **named: Any) -> Any:
        try:
            result = function(self, *given, **named)
        except AttributeError as error:
            if error.name and error.obj is None:
                error.args = (f"{error}{_why_none(self, hook, given)}",)
            raise
        if why := _why_wrong(hook, result, kinds, given):
            raise fault(self, hook, why)
        try:
            return _in_order(hook, result, given)
        except ValueError as error:
            raise fault(self, hook, f"returned other tensors than it must: {error}") from error

    setattr(call, _MARK, True)
    return call


def _why_none(ingredient: Any, hook: str, given: tuple[Any, ...]) -> str:
    """Return why a hook may have met None: its ingredient has no memory at the server. "" if it has one."""
    clause = f"is None unless {type(ingredient).__name__}.server_init(self, w, spec) returns"
    if hook in ("server_step", "report") and isinstance(ingredient, Ingredient):
        return f"; s {clause} a Wire or a Private record" if given and given[0] is None else ""
    without = any(isinstance(k, Context) and k.server is None for k in given)
    return f"; k.server {clause} a Wire" if without else ""


def _why_wrong(hook: str, result: Any, kinds: tuple[type, ...], given: tuple[Any, ...]) -> str:
    """Return what is wrong with a result, or ""."""
    if kinds and not isinstance(result, kinds):
        wanted = " or ".join(
            "None" if kind is type(None) else with_article(kind.__name__)
            for kind in kinds
            if hook not in _LOSSES or not issubclass(kind, int | float)
        )
        return f"returned {described(result)}; it must return {wanted}"
    if hook in _LOSSES:
        return _why_no_loss(result)
    low = 1 if hook == "batches" else 0
    if isinstance(result, int | float) and not low <= result < math.inf:
        return f"returned {described(result)}; it must return a number of at least {low}"
    if hook == "logits" and given and result.shape != given[0].shape:
        return f"returned a tensor {_shape(result)}; it must return logits {_shape(given[0])}, as given"
    return ""


def _why_no_loss(value: Tensor | float | None) -> str:
    """Return why a value cannot be added to the loss, or ""."""
    if isinstance(value, Tensor):
        if not value.dim() and value.is_floating_point():
            return ""
        return (
            f"returned a tensor {_shape(value)} of {value.dtype}; it must return a tensor of one number, "
            "without dimensions: take .mean() or .sum()"
        )
    if value is None or (value == 0 and not isinstance(value, bool)):
        return ""
    return (
        f"returned the number {value!r}, which has no gradient; compute the value from f and k with torch, "
        "or return 0 where it adds nothing"
    )


def _in_order(hook: str, result: Any, given: tuple[Any, ...]) -> Any:
    """Return a result with its tensors in the order in which raffed has them.

    Raises:
        ValueError: It has other tensors.
    """
    if hook in _LIKE:
        place = _LIKE[hook]
        return _like(result, given[place]) if place < len(given) else result
    if hook in ("start", "model"):
        start = getattr(given[0], "start", None) if given else None  # None where a hook is called by hand
        return result.arranged(start) if isinstance(start, State) and len(start.w) else result
    if hook == "step" and isinstance(result, Record):
        try:
            return arranged_like(result, given[0]) if given else result
        except ValueError:  # fields may begin as None, and then there is nothing to compare with
            return result
    if hook == "step" and len(given) > 1:
        memory, w = result
        return memory, _like(w, given[1])
    return result


def _like(point: Params, like: Params) -> Params:
    if not isinstance(point, Params):
        raise ValueError(f"{described(point)} in place of a Params")
    arranged = point.arranged(like.names)
    if odd := [name for name in like.names if point[name].shape != like[name].shape]:
        raise ValueError(f"other shapes of {', '.join(odd[:4])}")
    return arranged


def _shape(value: Tensor) -> str:
    return f"[{', '.join(map(str, value.shape))}]"


class Ingredient(Record, Generic[Memory, Message, ServerMemory]):
    """One idea of a paper, with its own memory on the client's and on the server's side.

    Every hook has a default that does nothing: no memory, no message, no change. A subclass overrides the
    hooks that it needs.

    The type parameters are the memory of a client (a `Private` record), the message that a client sends (a
    `Wire`), and the memory of the server (a `Wire`, which `k.server` holds at the clients, or a `Private`
    record). They may be left out.

    Attributes:
        needs_sgd: Whether it is exact only if the clients step by SGD. Then a run's other optimiser is
            overridden in shared training.
        needs_one_rate: Whether it is exact only if all steps of a round have one learning rate. Then a run's
            schedule goes by rounds.
        sends_update: Whether `outgoing` returns w^t − w_k, times a number of its own, in place of weights.
            Compression, modelled attacks and clipping then start from 0, which a client sends that has not
            moved, and not from w^t.
    """

    _compare = True
    needs_cross_entropy: ClassVar[bool] = False  # what it computes is a gradient of the cross-entropy

    needs_sgd: ClassVar[bool] = False
    needs_one_rate: ClassVar[bool] = False
    sends_update: ClassVar[bool] = False

    def __init_subclass__(cls, stored: str = "") -> None:
        super().__init_subclass__(stored)
        watch(cls)

    @property
    def needs_held_out(self) -> bool:
        """Whether it needs clients' validation parts (`k.held_out`), without which a run is then refused."""
        return False

    def caution(self, normalised: bool) -> str:
        """Return one line about what may go wrong with the run's network; empty if nothing is known to.

        It is printed before a run begins.

        Args:
            normalised: Whether the network has a layer that normalises (BatchNorm, GroupNorm, LayerNorm).
        """
        return ""

    def server_init(self, w: Params, spec: Spec) -> ServerMemory | None:
        """Return the server's memory before the first round.

        Args:
            w: The initial shared parameters.
            spec: Sizes of the model and of the federation.

        Returns:
            A `Wire`, which is broadcast to the clients, or a `Private` record, which is not, or None.
        """
        return None

    def client_init(self, k: Context[None, ServerMemory]) -> Memory | None:
        """Return a client's memory at its first participation, or None.

        Args:
            k: What the client knows before training. `k.mine` is not set yet.
        """
        return None

    def finish(self, k: Context[Memory, ServerMemory]) -> tuple[Memory | None, Message | None]:
        """Return what a client keeps and what it sends after local training.

        Args:
            k: What the client knows after training. `k.state` is the trained model.

        Returns:
            (memory to keep, message to send). Either can be None.
        """
        return k.mine, None

    def outgoing(self, w: Params, k: Context[Memory, ServerMemory]) -> Params:
        """Return the parameters that are sent in place of the trained shared parameters.

        Args:
            w: The shared parameters as trained, or as an ingredient before this one changed them.
            k: What the client knows after training.

        Returns:
            Parameters with the names and shapes of `w`.
        """
        return w

    def shares(self, k: Context[Memory, ServerMemory]) -> Tensor | None:
        """Return the client's shares a_kc of K columns, or None.

        The server's rule then gets K means in place of one (`Received.columns`), each of Σ p_k a_kc w_k. They
        are exact sums, of which no upload can be seen. Only one ingredient of a method may tell shares.

        Args:
            k: What the client knows after training.

        Returns:
            Shares [K], which are at least 0 and add up to 1, of all clients or of none.
        """
        return None

    def server_step(self, s: ServerMemory, got: Received[Message], spec: Spec) -> ServerMemory | None:
        """Return the server's memory after a round.

        Args:
            s: The server's memory before it.
            got: What the participants sent for this ingredient.
            spec: Sizes of the model and of the federation.

        Returns:
            A `Wire`, which is broadcast in the next round, or a `Private` record, or None.
        """
        return s

    def report(self, s: ServerMemory) -> Mapping[str, float]:
        """Return numbers to record after each round: names → values, which become rows and are shown.

        Args:
            s: The server's memory after the round.

        Returns:
            Names of small letters, digits and _, which no other metric has, and finite numbers or NaN.
        """
        return {}

    def report_client(self, k: Context[Memory, ServerMemory]) -> Mapping[str, float]:
        """Return a participant's numbers, of which the mean over participants is recorded after each round.

        Args:
            k: What the client knows after training. `k.mine` is what it keeps.
        """
        return {}


def remembers(kind: type[Ingredient]) -> bool:
    """Return whether the clients of a class of ingredients keep a memory, which its `client_init` makes."""
    return kind.client_init is not Ingredient.client_init


# Compression of what a client uploads: the arithmetic, and the ingredient that keeps what was left out.
#
# What a client sends is the downloaded weights, moved by the compressed update. So the server adds up whole
# points, as without compression, and only the count of bytes knows that fewer were sent. A client whose
# method sends an update sends the compressed update.


class LeftOut(Private):
    """What a client's compressed uploads have left out so far, and what its next one gets.

    Attributes:
        w: The sum of what was left out. It is empty before the client's first upload.
    """

    w: Params


class Compression(Ingredient[LeftOut]):
    """Compresses the weights of an upload, after all other ingredients have changed them.

    It never changes what a client trains, nor the messages of other ingredients. These are sent whole.

    Attributes:
        rule: The compression.
    """

    rule: CompressionRule

    def compress(self, w: Params, start: Params, k: Context[LeftOut]) -> tuple[Params, LeftOut | None]:
        """Return the weights that are sent, and what the client keeps.

        Args:
            w: The weights that the client would send without compression.
            start: What the client would send if it had not moved (`raffed.core.method.unmoved`).
            k: What the client knows, with this ingredient's memory in `k.mine`.
        """
        stream = seeds.generator(k.run_seed, "compression", k.round, k.client)
        return compressed(self.rule, w, start, stream), None

    def nbytes(self, upload: Upload) -> int:
        """Return the number of bytes of an upload, of which only the weights are compressed."""
        sizes = [tensor.numel() for tensor in upload.w.tensors.values()]
        return upload.nbytes() - 4 * upload.w.numel() + self.rule.nbytes(sizes)


class CompressionWithFeedback(Compression):
    """The same, with error feedback: what was left out is added to the client's next update."""

    def client_init(self, k: Context) -> LeftOut:
        return LeftOut(Params({}))

    def compress(self, w: Params, start: Params, k: Context[LeftOut]) -> tuple[Params, LeftOut | None]:
        """Return the weights that are sent, and the part of the update that they leave out."""
        left = k.mine.w
        wanted = w + left if len(left) else w
        sent, _ = super().compress(wanted, start, k)
        return sent, LeftOut((wanted - sent).clone())


def compressed(rule: CompressionRule, w: Params, start: Params, generator: torch.Generator) -> Params:
    """Return the weights that a client sends.

    Args:
        rule: The compression.
        w: The weights that the client would send without it.
        start: The weights that the client received, with the same names, or 0 if it sends an update.
        generator: The client's own random stream of this round. Numbers are drawn on the CPU.

    Returns:
        `w` itself if the rule changes nothing, or if `w` is not finite, so that the server's check finds it.
    """
    if rule.changes_nothing or not bool(torch.isfinite(w.flat).all()):
        return w
    if isinstance(rule, TopK):
        return _largest(rule, w, start)
    return _rounded(rule, w, start, generator)


def _largest(rule: TopK, w: Params, start: Params) -> Params:
    sizes = (w.flat.to(torch.float64) - start.flat.to(torch.float64)).abs()
    kept = rule.kept(w.numel())
    smallest = sizes.topk(kept, sorted=True).values[-1]
    sure, equal = sizes > smallest, sizes == smallest
    # Of equal numbers the first, so that it does not matter in which order a device finds them
    chosen = sure | (equal & (equal.cumsum(0) <= kept - sure.sum()))
    return Params.from_flat(w.layout, torch.where(chosen, w.flat, start.flat))


def _rounded(rule: Quantize, w: Params, start: Params, generator: torch.Generator) -> Params:
    def moved(trained: Tensor, received: Tensor) -> Tensor:
        begun = received.to(torch.float64)
        update = trained.to(torch.float64) - begun
        step = update.abs().max() / rule.levels if update.numel() else update.sum()
        chance = torch.rand(update.shape, generator=generator, dtype=torch.float64).to(update.device)
        steps = (update / torch.where(step > 0, step, 1.0) + chance).floor()
        steps = steps.clamp(-rule.levels, rule.levels)
        return (begun + steps * step).to(trained.dtype)

    received = start.tensors
    return Params({name: moved(tensor, received[name]) for name, tensor in w.tensors.items()}).clone()
