"""Preset "authors"."""

from __future__ import annotations

import inspect
import math
from dataclasses import replace
from typing import Any, get_args

import pytest
import torch

from raffed.core.params import Params, State
from raffed.methods import METHODS, build_method
from raffed.methods.fednova import LocalSteps, fednova
from raffed.methods.fedrs import RestrictedSoftmax
from raffed.methods.perfedavg import perfedavg
from raffed.methods.pfedme import pfedme
from raffed.methods.registry import Preset
from raffed.methods.scaffold import ClientControl, ControlDelta, ServerControl, scaffold
from tests.quadratics import quadratics, x_of
from tests.tiny import PLAIN, Tiny, bare_context, network, of_kind, same_bits, server_context
from tests.tiny import companion as own

# Preset "authors" against the formulas of the released code, worked out by hand (docs/papers/baselines.md;
# lxcnju/MAP).
#
# What the code does is written in the docstring of each test, with the numbers that follow from it.

FULL_BATCH = replace(PLAIN, lr=0.1, momentum=0.0, weight_decay=0.0, batch_size=64)
MOVED = [
    ("scaffold", {"server_lr": 0.5}, 0.5),
    ("scaffold", {"server_lr": 2.0}, 2.0),
    ("scars", {"server_lr": 0.75}, 0.75),
    ("scamap", {"server_lr": 0.9}, 0.9),
    ("pfedme", {"beta": 0.5}, 0.5),
    ("pfedme", {"beta": 2.0}, 2.0),
    ("feddyn", {}, 0.5),  # |S|/N = 2/4
]


@pytest.mark.parametrize(("name", "args", "rate"), MOVED)
def test_batchnorms_statistics_take_the_servers_step_of_the_authors_preset_and_are_averaged_otherwise(
    name: str, args: dict[str, Any], rate: float
) -> None:
    """The released update runs over the whole state: b ← b + η (b̄ − b). From 2 towards 6 at ½: 4, from 2
    towards −6: −2.
    """
    old, k = Params({"b": torch.tensor([2.0, 2.0])}).clone(), server_context(count=2)
    mean = Params({"b": torch.tensor([6.0, -6.0])}).clone()
    for preset, share in (("authors", rate), ("original", 1.0)):
        rule = build_method(name, {**args, "preset": preset}).server
        assert rule.statistics(old, mean, k)["b"].tolist() == pytest.approx(
            [2 + share * 4, 2 - share * 8], rel=1e-6
        )


@pytest.mark.parametrize(("name", "args", "rate"), MOVED)
def test_and_so_they_do_in_a_round(name: str, args: dict[str, Any], rate: float) -> None:
    tiny = Tiny(build_method(name, {**args, "preset": "authors"}), net=network(norm=True))
    done = tiny.step([0, 2])
    old, mean = tiny.net.initial.b, (done[0].upload.b + done[2].upload.b) / 2
    torch.testing.assert_close(tiny.server.b.flat, (old + (mean - old) * rate).flat, rtol=1e-5, atol=1e-6)
    assert float((mean - old).sq_norm()) > 1e-4


def moves(name: str, preset: Preset, clip: float | None, cohort: bool) -> list[tuple[Params, Params]]:
    """How far the shared and the private part of clients 0 and 3 go in one full-batch step of their
    second visit, rates apart.
    """
    tiny = Tiny(build_method(name, {"preset": preset}), local=FULL_BATCH, cohort=cohort).run(1, [0, 1, 3])
    tiny.local = replace(FULL_BATCH, clip_norm=clip)
    tiny.arrange()
    before = {c: own(tiny, c) for c in (0, 3)}
    done = tiny.step([0, 1, 3])
    return [((done[c].start.w - done[c].trained.w) / 0.1, (before[c] - own(tiny, c)) / 0.1) for c in (0, 3)]


@pytest.mark.parametrize("cohort", [False, True])
@pytest.mark.parametrize("name", ["flda", "fedrod"])
def test_the_authors_clip_shared_and_private_gradients_by_one_norm_and_the_original_apart(
    name: str, cohort: bool
) -> None:
    """[C] clips all parameters of the local module at once: gradients of norm 3 and 4, clipped at 1, keep 3/5
    and 4/5; clipped apart they keep 1 and 1. Here the two norms are those of the step without a limit.
    """
    limit = 0.01
    for preset in get_args(Preset):
        free, bound = (moves(name, preset, clip, cohort) for clip in (None, limit))
        for parts, kept in zip(free, bound, strict=True):
            norms = [float(one.sq_norm()) ** 0.5 for one in parts]
            assert min(norms) > 2 * limit
            for one, part, norm in zip(kept, parts, norms, strict=True):
                share = limit / (math.hypot(*norms) if preset == "authors" else norm)
                torch.testing.assert_close(one.flat, part.flat * share, rtol=2e-3, atol=1e-6)


