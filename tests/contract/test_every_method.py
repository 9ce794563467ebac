"""What every method must satisfy: it joins by its line in METHODS, and this page is the definition of
*method*.
"""

from __future__ import annotations

import ast
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils import _pytree as pytree

from raffed.core.messages import Private, Wire
from raffed.core.params import Params, fields_of
from raffed.core.round import ClientRound
from raffed.core.server import replied
from raffed.methods import METHODS, build_method
from tests.tiny import Tiny, experienced, leaves, network, over_methods, same_bits, short


def made(name: str, norm: bool = True, seed: int = 0) -> Tiny:
    """A federation before its first round."""
    return Tiny(short(name), net=network(norm), seed=seed)


def after(rounds: int, name: str, norm: bool = True) -> Tiny:
    """A federation after some rounds of all clients, which tests share."""
    return experienced(name, norm=norm, rounds=rounds)


def test_every_test_of_this_folder_that_says_so_sees_every_method() -> None:
    """A gate counts what it checked."""
    named = [getattr(one, "values", [one])[0] for one in over_methods.mark.args[1]]
    assert named == list(METHODS)
    found = []
    for path in sorted(Path(__file__).parent.glob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef) and any(
                ast.unparse(d) == "over_methods" for d in node.decorator_list
            ):
                found.append(node.name)
    assert len(found) >= 14
    assert {"fedavg", "fedprox", "scaffold", "fedrs", "fedphp", "map", "scars", "scamap", "fedmr"} <= set(
        METHODS
    )


@over_methods
def test_the_same_seed_gives_the_same_bits_whatever_the_state_of_the_global_generator(name: str) -> None:
    """Three rounds of the clients that are drawn; the generator is left alone."""
    one = experienced(name, norm=True, rounds=3, chosen=None)
    torch.manual_seed(271828)
    before = torch.get_rng_state()
    two = made(name).run(3)
    assert torch.equal(torch.get_rng_state(), before)
    assert same_bits(one.everything(), two.everything())


@over_methods
def test_another_seed_gives_other_bits(name: str) -> None:
    everyone = [0, 1, 2, 3]
    assert not same_bits(after(1, name).everything(), made(name, seed=1).run(1, everyone).everything())


@over_methods
def test_the_order_of_clients_in_a_round_does_not_matter(name: str) -> None:
    """In two rounds, so that the second reads what the first left."""
    assert same_bits(after(2, name).everything(), made(name).run(2, [3, 1, 0, 2]).everything())


@over_methods
def test_a_client_that_is_not_drawn_keeps_its_vault_bit_for_bit(name: str) -> None:
    """docs/papers/baselines.md G3."""
    tiny = after(2, name)
    before = dict(tiny.client_states)
    copies = {c: [t.clone() for t in leaves(v)] for c, v in before.items()}
    tiny.step([1])
    for client in set(before) - {1}:
        assert tiny.client_states[client] is before[client]
        assert same_bits(leaves(tiny.client_states[client]), copies[client])


@over_methods
def test_what_a_client_finds_is_not_changed_in_place_by_its_round(name: str) -> None:
    """House rule 8: the broadcast, the vault and the data are the same afterwards, so a round can be
    repeated.
    """
    tiny = after(2, name)
    sent, client_state, data = tiny.server.broadcast(), tiny.client_states.get(1), tiny.data[1]
    found = [*leaves(sent), *leaves(client_state), data.x, data.y, data.class_counts]
    copies = [t.clone() for t in found]
    first = tiny.visit(1)
    assert same_bits(found, copies)
    again = tiny.visit(1)
    assert same_bits(first.upload, again.upload)
    assert same_bits(first.client_state, again.client_state)


@over_methods
def test_nothing_uploaded_shares_storage_with_the_vault_the_network_or_the_broadcast(name: str) -> None:
    tiny = after(2, name)
    done = tiny.visit(1)
    held = [
        *leaves(done.client_state),
        *leaves(tiny.client_states.get(1)),
        *leaves(tiny.server),
        *tiny.net.leaves("all").values(),
    ]
    taken = {t.untyped_storage().data_ptr() for t in held if t.numel()}
    sent = [t for t in leaves(done.upload) if t.numel()]
    assert len(sent) >= (0 if tiny.method.split.personal == "all" else 2)
    assert not taken & {t.untyped_storage().data_ptr() for t in sent}


@over_methods
def test_what_is_sent_is_wires_and_what_is_kept_is_private(name: str) -> None:
    tiny = after(2, name)
    for client, done in tiny.last.items():
        assert all(isinstance(w, Wire) for w in done.upload.slots.values())
        assert (
            all(isinstance(p, Private) for p in tiny.client_states[client].slots.values())
            if client in tiny.client_states
            else True
        )
    assert all(isinstance(w, Wire) for w in tiny.server.broadcast().slots.values())
    shared = tiny.method.split.shared(tiny.net.initial.w, tiny.net.norm_names).names
    assert tiny.last[0].upload.w.names == tiny.server.w.names == shared


@over_methods
def test_every_slot_of_memory_belongs_to_an_ingredient(name: str) -> None:
    tiny = after(2, name)
    slots = {slot for slot, _ in tiny.method.ingredients()}
    assert len(slots) == len(list(tiny.method.ingredients()))
    assert set(tiny.server.slots) <= slots | {"server"}
    assert all(set(v.slots) <= slots for v in tiny.client_states.values())


