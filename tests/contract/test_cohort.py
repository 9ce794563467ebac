"""Cohort execution: k clients stepped together give what each gives alone, for every method, from the same
streams.

Two statements for each. In float64 a whole round agrees to 1e-9 (1e-6 where a record holds float32): the
algorithm is the same. In float32 one step agrees to 1e-5, the rounding of batched kernels; over many steps
training amplifies it as it does any rounding. The clients have 8, 10, 6 and 11 samples in batches of 4: short
batches of different sizes, different numbers of steps.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from raffed.config.training import Local
from raffed.core.method import Method
from raffed.core.parts import Pass
from raffed.core.stacked.batches import StackedStep, stacked_records, stacked_steps
from raffed.core.training.network import Network
from raffed.errors import UsageError
from raffed.methods import METHODS, build_method
from raffed.methods.fedavg import fedavg
from raffed.methods.fedmr import fedmr
from tests.contract.test_objectives import OBJECTIVES, as_double
from tests.tiny import NOISY, PLAIN, Tiny, clients, experienced, leaves, network, same_bits, short

SETTINGS: dict[str, Callable[[Method], Tiny]] = {
    "plain": Tiny,
    "batchnorm": lambda m: Tiny(m, net=network(norm=True)),
    "dropout, augmented, clipped": lambda m: Tiny(
        m, net=network(norm=True, dropout=0.3), augment=NOISY, local=replace(PLAIN, clip_norm=0.5)
    ),
    "two epochs, last dropped": lambda m: Tiny(
        m, local=Local(lr=0.1, momentum=0.9, batch_size=4, epochs=2, drop_last=True)
    ),
}

# For all methods in `make test`: a network with BatchNorm and with all that may be added
MARKS = {"dropout, augmented, clipped": (), "plain": pytest.mark.more}


def pair(tiny: Tiny, double: bool = True) -> tuple[Tiny, Tiny]:
    """The next round of everybody from where `tiny` stands, alone and stacked; in float64 unless said
    otherwise.
    """
    pair = []
    for cohort in (False, True):
        one = copy.copy(tiny)
        if double:
            one.net = in_float64(tiny.net)
            one.data = [replace(c, x=c.x.double()) for c in tiny.data]
            one.server, one.client_states = (
                as_double(tiny.server),
                {c: as_double(v) for c, v in tiny.client_states.items()},
            )
        else:
            one.client_states = dict(tiny.client_states)
        one.cohort = cohort
        one.arrange()
        one.step([0, 1, 2, 3])
        pair.append(one)
    return pair[0], pair[1]


def in_float64(net: Network) -> Network:
    return Network(copy.deepcopy(net.module).double())


def agree(alone: Any, together: Any, tolerance: float = 1e-9) -> None:
    pairs = list(zip(leaves(alone), leaves(together), strict=True))
    assert pairs
    for a, b in pairs:
        bound = tolerance if a.dtype == torch.float64 else max(tolerance, 1e-6)
        torch.testing.assert_close(a, b, rtol=bound, atol=bound)


def agree_in_all(alone: Tiny, together: Tiny, tolerance: float = 1e-9) -> None:
    """Trained and personal models, messages, memories, losses and steps of every client."""
    for client in range(4):
        one, other = alone.last[client], together.last[client]
        for a, b in (
            (one.trained, other.trained),
            (one.upload, other.upload),
            (one.client_state, other.client_state),
        ):
            if leaves(a):
                agree(a, b, tolerance)
        agree(one.personal_state(alone.method), other.personal_state(alone.method), tolerance)
        assert other.loss == pytest.approx(one.loss, rel=10 * tolerance)
        assert other.steps == one.steps


@pytest.mark.parametrize(
    "setting",
    [pytest.param(setting, marks=MARKS.get(setting, pytest.mark.slow)) for setting in SETTINGS],
)
@pytest.mark.parametrize("variant", OBJECTIVES)
def test_a_stack_of_clients_trains_as_each_client_alone(variant: str, setting: str) -> None:
    name, args = OBJECTIVES[variant]
    agree_in_all(*pair(in_setting(setting, name, args)))


def in_setting(setting: str, name: str, args: dict[str, Any]) -> Tiny:
    """A method after two rounds of all clients, which settings of one network share: a setting is that of the
    next round. Dropout adds no weight to a network.
    """
    wanted, plain = SETTINGS[setting](short(name, args)), SETTINGS[setting](fedavg())
    tiny = experienced(name, args, norm=bool(plain.net.initial.b.names))  # a method may add BatchNorm itself
    tiny.net, tiny.local, tiny.augment = wanted.net, wanted.local, wanted.augment
    return tiny


@pytest.mark.parametrize("norm", [False, pytest.param(True, marks=pytest.mark.more)])
@pytest.mark.parametrize("variant", OBJECTIVES)
def test_one_step_in_float32_agrees_to_the_rounding_of_batched_kernels(variant: str, norm: bool) -> None:
    name, args = OBJECTIVES[variant]
    tiny = experienced(name, args, norm=norm)
    passes = tuple(replace(one, epochs=None) for one in tiny.method.passes)
    tiny.method = method = replace(tiny.method, passes=passes)
    tiny.local = replace(PLAIN, epochs=0.1)
    alone, together = pair(tiny, double=False)
    steps = alone.last[0].steps
    assert steps == len(method.passes) * (method.solver.batches() if method.solver else 1)  # one of each kind
    for client in range(4):
        agree(alone.last[client].trained, together.last[client].trained, 1e-5 * steps)


@pytest.mark.parametrize("variant", OBJECTIVES)
def test_a_stack_of_clients_with_one_sample_makes_a_first_step_as_each_alone(variant: str) -> None:
    """Nothing divides by a spread that such a client does not have, so that rounding stays rounding."""
    name, args = OBJECTIVES[variant]
    data = clients(((0,), (1,), (2,), (0,)), (1, 1, 1, 1))
    alone, together = pair(Tiny(short(name, args), data=data), double=False)
    for client in range(4):
        agree(alone.last[client].trained, together.last[client].trained, 1e-4)


def test_the_gate_above_sees_every_method() -> None:
    assert {name for name, _ in OBJECTIVES.values()} == set(METHODS)


@pytest.mark.parametrize("setting", SETTINGS)
def test_a_first_visit_beside_later_ones(setting: str) -> None:
    """z_k = 0 for clients 2 and 3: no teacher, no inheritance, though they share a stack with clients
    that have both.
    """
    agree_in_all(*pair(SETTINGS[setting](build_method("map")).run(2, [0, 1])))


@pytest.mark.parametrize(
    "passes", [(Pass("head", 2), Pass("body", 1)), (Pass("body", 1, momentum=0.0), Pass("all", 1))]
)
@pytest.mark.parametrize("norm", [False, True])
def test_passes_over_parts_of_the_network(passes: tuple[Pass, ...], norm: bool) -> None:
    """What does not move stays, bit for bit; a resting body's BatchNorm statistics rest too."""
    method = Method("Passes", passes=passes)
    agree_in_all(*pair(Tiny(method, net=network(norm, dropout=0.2)).run(1, [0, 1, 2, 3])))
    still = Method("Head", passes=(Pass("head", 2),))
    head = Tiny(still, net=network(norm), cohort=True)
    before = head.server
    head.step([0, 1, 2, 3])
    moved = {n for n in head.server.w.names if not torch.equal(head.server.w[n], before.w[n])}
    assert moved == {"head.weight", "head.bias"}
    assert same_bits(head.server.b, before.b)