@pytest.mark.parametrize("cohort", [False, True])
@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize(("preset", "end"), [("authors", 0.23), ("original", 0.25)])
def test_fednovas_pull_is_added_after_clipping_by_the_authors(
    preset: Preset, end: float, sign: float, cohort: bool
) -> None:
    """½(x − 10)² from x = 0, η = 0.1, ρ = 0.5, clipped at 1, μ = 2: both steps have the gradient −1, the
    second the pull 2 · 0.1.

        [C]: the optimiser adds the pull to the clipped gradient, in the momentum buffer: v = −1, x = 0.1; v =
        −0.5 + (−1 + 0.2), x = 0.23. In a loss with the pull its −9.9 + 0.2 are clipped to −1: v = −1.5, x =
        0.25.
    """
    tiny = quadratics(
        fednova(mu=2.0, preset=preset), 0.1, 2, 0.5, sizes=(1, 1), h=(1.0, 1.0), b=(sign * 10.0,) * 2
    )
    tiny.local, tiny.cohort = replace(tiny.local, clip_norm=1.0), cohort
    tiny.arrange()
    done = tiny.step([0, 1])
    assert [x_of(done[c].trained.w) for c in (0, 1)] == pytest.approx([sign * end] * 2, abs=1e-6)


@pytest.mark.parametrize(("preset", "norm", "number"), [("original", 2.8, 2.8), ("authors", 4.42, 2.0)])
def test_with_a_pull_fednova_counts_what_steps_add_up_to_and_the_released_code_twice(
    preset: Preset, norm: float, number: float
) -> None:
    """Two steps at ρ = 0.9, ημ = 0.1 from a gradient of 1: v = 1, then 0.9 + 1 − 0.1, so Δ = 2.8 η and ‖a‖₁ =
    2.8.

        [C]: c = 1, 1.9 and a ← 0.9 (a + c) + 1 = 1.9, 4.42; τ_eff is the mean of the steps, 2. The normalised
        update has both signs.
    """
    for sign in (1.0, -1.0):
        rule = fednova(mu=0.5, preset=preset).message
        assert rule is not None
        start, end = (
            State(Params({"w": torch.tensor([x])}).clone(), Params({})) for x in (0.0, -sign * 2.8 * 0.2)
        )
        k = bare_context(
            start=start, state=end, steps=2, lr_sum=0.4, momentum=0.9, class_counts=torch.tensor([1])
        )
        assert float(rule.outgoing(end.w, k)["w"]) == pytest.approx(sign * 2.8 * 0.2 / norm, rel=1e-6)
        told = of_kind(rule.finish(k)[1], LocalSteps)
        assert told.weighted == pytest.approx(number, rel=1e-9)


@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize(
    ("preset", "warmth", "theta"),
    [
        ("original", 0.2, 0.2),
        ("authors", 0.2, 0.0392),
        ("authors", 1.0, 0.18),
    ],
)
def test_pfedmes_personal_step_decays_and_warms_up_in_the_authors_preset(
    preset: Preset, warmth: float, theta: float, sign: float
) -> None:
    """Two steps with ∇f = −1, λ = 0, η_p = 0.1, wd = 2: the original moves by 0.1 twice. [C]: θ ← θ −
    η_p·warmth·(−1 + 2θ), so 0.1 and 0.1 + 0.1(1 − 0.2) = 0.18 when warm, 0.02 and 0.02 + 0.02(1 − 0.04) =
    0.0392 in the first of five warm-up rounds.
    """
    rule = pfedme(0.0, 1.0, 0.1, 2, preset=preset).solver
    assert rule is not None
    start = State(Params({"w": torch.tensor([0.0], dtype=torch.float64)}), Params({}))
    k = bare_context(start=start, weight_decay=2.0, warmth=warmth)
    slope = torch.tensor([-sign], dtype=torch.float64)
    done = rule.step(rule.begin(k), lambda state, which: (Params({"w": slope}), state.b), k)
    assert float(done.theta.w["w"]) == pytest.approx(sign * theta, rel=1e-12)


