"""FedALA: the weights that mix the download with a client's last model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from raffed.core.context import Context
from raffed.core.ingredients import Gradient
from raffed.core.method import Method
from raffed.core.params import Params, State
from raffed.core.round import between_rounds
from raffed.core.training.session import Participant
from raffed.methods.fedala import AdaptiveAggregation, Mixing, Mixture, fedala
from raffed.methods.fedavg import fedavg
from tests.tiny import (
    PLAIN,
    Tiny,
    bare_context,
    network,
    of_kind,
    point,
    same_bits,
    slopes,
    tiny_loss,
)

HEAD = ("head.weight", "head.bias")


def client(last: Params, download: Params) -> Context[Mixture]:
    """A client whose W is still 1."""
    yes = torch.ones((), dtype=torch.bool)
    ones = Params({name: torch.ones_like(t) for name, t in last.tensors.items()})
    return bare_context(start=State(download, Params({})), mine=Mixture(ones, last, yes, yes))


def learned(rule: AdaptiveAggregation, k: Context[Mixture], gradients: Sequence[Gradient]) -> list[Mixing]:
    """What W and the model become, step by step."""
    found = [rule.begin(k)]
    for gradient in gradients:
        found.append(rule.step(found[-1], gradient, k))
    return found[1:]


def given(*numbers: float) -> Gradient:
    return lambda state, which: (point(*numbers), state.b)


def test_the_weights_of_the_worked_example() -> None:
    """(2): θ_k (1, 2), θ^t (2, 0), η_W 1, gradients (.3, .2) and (2, .5)."""
    rule = AdaptiveAggregation(1.0, 0.8, 0, 1.0)
    one, two = learned(rule, client(point(1, 2), point(2, 0)), [given(0.3, 0.2), given(2.0, 0.5)])
    torch.testing.assert_close(one.weights["w"], torch.tensor([0.7, 1.0]))
    torch.testing.assert_close(one.model.w["w"], torch.tensor([1.7, 0.0]))
    torch.testing.assert_close(two.weights["w"], torch.tensor([0.0, 1.0]))
    torch.testing.assert_close(two.model.w["w"], torch.tensor([1.0, 0.0]))


def test_the_gradient_is_taken_at_the_mixture() -> None:
    """(3): ½ (x − .5)² with θ_k = 0, θ^t = 2 and η_W = .1."""
    rule = AdaptiveAggregation(0.1, 0.8, 0, 1.0)
    slope: Gradient = lambda state, which: (Params({"w": state.w["w"] - 0.5}), state.b)  # noqa: E731
    found = learned(rule, client(point(0), point(2)), [slope] * 4)
    torch.testing.assert_close(
        torch.cat([one.weights["w"] for one in found]), torch.tensor([0.7, 0.52, 0.412, 0.3472])
    )


@pytest.mark.parametrize("norm", [False, True])
def test_without_a_rate_it_is_fedavg_bit_for_bit(norm: bool) -> None:
    """(1): as the argument, which leaves the opening out, and as an opening whose W stays 1."""
    still = Method("Still", opening=AdaptiveAggregation(0.0, 0.8, 0, 2.0))
    plain, left_out, mine = (
        Tiny(one, net=network(norm)).run(4, [0, 1, 2, 3]) for one in (fedavg(), fedala(0.0), still)
    )
    assert same_bits(plain.everything(), left_out.everything())
    assert same_bits(plain.server, mine.server)


def test_a_weight_of_1_gives_the_download_s_own_bits() -> None:
    """(1): .1 + (.3 − .1) is not .3 in float32 for many numbers."""
    g = torch.Generator().manual_seed(0)
    last, new = (Params({"w": torch.randn(1000, generator=g)}) for _ in range(2))
    assert not torch.equal(last["w"] + (new["w"] - last["w"]), new["w"])
    k = client(last, new)
    assert torch.equal(AdaptiveAggregation(1.0, 0.8, 0, 1.0).begin(k).model.w["w"], new["w"])


def test_at_its_defaults_it_is_not_fedavg() -> None:
    assert not same_bits(Tiny(fedala()).run(3).server, Tiny(fedavg()).run(3).server)


@pytest.mark.parametrize("norm", [False, True])
def test_weights_stay_between_0_and_1_and_the_lower_tensors_are_the_download_s(norm: bool) -> None:
    """(4): with a rate that is far too large, and after several rounds."""
    tiny = Tiny(fedala(100.0), net=network(norm), local=replace(PLAIN, lr=0.0)).run(1, [0, 1, 2, 3])
    tiny.local = PLAIN
    tiny.arrange()
    tiny.run(3, [0, 1, 2, 3])
    for kept in tiny.client_states.values():
        mine = of_kind(kept.slots["opening"], Mixture)
        assert mine.weights.names == HEAD
        assert all(bool(((t >= 0) & (t <= 1)).all()) for t in mine.weights.tensors.values())
    tiny.local = replace(PLAIN, lr=0.0)
    tiny.arrange()
    done = tiny.visit(1)
    for n in done.start.w.names:
        assert torch.equal(done.trained.w[n], done.start.w[n]) == (n not in HEAD)


def test_a_client_learns_when_it_comes_for_the_second_time_and_for_longer_than_later() -> None:
    """At the first participation its last model is the download, so there is nothing to mix."""
    rule = fedala(first_epochs=7.0).opening
    assert rule is not None
    tiny, epochs = Tiny(fedala(first_epochs=7.0)), []
    for _ in range(4):
        tiny.step([1])
        epochs.append(tiny.last[1].views["opening"])
    assert [rule.epochs(tiny.context(1, "opening", mine=tiny.client_states[1].slots["opening"]))] == [1.0]
    fresh = Tiny(fedala(first_epochs=7.0))
    found = []
    for _ in range(4):
        kept = fresh.client_states.get(1)
        k = tiny.context(1, "opening", start=fresh.visit(1).start)
        mine = kept.slots["opening"] if kept else rule.client_init(k)
        found.append(rule.epochs(k.replace(mine=mine)))
        fresh.step([1])
    assert found == [0.0, 7.0, 1.0, 1.0]


def test_a_late_client_mixes_the_download_with_the_initial_model_if_this_is_its_first_model() -> None:
    """W = clip(1 − η_W ∇CE(θ²) ⊙ (θ² − θ¹), 0, 1) after one pass of one batch, in which all samples are."""
    method = fedala(first_model="initial", eta=30.0, share=1.0, first_epochs=1.0)
    tiny = Tiny(method, local=replace(PLAIN, batch_size=64)).run(1, [0, 1])
    done, new, old = tiny.visit(2), tiny.server.w, tiny.net.initial.w
    grads = slopes(lambda w: tiny_loss(w, tiny.data[2].x, tiny.data[2].y), new.tensors)
    mixed = of_kind(done.views["opening"].carried, Mixing)
    for n in HEAD:
        weights = (1 - 30.0 * grads[n] * (new[n] - old[n])).clamp(0, 1)
        assert 0 < float((weights < 1).sum()) < weights.numel()
        torch.testing.assert_close(mixed.model.w[n], old[n] + (new[n] - old[n]) * weights)
    assert torch.equal(mixed.model.w["body.fc.weight"], new["body.fc.weight"])
    plain = Tiny(fedala(eta=30.0, share=1.0, first_epochs=1.0), local=tiny.local).run(1, [0, 1]).visit(2)
    assert same_bits(plain.views["opening"].carried.model.w, new)  # type: ignore[attr-defined]


def test_the_first_model_does_not_matter_if_all_clients_take_part_in_round_1() -> None:
    one, other = (Tiny(fedala(first_model=name)).run(1, [0, 1, 2, 3]) for name in ("download", "initial"))  # type: ignore[arg-type]
    assert same_bits(one.run(2, [1, 3]).everything(), other.run(2, [1, 3]).everything())
    one, other = (Tiny(fedala(first_model=name)).run(2, [0, 1]) for name in ("download", "initial"))  # type: ignore[arg-type]
    assert not same_bits(one.run(1, [1, 2]).server, other.run(1, [1, 2]).server)


def test_samples_are_one_contiguous_slice_of_the_share_that_was_asked_for() -> None:
    rule, begins = AdaptiveAggregation(1.0, 0.8, 2, 1.0), set()
    for seed in range(50):
        chosen: Tensor = rule.samples(11, torch.Generator().manual_seed(seed))
        assert torch.equal(chosen, torch.arange(int(chosen[0]), int(chosen[0]) + 8))
        begins.add(int(chosen[0]))
    assert begins == {0, 1, 2, 3}
    assert len(rule.samples(1, torch.Generator())) == 1


def test_between_rounds_a_client_is_scored_after_mixing_and_keeps_nothing() -> None:
    tiny = Tiny(fedala()).run(3, [0, 1])
    kept = tiny.client_states[0]
    held = between_rounds(
        tiny.method, tiny.server.broadcast(), Participant(0, kept, tiny.data[0]), tiny.session
    )
    moved = {n for n in HEAD if not torch.equal(held.trained.w[n], tiny.server.w[n])}
    assert moved
    assert torch.equal(held.trained.w["body.fc.weight"], tiny.server.w["body.fc.weight"])
    assert tiny.client_states[0] is kept


def test_all_tensors_can_be_mixed() -> None:
    tiny = Tiny(fedala(tensors=0)).run(2, [0, 1])
    mine = of_kind(tiny.client_states[0].slots["opening"], Mixture)
    assert mine.weights.names == tiny.net.initial.w.names