def test_the_same_stacks_have_the_same_bits() -> None:
    def run() -> Tiny:
        return Tiny(
            build_method("scamap"), net=network(norm=True, dropout=0.3), augment=NOISY, cohort=True
        ).run(3, [0, 1, 2, 3])

    assert same_bits(run().everything(), run().everything())


def test_members_do_not_touch_each_other() -> None:
    """One client's data changed: the others' results keep their bits, though they are computed in the
    same kernels.
    """
    one, two = (Tiny(build_method("map"), net=network(norm=True), cohort=True) for _ in range(2))
    two.data = [*two.data[:3], replace(two.data[3], x=two.data[3].x + 1.0)]
    one.step([0, 1, 2, 3])
    two.step([0, 1, 2, 3])
    for client in range(3):
        assert same_bits(one.last[client].upload, two.last[client].upload)
    assert not same_bits(one.last[3].upload, two.last[3].upload)


def test_random_numbers_of_a_term_come_from_each_clients_own_stream() -> None:
    """FedMR-Lite draws samples in every step."""
    alone, together = pair(Tiny(fedmr(mu1=0.0, mu2=1.0, lite=2)).run(2, [0, 1, 2, 3]), double=False)
    agree(alone.everything(), together.everything(), 1e-4)
    whole = Tiny(fedmr(mu1=0.0, mu2=1.0)).run(3, [0, 1, 2, 3])
    assert float((whole.server.w - together.server.w).sq_norm()) > 1e-8  # the draw matters


sizes = st.lists(st.lists(st.tuples(st.integers(1, 5)), max_size=8), min_size=1, max_size=7)


@given(sizes)
def test_the_schedule_takes_every_member_through_its_batches_in_order(
    own: list[list[tuple[int, ...]]],
) -> None:
    at = [0] * len(own)
    for tick in stacked_steps(own):
        assert list(tick.members) == sorted(set(tick.members))
        for member, step in zip(tick.members, tick.steps, strict=True):
            assert step == at[member]
            assert own[member][step] == tick.batch
            at[member] += 1
    assert at == [len(steps) for steps in own]


def test_clients_wait_so_that_their_short_batches_meet() -> None:
    """Three clients with batches 4 4 2, 4 2 and 4 4 2: one waits with its 2 until the others have made
    their second 4.
    """
    ticks = list(stacked_steps([[(4,), (4,), (2,)], [(4,), (2,)], [(4,), (4,), (2,)]]))
    assert ticks == [
        StackedStep((0, 1, 2), (0, 0, 0), (4,)),
        StackedStep((0, 2), (1, 1), (4,)),
        StackedStep((0, 1, 2), (2, 1, 2), (2,)),
    ]


def test_one_round_of_equal_clients_has_as_many_ticks_as_one_client_has_steps() -> None:
    assert len(list(stacked_steps([[(16,), (16,), (3,)]] * 50))) == 3


def test_memories_that_cannot_be_stacked_are_refused_by_name() -> None:
    with pytest.raises(UsageError, match="differ in shape"):
        stacked_records([{"a": torch.zeros(2)}, {"a": torch.zeros(3)}])
    with pytest.raises(UsageError, match="plain values"):
        stacked_records([{"a": 1}, {"a": 2}])


def test_what_all_clients_share_is_not_copied_k_times() -> None:
    shared, own = torch.zeros(5), [torch.ones(2), torch.zeros(2)]
    found, _ = stacked_records([{"shared": shared, "own": t} for t in own])
    assert any(leaf is shared for leaf in found)


def test_fedavg_has_no_memory_to_stack() -> None:
    tiny = Tiny(fedavg(), cohort=True).run(2)
    assert not tiny.client_states