@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize(("preset", "end"), [("original", 1.15), ("authors", 1.18)])
def test_perfedavgs_steps_decay_and_warm_up_in_the_authors_preset(
    preset: Preset, end: float, sign: float
) -> None:
    """∇f(x) = −x at x = 1, α = 0.5, β = 0.1, wd = 0.1, a warmth of 0.2. The original: w̃ = 1.5, w = 1 + 0.1 ·
    1.5 = 1.15.

        [C]: v = −1 + 0.1 = −0.9, w̃ = 1 + 0.5 · 0.2 · 0.9 = 1.09, v = 0.9 · (−0.9) + (−1.09 + 0.1) = −1.8, w
        = 1 + 0.1 · 1.8 = 1.18.
    """
    rule = perfedavg(0.5, 0.1, preset=preset).solver
    assert rule is not None
    start = State(Params({"w": torch.tensor([sign], dtype=torch.float64)}), Params({}))
    k = bare_context(start=start, weight_decay=0.1, warmth=0.2)
    done = rule.step(rule.begin(k), lambda state, which: (state.w * -1.0, state.b), k)
    assert float(done.model.w["w"]) == pytest.approx(sign * end, rel=1e-12)


@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize(("preset", "gradient"), [("original", 2.0), ("authors", 0.4)])
def test_scaffolds_control_divides_by_the_nominal_rate_in_the_authors_preset(
    preset: Preset, gradient: float, sign: float
) -> None:
    """Two steps at η = 0.1 in the first of five warm-up rounds, Σ η_j = 0.04: a move of 0.08 says 0.08/0.04 =
    2, but [C] 0.08/(2 · 0.1) = 0.4. c_i⁺ = c_i − c + this, with c_i = 0.5 and c = 0.25.
    """
    at = lambda x: Params({"w": torch.tensor([x], dtype=torch.float64)}).clone()  # noqa: E731
    rule = scaffold(preset=preset).correction
    assert rule is not None
    k = bare_context(
        start=State(at(1.0), Params({})),
        state=State(at(1.0 - sign * 0.08), Params({})),
        mine=ClientControl(at(0.5)),
        server=ServerControl(at(0.25)),
        steps=2,
        lr_sum=0.04,
        warmth=0.2,
    )
    own, told = rule.finish(k)
    assert isinstance(own, ClientControl)
    assert isinstance(told, ControlDelta)
    assert float(own.c["w"]) == pytest.approx(0.25 + sign * gradient, rel=1e-9)
    assert float(told.dc["w"]) == pytest.approx(-0.25 + sign * gradient, rel=1e-9)


# Preset "authors": what MAP's released code does in all its baselines (docs/papers/map.md §1.4, §5, §7
# no. 3).

PRESET = [name for name, info in METHODS.items() if "preset" in inspect.signature(info.load()).parameters]
MODES = {"scars": "uniform_bug", "scamap": "uniform_bug", "dittors": "counts"}


def mode_of(name: str, **args: object) -> str:
    return of_kind(build_method(name, args).head, RestrictedSoftmax).mode


@pytest.mark.parametrize("name", PRESET)
def test_every_one_of_them_takes_uniform_means(name: str) -> None:
    """[C]: n_k for FedRS, FedPHP and MAP alone, which have no preset."""
    assert build_method(name, {"preset": "authors"}).mean.by == "clients"


def test_it_is_known_which_methods_have_it() -> None:
    assert len(PRESET) == 15
    assert not {"fedrs", "fedphp", "map"} & set(PRESET)


@pytest.mark.parametrize("name", ["fedprox", "fedrep", "fedrod", "flda", "ditto"])
def test_where_clients_differ_in_size_uniform_means_move_the_server_elsewhere(name: str) -> None:
    """Not only the weights in the recipe: the first round's mean, from clients of 8, 11 and fewer samples."""
    ours, theirs = (Tiny(build_method(name, {"preset": preset})).run(1) for preset in ("original", "authors"))
    assert not same_bits(ours.server.w, theirs.server.w)


@pytest.mark.parametrize(("name", "mode"), MODES.items())
def test_the_restricted_softmax_is_the_released_one_unless_another_is_named(name: str, mode: str) -> None:
    assert mode_of(name) == "binary"
    assert mode_of(name, preset="authors") == mode
    assert mode_of(name, preset="authors", mode="binary") == "binary"
    assert mode_of(name, mode="counts") == "counts"