@over_methods
def test_an_ingredient_sees_its_own_memory_and_message_and_nobody_elses(name: str) -> None:
    tiny = after(2, name)
    sent, done = replied(tiny.server.broadcast(), 1), tiny.visit(1)
    assert set(done.views) == {slot for slot, _ in tiny.method.ingredients()}
    for slot, view in done.views.items():
        assert same_bits(view.server, sent.slots.get(slot))
        assert same_bits(view.mine, done.client_state.slots.get(slot))  # after `finish`


def perturbed(record: Any, at: int) -> Any:
    """The record with the tensor number `at` moved at random (a constant would leave a softmax alone), a flag
    turned, a counter advanced.
    """
    values, shape = pytree.tree_flatten(record)
    places = [i for i, v in enumerate(values) if isinstance(v, torch.Tensor)]
    old = values[places[at]]
    if old.dtype == torch.bool:
        values[places[at]] = ~old
    elif old.is_floating_point():
        values[places[at]] = old + 0.5 * torch.rand(old.shape, generator=torch.Generator().manual_seed(0))
    else:
        values[places[at]] = old + 2
    return pytree.tree_unflatten(values, shape)


def trace(tiny: Tiny, done: Any) -> list[torch.Tensor]:
    return [
        *leaves(done.upload),
        *leaves(done.trained),
        *leaves(done.personal_state(tiny.method)),
        *leaves(done.client_state),
    ]


def scores(tiny: Tiny, done: ClientRound) -> torch.Tensor:
    """Logits of client 1's personalised model on its data."""
    x, personal = tiny.data[1].x, tiny.method.personal
    return tiny.net.apply(done.trained, x)[0] if personal is None else done.personal_logits(personal, x)


@over_methods
@pytest.mark.parametrize("norm", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_every_memory_of_a_client_changes_and_is_read(name: str, norm: bool) -> None:
    """Memory that nobody reads is a bug (a c_i kept for ever at 0). Each tensor counts on its own: turning
    one changes what the client sends, trains, scores or keeps *elsewhere*. BatchNorm's statistics of a HPM
    are read by its teacher, those of Ditto's v_i where it is scored.
    """
    tiny = after(3, name, norm)
    client_state, fresh = tiny.client_states.get(1), after(1, name, norm).client_states.get(1)
    if client_state is None:
        assert not any(one.client_init(tiny.context(1, slot)) for slot, one in tiny.method.ingredients())
        return
    assert [a.shape for a in leaves(client_state)] == [b.shape for b in leaves(fresh)]
    # a flag that turned true stays so, and is asked only whether it is read
    assert all(
        a.dtype == torch.bool or not same_bits(a, b)
        for a, b in zip(leaves(client_state), leaves(fresh), strict=True)
    )
    usual = tiny.visit(1)
    for at in range(len(leaves(client_state))):
        changed = tiny.visit(1, client_state=perturbed(client_state, at))
        kept = zip(leaves(usual.client_state), leaves(changed.client_state), strict=True)
        elsewhere = any(not same_bits(a, b) for i, (a, b) in enumerate(kept) if i != at)
        acted = not same_bits([usual.upload, usual.trained], [changed.upload, changed.trained])
        scored = not torch.equal(scores(tiny, usual), scores(tiny, changed))
        assert elsewhere or acted or scored, f"tensor {at} of the vault is never read"


ONCE = ("feddbe",)  # the message is made in the first round and stays
# What a client trains is chosen among the models that it gets; test_ifca and test_fedfomo have what it
# compares them by, and numbers of clients cannot be turned
COMPARED = ("ifca", "fedfomo")


@over_methods
def test_every_message_of_the_server_changes_and_is_read(name: str) -> None:
    before, tiny = after(2, name).server.slots, after(3, name)
    sent = tiny.server.broadcast()
    usual = trace(tiny, tiny.visit(1))
    for slot, wire in sent.slots.items():
        # known flags of prototypes stay true once all classes were seen, so change is asked of the slot,
        # reading of each field
        assert same_bits(wire, before[slot]) == (name in ONCE)
        for at in range(0 if name in COMPARED else len(leaves(wire))):
            other = sent.replace(slots={**sent.slots, slot: perturbed(wire, at)})
            assert not same_bits(trace(tiny, tiny.visit(1, broadcast=other)), usual), (
                f"{slot}: tensor {at} is never read"
            )


@over_methods
def test_the_loss_a_client_reports_is_finite_and_its_steps_are_the_runs(name: str) -> None:
    tiny = after(2, name)
    assert any(done.loss > 0 for done in tiny.last.values())
    for client, done in tiny.last.items():
        assert 0 <= done.loss < 100  # 0: a client of one class whose loss leaves out the others
        wanted = sum(tiny.local.steps(tiny.data[client].n, one.epochs) for one in tiny.method.passes)
        whole = tiny.method.solver.batches() if tiny.method.solver else 1
        assert done.steps == -(-wanted // whole) * whole


@over_methods
def test_a_recipe_is_plain_data(name: str) -> None:
    """House rule 4: equal arguments make equal recipes; no tensor, device or closure is inside."""
    recipe = build_method(name)
    assert recipe == build_method(name)
    assert pickle.loads(pickle.dumps(recipe)) == recipe
    for _, one in recipe.ingredients():
        assert all(isinstance(v, int | float | str | bool) for v in fields_of(one).values())
    assert not leaves(tuple(recipe.terms))
    assert isinstance(recipe.split.own(Params({}), ()), Params)
