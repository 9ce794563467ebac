"""Where clients live: clients on actors, and actors on cores or GPUs. It changes no bit of any result."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from raffed.config.run import RunConfig
from raffed.errors import UsageError

Stack = tuple[int, ...]  # clients trained together
INLINE_BYTES = 100_000  # up to Ray's inline limit, a plain argument is faster than the object store
# A process with torch and a small network (measured: 315 MB), plus data and reserve
ACTOR_BYTES = 450 * 2**20


@dataclass(frozen=True)
class Resources:
    """What the machine or cluster offers: cores, GPUs, and bytes of memory that are free for actors."""

    cores: float
    gpus: float
    memory: float


@dataclass(frozen=True)
class PlacementPlan:
    """Which actor trains which clients.

    Attributes:
        homes: `homes[a]` are the clients of actor a.
        num_cpus: Cores that each actor reserves in Ray's accounting.
        num_gpus: GPUs, or the share of one, that each actor reserves in Ray's accounting.
        sticky: Whether a client is trained only by its own actor, as with one actor per client. Otherwise a
            round's clients may be lent to another actor, so that none is idle. Their client states follow
            through the store of client states and not through the driver.
    """

    homes: tuple[tuple[int, ...], ...]
    num_cpus: float
    num_gpus: float
    sticky: bool

    def describe(self) -> dict[str, object]:
        """Return the plan for run.json."""
        return {
            "execution": "ray",
            "actors": len(self.homes),
            "clients_per_actor": max(len(home) for home in self.homes),
            "num_cpus": self.num_cpus,
            "num_gpus": self.num_gpus,
        }

    def shares(
        self, stacks: Sequence[Stack], work: Sequence[int], without: Collection[int] = ()
    ) -> list[list[Stack]]:
        """Return the stacks of this round for each actor.

        The largest stacks are placed first. Each goes to its home actor while that has room, and otherwise to
        the actor with the least work. A stack's home is the home of its first client. No actor exceeds the
        mean by more than one stack's work, unless the plan is sticky.

        Args:
            stacks: The stacks of the round.
            work: Number of steps of each stack.
            without: Actors that get nothing.
        """
        home = {client: actor for actor, clients in enumerate(self.homes) for client in clients}
        shares: list[list[Stack]] = [[] for _ in self.homes]
        loads = [math.inf if actor in without else 0.0 for actor in range(len(self.homes))]
        target = max(sum(work) / (len(self.homes) - len(without)), max(work))
        for steps, stack in sorted(zip(work, stacks, strict=True), key=lambda pair: (-pair[0], pair[1])):
            actor = home[stack[0]]
            if not self.sticky and loads[actor] + steps > target:
                actor = min(range(len(loads)), key=lambda a: (loads[a], a))
            shares[actor].append(stack)
            loads[actor] += steps
        return [sorted(share) for share in shares]


def make_stacks(participants: Sequence[int], sizes: Sequence[int], cohort: int) -> tuple[Stack, ...]:
    """Divide the participants into stacks of at most `cohort` clients of similar size.

    With cohort 0, every stack has one client.

    Clients are sorted by decreasing number of training samples, and by number if these are equal. The last
    stack takes what is left. The stacks depend only on the round's participants and never on who shares an
    actor, so the bits are the same for any placement.
    """
    if cohort < 2:
        return tuple((client,) for client in participants)
    order = sorted(participants, key=lambda client: (-sizes[client], client))
    return tuple(tuple(order[i : i + cohort]) for i in range(0, len(order), cohort))


def make_plan(config: RunConfig, clients: int, resources: Resources) -> PlacementPlan:
    """Return the plan for a run.

    On CPUs, "auto" uses as many actors as cores, participants of a round and memory allow. More actors than
    cores are slower. On GPUs it uses 1/gpu_fraction actors on each.

    Raises:
        UsageError: What the configuration asks for does not fit the resources.
    """
    runtime = config.runtime
    share = runtime.gpu_fraction
    if share and resources.gpus < 1:
        raise UsageError(
            f"runtime.gpu_fraction = {share}, but there is no GPU here; leave it out to train on CPUs"
        )
    actors = _actors(config, clients, resources)
    fits = int(resources.memory // ACTOR_BYTES)
    if actors > max(fits, 1):
        raise UsageError(
            f"{actors} actors need about {actors * ACTOR_BYTES / 2**30:.1f} GiB, "
            f"{resources.memory / 2**30:.1f} GiB are free; "
            f"set runtime.actors to at most {max(fits, 1)}, or clients_per_actor to at least "
            f"{-(-clients // max(fits, 1))}"
        )
    slots = int(resources.gpus * round(1 / share)) if share else 0
    if share and actors > slots:
        raise UsageError(
            f"{actors} actors of {share} GPU need more than {resources.gpus:g} GPU ({slots} fit); raise "
            f"clients_per_actor"
        )
    homes = tuple(tuple(range(a, clients, actors)) for a in range(actors))
    cpus = min(1.0, int(resources.cores / actors * 1e4) / 1e4)
    return PlacementPlan(homes, cpus, int(share * 1e4) / 1e4, sticky=runtime.clients_per_actor == 1)


def _actors(config: RunConfig, clients: int, resources: Resources) -> int:
    runtime = config.runtime
    if runtime.clients_per_actor:
        return -(-clients // runtime.clients_per_actor)
    if runtime.actors:
        if runtime.actors > clients:
            raise UsageError(
                f"runtime.actors = {runtime.actors}, but there are only {clients} clients; set it to at "
                f"most {clients}"
            )
        return runtime.actors
    at_once = config.federation.participants(clients)
    if runtime.gpu_fraction:
        return max(1, min(int(resources.gpus * round(1 / runtime.gpu_fraction)), at_once))
    return max(1, min(int(resources.cores), at_once, int(resources.memory // ACTOR_BYTES)))
