"""The objectives as functions: their gradients against finite differences, and one client at a time
against many at once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.func import functional_call, grad, vmap
from torch.utils import _pytree as pytree

from raffed.core.context import Context, Forward
from raffed.core.params import Params, State
from raffed.core.round import joined
from raffed.core.training.network import Network
from raffed.core.training.objective import objective_parts, shared_objective
from raffed.methods import METHODS
from raffed.models.net import Net
from raffed.testing.federation import with_last_layers
from tests.tiny import Tiny, experienced, module, over_methods, tree_stack

# With stop-gradients (MMD's bandwidth is one) there are no finite differences
STOPPED = (
    "apfl",
    "fedloge",
    "fedmmd",
    "fedrod",
)
STILL: dict[str, dict[str, Any]] = {
    "noisygrad": {"size": 0.0}
}  # nothing can be drawn inside vmap; test_noisygrad has its noise
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    **{name: (name, STILL.get(name, {})) for name in METHODS if name not in STOPPED},
    "fedmr, paper, local, l2": (
        "fedmr",
        {"intra_norm": "paper", "inter_negatives": "local", "inter_space": "l2", "mu2": 1.0},
    ),
    "fedmr, pull": ("fedmr", {"inter_mode": "pull", "mu2": 1.0}),
    "fedlc, others": ("fedlc", {"denominator": "others"}),
    "fedphp, symmetric": ("fedphp", {"lam": 0.5, "kd_student_tau": 4.0, "kd_tau_sq": True}),
    "fedlmd, none": ("fedlmd", {"teacher": "none", "tau": 3.0}),
    "fedrs, counts": ("fedrs", {"mode": "counts"}),
    "fedrs, uniform_bug": ("fedrs", {"mode": "uniform_bug"}),
    "fedvls, code": ("fedvls", {"suppress_form": "code", "teacher": "train", "suppress": 1.0}),
    "map": ("map", {"lam": 0.5}),
}
OBJECTIVES: dict[str, tuple[str, dict[str, Any]]] = {
    **VARIANTS,
    **{name: (name, {}) for name in STOPPED},
    "fedphp, mmd": ("fedphp", {"transfer": "mmd", "lam": 0.5}),
    **{
        f"gldp, {lp}": ("gldp", {"lp": lp, "gp": "per_sample", "body_epochs": 1.0, "head_epochs": 1.0})
        for lp in ("feature_softmax_class", "logits", "mse")
    },
    "mpfedcon, previous": ("mpfedcon", {"negative": "previous_local", "head_epochs": 1.0}),
    "flda, authors": ("flda", {"preset": "authors"}),
    "fedprox, authors": ("fedprox", {"mu": 50.0, "preset": "authors"}),
    "fedrod, authors": ("fedrod", {"preset": "authors"}),
    "fedproto, authors": ("fedproto", {"preset": "authors"}),
    "fedproto, nearest": ("fedproto", {"predict_by": "prototype"}),
    "apfl, adaptive": ("apfl", {"adaptive": True}),
    "fedntd, train": ("fedntd", {"teacher": "train", "tau": 3.0}),
    "fedlmd, train": ("fedlmd", {"teacher": "train"}),
    "fedsam, both": ("fedsam", {"rho": 0.5, "stats": "both"}),
    "fedwmsam, displacement": ("fedwmsam", {"rho": 0.3, "sign": "descent", "target": "displacement"}),
    "feddbe, running mean": ("feddbe", {"mu": 0.5}),
}
STAGE_2: dict[str, dict[str, Any]] = {
    "ditto": {},
    "ditto, authors": {"preset": "authors"},
    "dittors": {},
    "finetune": {},
    "map": {},
    "map, mmd": {"transfer": "mmd", "lam": 0.9},
    "scamap": {},
    "scamap, λ = 1": {"lam": 1.0},
}


@pytest.mark.parametrize("case", OBJECTIVES)
def test_the_parts_of_an_objective_add_up_to_it(case: str) -> None:
    """The strength of each part is measured alone, so nothing may be counted twice or left out."""
    tiny = with_memories(*OBJECTIVES[case])
    parts, views = objective_parts(tiny.method, 0.0), tiny.last[3].views
    data, state, net = tiny.data[3], tiny.last[3].trained, tiny.net
    if tiny.method.personal is not None:
        own = tiny.method.personal.companion(views["personal"]) or Params({})
    else:
        own = Params({})
    logits, z = net.functional.again(state.w, state.b.tensors, data.x, [])

    def through(w: Params) -> tuple[Tensor, Tensor]:
        return net.functional.again(w, state.b.tensors, data.x, [])

    f = Forward(data.x, data.y, z, logits, state.w, own, through)
    whole, added = parts.whole(f, views), parts.added(f, views)
    assert bool(added) or parts.empty
    assert all(name.replace("_", "").isalnum() and name == name.lower() for name in added)
    torch.testing.assert_close(parts.base(f, views) + sum(added.values()), whole)


def with_memories(name: str, args: dict[str, Any], norm: bool = False) -> Tiny:
    """A federation whose memories all hold something: two rounds with everybody, and a third so that
    contexts exist.
    """
    return experienced(name, args, norm=norm, rounds=3)


def required(tiny: Tiny, norm: bool = False) -> Net:
    """The tiny network with the last layers that the method requires."""
    return with_last_layers(module(norm), tiny.method)


def as_double(tree: Any) -> Any:
    return pytree.tree_map(
        lambda t: t.double() if isinstance(t, Tensor) and t.is_floating_point() else t, tree
    )


def entry_state(tiny: Tiny, client: int) -> State:
    """The model with which the next round begins: downloaded, and joined with the client's own layers."""
    return joined(tiny.method, tiny.server.broadcast(), tiny.client_states.get(client), tiny.net)


