"""Who takes part in a round: the clients drawn, and what the plan of faults does to them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor

from raffed.config.faults import NO_FAULT, FaultOutcome, ParticipantFault
from raffed.config.federation import Fixed
from raffed.config.sections import Clock
from raffed.core import seeds
from raffed.core.messages import ServerState
from raffed.core.server import Mean
from raffed.federation.faults import draw_faults
from raffed.federation.selection import Draw, Losses, chosen, chosen_by_own, own_selection
from raffed.results import metrics
from raffed.results.metric import Row
from raffed.runtime.api import Backend, RoundOrder
from raffed.runtime.federated_data import FederatedData
from raffed.runtime.placement import make_stacks


def no_losses(clients: Sequence[int]) -> Sequence[float]:
    """Stand for the losses of clients where no selection asks for them."""
    raise ValueError("the selection needs losses, which are known only when the round begins")


def drawn_clients(data: FederatedData, round: int, losses: Losses = no_losses) -> Counter[int]:
    """Return how often each drawn client was drawn for a round, counted from 0.

    With stages in `inner` order, one drawing serves the M rounds that visit all stages. Rules count the
    clients that may train, in ascending order; only a fixed list names clients by their own numbers.

    Args:
        data: The clients of the run and their samples.
        round: Number of the round.
        losses: Function from clients to the losses of the present model on their training samples.
    """
    federation, stages = data.federation, data.partition.stages
    drawing = round if stages is None else stages.draw(round)
    generator = seeds.rng(data.seed, "sampling", drawing)
    clients, sizes, rule = data.trainable, data.sizes_at(round), federation.rule()
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
        picked = chosen(rule, draw)
    else:
        selection = own_selection(federation.selection)
        picked = chosen_by_own(federation.selection, selection, federation.selection_args, draw)
    return Counter(clients[place] for place in picked)


def losses_by(backend: Backend, server: Callable[[], ServerState], versions: Mapping[int, int]) -> Losses:
    """Return a function that asks a backend for the losses of the server's present model.

    Args:
        backend: The backend.
        server: Returns the server's present state.
        versions: Client → number of rounds done when it last took part.
    """

    def losses(clients: Sequence[int]) -> Sequence[float]:
        kept = [versions.get(client, 0) for client in clients]
        return backend.losses(RoundOrder.alone(server().broadcast(), clients, kept, measure=False))

    return losses


def draw_participants(data: FederatedData, round: int) -> tuple[int, ...]:
    """Draw the clients S_t of a round, in ascending order, each once.

    They are the same for every method. With stages in `inner` order, one drawing serves the M rounds that
    visit all stages (GLDP's Algorithm 1).
    """
    return tuple(sorted(drawn_clients(data, round)))


@dataclass(frozen=True)
class RoundParticipants:
    """The clients drawn for a round, in ascending order, and what happens to each.

    `times` says how often a client was drawn; once, unless the selection draws with replacement.
    """

    faults: dict[int, ParticipantFault]
    times: Counter[int]

    @staticmethod
    def of(data: FederatedData, round: int, losses: Losses = no_losses) -> RoundParticipants:
        """Return the participants of a round, counted from 0.

        `losses` is asked for the losses of clients, if the selection needs them.
        """
        times = drawn_clients(data, round, losses)
        return RoundParticipants(draw_faults(data.faults, data.seed, round, sorted(times)), times)

    @staticmethod
    def present(clients: Sequence[int]) -> RoundParticipants:
        """Return these clients as participants to which nothing happens."""
        return RoundParticipants(dict.fromkeys(clients, NO_FAULT), Counter(clients))

    @property
    def trained(self) -> tuple[int, ...]:
        """Those that train. They keep their private state, whatever happens to their uploads."""
        return tuple(client for client, fault in self.faults.items() if fault.outcome != "dropped")

    @property
    def counted(self) -> tuple[int, ...]:
        """Those whose uploads are part of the server's sums."""
        return self._with("counted")

    @property
    def straggling(self) -> int:
        """Number of participants that train for fewer steps."""
        return sum(self.faults[client].completed_fraction < 1.0 for client in self.trained)

    def weights(
        self, mean: Mean, sizes: list[int], class_counts: Callable[[int], Tensor]
    ) -> tuple[float, ...]:
        """Return p_i of everyone that trains; it is 0 for those whose uploads do not count.

        A client that was drawn several times has the sum of as many weights.

        Args:
            mean: The mean of the method, which declares the weights.
            sizes: Training samples of every client.
            class_counts: Function from a client to its training samples of each class [C].
        """
        counted = [client for client in self.counted for _ in range(self.times[client])]
        shares: dict[int, float] = {}
        if counted:
            weights = mean.weights([sizes[c] for c in counted], lambda: [class_counts(c) for c in counted])
            for client, weight in zip(counted, weights, strict=True):
                shares[client] = shares.get(client, 0.0) + weight
        return tuple(shares.get(client, 0.0) for client in self.trained)

    def rows(self, number: int) -> list[Row]:
        """Return the rows about faults. `number` is the number of rounds done."""
        numbers = {
            metrics.DROPPED: len(self._with("dropped")),
            metrics.LATE: len(self._with("late")),
            metrics.REFUSED: len(self._with("refused")),
            metrics.STRAGGLING: self.straggling,
        }
        drawn = len(self.faults)
        return [metric.row(number, float(value), n=drawn) for metric, value in numbers.items()]

    def _with(self, outcome: FaultOutcome) -> tuple[int, ...]:
        return tuple(client for client, fault in self.faults.items() if fault.outcome == outcome)


def discounted(
    clock: Clock, number: int, weights: Sequence[float], starts: Sequence[int]
) -> tuple[float, ...]:
    """Return the weights of uploads that may be stale: each times s(τ), and times α or η.

    Args:
        clock: The run's virtual clock.
        number: Steps of the server that are done.
        weights: Weights of the uploads without the clock, whose sum is 1.
        starts: Number of the model from which each client began.
    """
    factors = [clock.mixing * clock.discount(number - start) for start in starts]
    return tuple(weight * factor for weight, factor in zip(weights, factors, strict=True))


@dataclass(frozen=True)
class RoundPlan:
    """Everything about a round, counted from 0, that is known before the previous one is over.

    `sizes` holds the samples of every client. `weights`, `stacks`, `faults` and `peers` are those of a
    RoundOrder. `measure` says whether the round is scored, and `surveyed` whether all clients are scored
    after it. `starts` holds the number of the model from which each participant began, if the server does not
    wait for all (config/sections.py); otherwise it is empty.
    """

    number: int
    participants: RoundParticipants
    sizes: list[int]
    weights: tuple[float, ...]
    stacks: tuple[tuple[int, ...], ...]
    faults: tuple[ParticipantFault, ...]
    peers: tuple[int, ...]
    measure: bool
    surveyed: bool
    starts: tuple[int, ...] = ()

    @staticmethod
    def of(
        data: FederatedData,
        mean: Mean,
        number: int,
        *,
        cohort: int,
        masks: bool,
        losses: Losses = no_losses,
        clock: Clock | None = None,
        arrived: Mapping[int, int] | None = None,
    ) -> RoundPlan:
        """Return the plan of a round.

        Args:
            data: The clients of the run and their samples.
            mean: The mean of the run's method.
            number: Number of the round.
            cohort: Clients that are trained in one stack (`numerics.cohort`).
            masks: Whether uploads are masked.
            losses: Function from clients to losses, if the selection needs them.
            clock: The run's virtual clock, for a server that does not wait.
            arrived: Client → number of the model from which it began, for a server that does not wait.
        """
        federation, sizes = data.federation, data.sizes_at(number)
        participants = (
            RoundParticipants.of(data, number, losses)
            if arrived is None
            else RoundParticipants.present(sorted(arrived))
        )
        trained = participants.trained
        weights = participants.weights(mean, sizes, lambda client: data.class_counts_at(number, client))
        starts = tuple(arrived[client] for client in trained) if arrived is not None else ()
        return RoundPlan(
            number,
            participants,
            sizes,
            weights if clock is None else discounted(clock, number, weights, starts),
            stacks=make_stacks(trained, sizes, cohort),
            faults=tuple(participants.faults[client] for client in trained),
            peers=participants.counted if masks else (),
            measure=(number + 1) % federation.eval_every == 0 or number + 1 == federation.rounds,
            surveyed=number + 1 > federation.rounds - federation.survey,
            starts=starts,
        )
