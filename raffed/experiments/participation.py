"""Who is in a round: drawn, struck by the plan's faults, trained, counted."""

from __future__ import annotations

from dataclasses import dataclass

from raffed.config.faults import FaultOutcome, ParticipantFault
from raffed.core import seeds
from raffed.core.aggregation.fault_injection import draw_faults
from raffed.core.method import Method
from raffed.results.schema import Row
from raffed.runtime.placement import make_stacks
from raffed.runtime.setup import Setup


def draw_participants(setup: Setup, round: int) -> tuple[int, ...]:
    """S_t, ascending: round(Q·N) clients, uniform without replacement; the same for every method.

    In stages of `inner` order one drawing serves the M rounds that visit them (GLDP's Algorithm 1).
    """
    clients, stages = setup.partition.num_clients, setup.partition.stages
    drawing = round if stages is None else stages.draw(round)
    count = setup.config.federation.participants(clients)
    drawn = seeds.rng(setup.config.seed, "sampling", drawing).permutation(clients)[:count]
    return tuple(sorted(int(c) for c in drawn))


@dataclass(frozen=True)
class RoundParticipants:
    """The clients drawn for a round, ascending, and what becomes of each."""

    fates: dict[int, ParticipantFault]

    @staticmethod
    def of(setup: Setup, round: int) -> RoundParticipants:
        return RoundParticipants(
            draw_faults(setup.config.faults, setup.config.seed, round, draw_participants(setup, round))
        )

    @property
    def trained(self) -> tuple[int, ...]:
        """Those that take part; they keep their private state, whatever becomes of their uploads."""
        return tuple(client for client, fate in self.fates.items() if fate.outcome != "dropped")

    @property
    def counted(self) -> tuple[int, ...]:
        """Those whose uploads reach the server's sums."""
        return self._with("counted")

    @property
    def straggling(self) -> int:
        """How many train for fewer steps."""
        return sum(self.fates[client].completed_fraction < 1.0 for client in self.trained)

    def weights(self, method: Method, sizes: list[int]) -> tuple[float, ...]:
        """p_i of everyone that trains: over those that count, 0 for the others."""
        counted = self.counted
        shares = (
            dict(zip(counted, method.mean.weights([sizes[c] for c in counted]), strict=True))
            if counted
            else {}
        )
        return tuple(shares.get(client, 0.0) for client in self.trained)

    def rows(self, number: int) -> list[Row]:
        """What happened (results/schema.py); `number`: rounds done."""
        dropped, late, refused = (len(self._with(outcome)) for outcome in ("dropped", "late", "refused"))
        numbers = {"dropped": dropped, "late": late, "refused": refused, "straggling": self.straggling}
        return [
            Row(number, "global", "train", name, float(value), n=len(self.fates))
            for name, value in numbers.items()
        ]

    def _with(self, outcome: FaultOutcome) -> tuple[int, ...]:
        return tuple(client for client, fate in self.fates.items() if fate.outcome == outcome)


@dataclass(frozen=True)
class RoundPlan:
    """All that is known of a round, from 0, before the one before it is over. sizes: of every client;
    weights, stacks, fates, peers: as in a Job; measure, surveyed: whether it is scored, and all clients after
    it.
    """

    number: int
    roster: RoundParticipants
    sizes: list[int]
    weights: tuple[float, ...]
    stacks: tuple[tuple[int, ...], ...]
    fates: tuple[ParticipantFault, ...]
    peers: tuple[int, ...]
    measure: bool
    surveyed: bool

    @staticmethod
    def of(setup: Setup, method: Method, number: int) -> RoundPlan:
        federation, roster, sizes = (
            setup.config.federation,
            RoundParticipants.of(setup, number),
            setup.sizes_at(number),
        )
        trained = roster.trained
        return RoundPlan(
            number,
            roster,
            sizes,
            roster.weights(method, sizes),
            stacks=make_stacks(trained, sizes, setup.config.numerics.cohort),
            fates=tuple(roster.fates[client] for client in trained),
            peers=roster.counted if setup.config.privacy.masks else (),
            measure=(number + 1) % federation.eval_every == 0 or number + 1 == federation.rounds,
            surveyed=number + 1 > federation.rounds - federation.survey,
        )