def entry(tiny: Tiny, client: int, slot: str) -> Context:
    """The context with which the next round begins: memory found, message heard, model downloaded."""
    client_state, sent, start = (
        tiny.client_states.get(client),
        tiny.server.broadcast(),
        entry_state(tiny, client),
    )
    mine = client_state.slots.get(slot) if client_state else None
    return tiny.context(
        client, slot, mine=mine, server=sent.slots.get(slot), start=start, state=start, private=None
    )


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_gradient_of_the_shared_objective_is_that_of_finite_differences(variant: str) -> None:
    """float64, at a point away from the downloaded one (the pull is not zero there), along 3 random
    directions: (L(w + hd) − L(w − hd))/2h with h = 1e-5: error O(h²) ≈ 1e-10 plus rounding 1e-16/h ≈ 1e-11;
    tolerance 1e-6 relative, because factors such as α live in float32.
    """
    name, args = VARIANTS[variant]
    tiny = with_memories(name, args)
    net64, x, y = Network(required(tiny).double()), tiny.data[1].x.double(), tiny.data[1].y
    views = {slot: as_double_context(entry(tiny, 1, slot), net64) for slot, _ in tiny.method.ingredients()}
    objective, double = shared_objective(tiny.method, views), required(tiny).double()
    g = torch.Generator().manual_seed(5)
    base, own = as_double(entry_state(tiny, 1).w), Params(as_double(companion_of(tiny, 1)))
    w = {n: t + 0.1 * torch.randn(t.shape, generator=g, dtype=torch.float64) for n, t in base.tensors.items()}

    def value(point: dict[str, Tensor]) -> Tensor:
        logits, z = functional_call(double, point, (x,))
        through: Callable[[Params], Any] = lambda other: functional_call(double, other.tensors, (x,))  # noqa: E731
        return objective(Forward(x, y, z, logits, Params(point), own, through), 0)

    live = {n: t.clone().requires_grad_() for n, t in w.items()}
    grads = dict(zip(live, torch.autograd.grad(value(live), list(live.values())), strict=True))
    for _ in range(3):
        d = {n: torch.randn(t.shape, generator=g, dtype=torch.float64) for n, t in w.items()}
        up, down = ({n: w[n] + h * d[n] for n in w} for h in (1e-5, -1e-5))
        slope = float(value(up) - value(down)) / 2e-5
        assert slope == pytest.approx(float(sum((grads[n] * d[n]).sum() for n in w)), rel=1e-6, abs=1e-8)


