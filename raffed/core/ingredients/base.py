"""What all ingredients have in common: memories on both sides, and a message."""

from __future__ import annotations

from typing import ClassVar, Generic

from raffed.core.context import Context, Received, Spec
from raffed.core.ingredients.results import watch
from raffed.core.messages import Memory, Message, ServerMemory
from raffed.core.params import Params
from raffed.core.record import Record


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


def remembers(one: Ingredient) -> bool:
    """Return whether the clients of an ingredient keep a memory, which its `client_init` makes."""
    return type(one).client_init is not Ingredient.client_init
