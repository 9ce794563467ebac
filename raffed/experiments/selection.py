"""Draw the participants of a round of a run, by its selection."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from raffed.config.selection import Fixed
from raffed.core import seeds
from raffed.core.messages import ServerState
from raffed.core.participation.selection import Draw, Losses, chosen, chosen_by_own
from raffed.runtime.api import Backend, RoundOrder
from raffed.runtime.own_selection import own_selection
from raffed.runtime.setup import Setup


def no_losses(clients: Sequence[int]) -> Sequence[float]:
    """Stand for the losses of clients where no selection asks for them."""
    raise ValueError("the selection needs losses, which are known only when the round begins")


def drawn_clients(setup: Setup, round: int, losses: Losses = no_losses) -> Counter[int]:
    """Return how often each drawn client was drawn for a round, counted from 0.

    With stages in `inner` order, one drawing serves the M rounds that visit all stages. Rules count the
    clients that may train, in ascending order; only a fixed list names clients by their own numbers.

    Args:
        setup: The run.
        round: Number of the round.
        losses: Function from clients to the losses of the present model on their training samples.
    """
    federation, stages = setup.config.federation, setup.partition.stages
    drawing = round if stages is None else stages.draw(round)
    generator = seeds.rng(setup.config.seed, "sampling", drawing)
    clients, sizes, rule = setup.trainable, setup.sizes_at(round), federation.rule()
    draw = Draw(
        drawing,
        [sizes[client] for client in clients],
        federation.participants(len(clients)),
        generator,
        lambda places: losses([clients[place] for place in places]),
    )
    if isinstance(rule, Fixed):
        return Counter(chosen(rule, draw))
    if rule is not None:
        found = chosen(rule, draw)
    else:
        own = own_selection(setup.config)
        found = chosen_by_own(federation.selection, own, federation.selection_args, draw)
    return Counter(clients[place] for place in found)


def losses_by(backend: Backend, server: Callable[[], ServerState], versions: Mapping[int, int]) -> Losses:
    """Return a function that asks a backend for the losses of the server's present model.

    Args:
        backend: The backend.
        server: Returns the server's present state.
        versions: Client → number of rounds done when it last took part.
    """

    def losses(clients: Sequence[int]) -> Sequence[float]:
        order = RoundOrder(
            server().broadcast(),
            tuple(clients),
            (0.0,) * len(clients),
            tuple(versions.get(client, 0) for client in clients),
            False,
            tuple((client,) for client in clients),
        )
        return backend.losses(order)

    return losses


__all__ = ["drawn_clients", "losses_by", "no_losses"]
