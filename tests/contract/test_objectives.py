"""The gradients of all objectives against finite differences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.func import functional_call
from torch.utils import _pytree as pytree

from raffed.core.context import Context, Forward
from raffed.core.params import Params, State
from raffed.core.round import joined
from raffed.core.training.network import Network
from raffed.core.training.objective import objective_parts
from raffed.methods import METHODS
from raffed.models.net import Net
from raffed.testing.federation import with_last_layers
from tests.tiny import Tiny, experienced, module, shared_objective

# With stop-gradients (MMD's bandwidth is one) there are no finite differences
STOPPED = ("apfl", "fedloge", "fedmmd", "fedrod")
STILL: dict[str, dict[str, Any]] = {
    "noisygrad": {"size": 0.0}
}  # nothing can be drawn inside vmap; test_fedavg has its noise
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
    return joined(tiny.method.split, tiny.server.broadcast(), tiny.client_states.get(client), tiny.net)


def entry(tiny: Tiny, client: int, slot: str) -> Context:
    """The context with which the next round begins: memory found, message heard, model downloaded."""
    client_state = tiny.client_states.get(client)
    sent = tiny.server.broadcast()
    start = entry_state(tiny, client)
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