def as_double_context(k: Context, net: Network) -> Context:
    parts = {name: as_double(getattr(k, name)) for name in ("mine", "server", "start", "state")}
    return k.replace(net=net.apply, **parts)


def companion_of(tiny: Tiny, client: int) -> dict[str, Tensor]:
    """What is trained beside the network, by name; empty for most methods."""
    personal = tiny.method.personal
    own = personal.companion(entry(tiny, client, "personal")) if personal is not None else None
    return own.tensors if own is not None else {}


def stack_of(tiny: Tiny, slots: list[str], rows: int) -> dict[str, Any]:
    """What differs between clients, stacked: data, counts, start, memories."""
    views = {slot: [entry(tiny, c, slot) for c in range(4)] for slot in slots}
    starts = [entry_state(tiny, c) for c in range(4)]
    g = torch.Generator().manual_seed(9)
    moved = [{n: t + 0.1 * torch.randn(t.shape, generator=g) for n, t in s.w.tensors.items()} for s in starts]
    return {
        "x": torch.stack([c.x[:rows] for c in tiny.data]),
        "y": torch.stack([c.y[:rows] for c in tiny.data]),
        "counts": torch.stack([c.class_counts for c in tiny.data]),
        "start": tree_stack(starts),
        "mine": {
            slot: tree_stack([k.mine for k in views[slot]])
            for slot in slots
            if views[slot][0].mine is not None
        },
        "w": tree_stack(moved),
        "own": tree_stack([companion_of(tiny, c) for c in range(4)]),
        "b": tree_stack([{n: t.clone() for n, t in s.b.tensors.items()} for s in starts]),
    }


Objective = Callable[[dict[str, Context], Forward], Tensor]


def gradient_of_one(
    tiny: Tiny, slots: list[str], norm: bool, objective: Objective
) -> Callable[[dict[str, Any]], Any]:
    """A pure function of one client's part: the gradient of its objective. vmap runs it for all clients
    at once.
    """
    template, net = {slot: entry(tiny, 0, slot) for slot in slots}, required(tiny, norm)

    def one(part: dict[str, Any]) -> Any:
        views = {
            slot: k.replace(
                class_counts=part["counts"],
                start=part["start"],
                state=part["start"],
                mine=part["mine"].get(slot),
            )
            for slot, k in template.items()
        }

        def value(w: dict[str, Tensor], own: dict[str, Tensor]) -> Tensor:
            counters = {n: t.clone() for n, t in net.named_buffers() if not t.is_floating_point()}
            logits, z = functional_call(
                net, {**w, **{n: t.clone() for n, t in part["b"].items()}, **counters}, (part["x"],)
            )

            def through(other: Params) -> tuple[Tensor, Tensor]:
                found: tuple[Tensor, Tensor] = functional_call(
                    net,
                    {**other.tensors, **{n: t.clone() for n, t in part["b"].items()}, **counters},
                    (part["x"],),
                )
                return found

            return objective(views, Forward(part["x"], part["y"], z, logits, Params(w), Params(own), through))

        of_w, of_own = grad(value, argnums=(0, 1))(part["w"], part["own"])
        return {**of_w, **{f"own.{n}": g for n, g in of_own.items()}}

    return one


def agree(stacked: dict[str, Any], one: Callable[[dict[str, Any]], Any]) -> None:
    together = vmap(one)(stacked)
    for client in range(4):
        alone = one(pytree.tree_map(lambda t: t[client] if isinstance(t, Tensor) else t, stacked))  # noqa: B023
        for n in alone:
            torch.testing.assert_close(together[n][client], alone[n], rtol=1e-5, atol=1e-5)
    for n, t in together.items():  # one class alone may leave a client without gradient (balanced softmax)
        assert float(t.abs().max()) > 0 or "body.fc.bias" in n  # BatchNorm makes that bias inert


@pytest.mark.parametrize("norm", [False, True])
@pytest.mark.parametrize("variant", OBJECTIVES)
def test_the_shared_objective_is_dense_so_many_clients_at_once_equal_one_at_a_time(
    variant: str, norm: bool
) -> None:
    """vmap of grad over stacked clients (own memories, counts, starts, weights, batches; one server message)
    against the loop, to 1e-5. No branch, index or shape may depend on a tensor's value (docs/design.md §1).
    """
    name, args = OBJECTIVES[variant]
    tiny = with_memories(name, args, norm)
    slots = [slot for slot, _ in tiny.method.ingredients()]

    def objective(views: dict[str, Context], f: Forward) -> Tensor:
        return shared_objective(tiny.method, views)(f, 0)

    agree(stack_of(tiny, slots, 6), gradient_of_one(tiny, slots, norm, objective))


@pytest.mark.parametrize("norm", [False, True])
@pytest.mark.parametrize("variant", STAGE_2)
def test_the_private_objective_is_dense_as_well(variant: str, norm: bool) -> None:
    tiny = with_memories(variant.partition(",")[0], STAGE_2[variant], norm)
    personal = tiny.method.personal
    assert personal is not None

    def objective(views: dict[str, Context], f: Forward) -> Tensor:
        return personal.private_loss(f, views["personal"])

    agree(stack_of(tiny, ["personal"], 6), gradient_of_one(tiny, ["personal"], norm, objective))


@pytest.mark.parametrize("name", ["scaffold", "scars", "scamap"])
def test_a_correction_of_stacked_gradients_equals_the_loop(name: str) -> None:
    tiny = with_memories(name, {})
    correction, stacked = tiny.method.correction, stack_of(tiny, ["correction"], 6)
    assert correction is not None
    k = entry(tiny, 0, "correction")

    def one(mine: Any, g: dict[str, Tensor]) -> dict[str, Tensor]:
        return correction.gradient(Params(g), k.replace(mine=mine)).tensors

    together = vmap(one)(stacked["mine"]["correction"], stacked["w"])
    for client in range(4):
        c_i, c = tiny.client_states[client].slots["correction"].c, tiny.server.slots["correction"].c  # type: ignore[attr-defined, union-attr]
        for n, t in together.items():
            torch.testing.assert_close(
                t[client], stacked["w"][n][client] - c_i[n] + c[n], rtol=1e-5, atol=1e-6
            )


@over_methods
def test_the_first_visit_and_a_later_one_are_one_and_the_same_dense_function(name: str) -> None:
    """A fresh client beside experienced ones in one stack (z_k = 0 beside z_k > 0): `where`, not a branch."""
    tiny = with_memories(name, STILL.get(name, {}))
    slots = [slot for slot, _ in tiny.method.ingredients()]
    tiny.client_states = {c: v for c, v in tiny.client_states.items() if c < 2}
    fresh = Tiny(tiny.method)
    fresh.server = tiny.server
    for client in (2, 3):
        views = fresh.visit(client).views
        kept = {s: one.client_init(views[s]) for s, one in tiny.method.ingredients()}
        own = tiny.method.split.own(fresh.net.initial.w, fresh.net.norm_names)
        empty = fresh.visit(client).client_state.replace(
            v=own, b=Params({}), slots={s: m for s, m in kept.items() if m is not None}
        )
        tiny.client_states[client] = empty

    def objective(views: dict[str, Context], f: Forward) -> Tensor:
        return shared_objective(tiny.method, views)(f, 0)

    agree(stack_of(tiny, slots, 6), gradient_of_one(tiny, slots, False, objective))
