"""Clients begin with mixtures: FedAMP, FedALA, cwFedAvg."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

import raffed
from raffed.config.training import Local
from raffed.core.context import Context, Received, Spec
from raffed.core.ingredients import Gradient
from raffed.core.messages import Broadcast, Upload
from raffed.core.method import Method
from raffed.core.params import Params, State
from raffed.core.round import between_rounds
from raffed.core.server import Mixtures, replied
from raffed.core.training.session import Participant
from raffed.errors import UsageError
from raffed.methods.cwfedavg import (
    ClassWiseMean,
    WeightDistribution,
    class_weights,
    cwfedavg,
    norm_shares,
)
from raffed.methods.fedala import AdaptiveAggregation, Mixing, Mixture, fedala
from raffed.methods.fedamp import AttentiveMixing, HeuristicMixing, fedamp
from raffed.methods.fedavg import fedavg
from raffed.methods.solo import solo
from tests.core.test_addressed import DIGITS
from tests.tiny import (
    EVERYBODY,
    PLAIN,
    Tiny,
    bare_context,
    clients,
    forward,
    leaves,
    network,
    of_kind,
    point,
    same_bits,
    server_context,
    slopes,
    tiny_loss,
)

# FedAMP and HeurFedAMP: shares by distances and by cosines, and training near the mixture.

W3 = torch.tensor([[1.0, 1.0], [1.0, 0.0], [0.0, 2.0]])


def close(found: Any, wanted: Any) -> None:
    torch.testing.assert_close(
        torch.as_tensor(found, dtype=torch.float64),
        torch.tensor(wanted, dtype=torch.float64),
        rtol=0,
        atol=1e-6,
    )


def test_shares_by_distances_are_those_of_the_worked_example() -> None:
    """(2): α .5, σ 1; the mean of the mixtures is that of the models."""
    xi = AttentiveMixing(0.5, 1.0).shares(W3)
    close(xi[0], [0.7483926, 0.1839397, 0.0676676])
    close(xi[1], [0.1839397, 0.8126913, 0.0033690])
    close(xi[2, 2], 0.9289634)
    u = xi @ W3.double()
    close(u, [[0.9323324, 0.8837279], [0.9966310, 0.1906777], [0.0710366, 1.9255944]])
    close(u.mean(0), [0.6666667, 1.0])
    assert torch.equal(xi, xi.T)


def test_relative_shares_do_not_depend_on_the_scale_of_the_models() -> None:
    """The squared distances of W3 are 1, 2 and 5, so their mean is 8/3."""
    found = AttentiveMixing(0.5, 1.0, True).shares(W3)
    close(AttentiveMixing(0.5, 1.0, True).shares(100 * W3), found.tolist())
    close(found[0, 1], 0.5 * float(torch.exp(torch.tensor(-3 / 8, dtype=torch.float64))))


def test_equal_models_give_equal_relative_shares() -> None:
    wanted = [[0.5, 0.25, 0.25], [0.25, 0.5, 0.25], [0.25, 0.25, 0.5]]
    close(AttentiveMixing(0.25, 1.0, True).shares(torch.ones(3, 2)), wanted)


def test_shares_by_cosines_are_those_of_the_worked_example() -> None:
    """(3): ξ_ii = 1/3."""
    one = HeuristicMixing(1.0, 1 / 3).shares(W3)
    close(one[0], [1 / 3] * 3)
    close(one[1], [0.4465077, 1 / 3, 0.2201590])
    close((one @ W3.double())[1], [0.7798410, 0.8868256])
    many = HeuristicMixing(25.0, 1 / 3).shares(W3) @ W3.double()
    close(many[1:], [[1.0, 0.6666667], [0.6666667, 1.3333333]])


def test_with_sigma_0_and_an_own_share_of_1_over_n_all_get_the_uniform_mean() -> None:
    """(4)."""
    close(HeuristicMixing(0.0).shares(W3), [[1 / 3] * 3] * 3)


def test_the_first_client_alone_has_all_of_its_own_model() -> None:
    assert HeuristicMixing(25.0).shares(W3[:1]).tolist() == [[1.0]]
    assert AttentiveMixing(0.5, 1.0, True).shares(W3[:1]).tolist() == [[1.0]]


@pytest.mark.parametrize("norm", [False, True])
@pytest.mark.parametrize("args", [{"self_weight": 1.0}, {"shares": "distance", "alpha": 0.0}])
def test_with_all_of_the_own_model_and_no_pull_it_is_local_training(norm: bool, args: dict[str, Any]) -> None:
    """(1), up to the fixed point."""
    mine, alone = (Tiny(m, net=network(norm)).run(3, EVERYBODY) for m in (fedamp(pull=0.0, **args), solo()))
    for client in EVERYBODY:
        pair = zip(leaves(mine.last[client].trained), leaves(alone.last[client].trained), strict=True)
        for one, other in pair:
            torch.testing.assert_close(one, other, rtol=0, atol=1e-9)


def test_training_is_pulled_to_the_client_s_own_mixture() -> None:
    """A strong pull keeps each client near what it downloaded, which differs between clients."""
    ways, local = [], Local(lr=0.05, batch_size=4, epochs=4)
    for pull in (0.0, 10.0):
        tiny = Tiny(fedamp(pull=pull, self_weight=0.9), local=local).run(3, EVERYBODY)
        ways.append([float((d.trained.w - d.start.w).sq_norm()) for d in tiny.last.values()])
        assert float((tiny.last[0].start.w - tiny.last[1].start.w).sq_norm()) > 1e-4
    assert all(near < 0.5 * far for far, near in zip(*ways, strict=True))


def test_an_absent_client_stays_in_the_mixtures_with_its_last_model() -> None:
    tiny = Tiny(fedamp())
    tiny.step((0, 1))
    last = tiny.last[1].upload.w.flat
    tiny.step((0, 2))
    table = of_kind(tiny.server.slots["server"], Mixtures)
    assert table.known.tolist() == [True, True, True, False]
    assert torch.equal(table.rows[1], last)
    assert (table.shares[0, :3] > 0).all()
    assert not table.shares[3].any()


def test_the_uniform_mean_of_the_mixtures_is_the_global_model_by_distances_alone() -> None:
    tiny = Tiny(fedamp(shares="relative", alpha=0.3, sigma=1.0), net=network(True)).run(2, EVERYBODY)
    found = torch.stack([tiny.visit(client).start.w.flat for client in EVERYBODY])
    torch.testing.assert_close(found.mean(0), tiny.server.w.flat, rtol=0, atol=1e-6)
    assert tiny.method.has_global
    assert not fedamp().has_global


def test_a_step_that_would_make_own_shares_negative_is_refused_with_the_largest_one() -> None:
    """(2) of the traps: α ≤ σ/(N − 1); 20 clients of PFLlib's α = σ = 1 would have −18 of their own."""
    w = Params({"w": torch.zeros(3)})
    with pytest.raises(UsageError, match=r"with 20 clients alpha must be at most 0\.05263"):
        AttentiveMixing(1.0, 1.0).table_size(w, Spec(3, 4, 20, 1))
    assert AttentiveMixing(1 / 19, 1.0).table_size(w, Spec(3, 4, 20, 1)) == 20 * (16 + 20)
    largest = [AttentiveMixing(1 / n, 1.0).shares(torch.ones(n + 1, 2)) for n in range(1, 60)]
    assert min(float(shares.min()) for shares in largest) >= 0.0
    with pytest.raises(UsageError, match=r"alpha = 1 with sigma = 1"):
        raffed.run(replace(DIGITS, method="fedamp", args={"shares": "distance", "alpha": 1.0, "sigma": 1.0}))


@pytest.mark.parametrize("shares", ["distance", "relative"])
def test_a_sigma_of_0_is_refused_where_it_divides(shares: Any) -> None:
    with pytest.raises(UsageError, match=f"sigma must be above 0 with shares = '{shares}'"):
        fedamp(shares, sigma=0.0)


def test_a_survey_has_the_mean_of_all_models_where_there_is_no_global_one() -> None:
    federation = replace(DIGITS.federation, rounds=2, survey=2)
    rows = raffed.run(replace(DIGITS, method="fedamp", federation=federation)).to_pandas()
    assert not ((rows["model"] == "global") & (rows["split"] == "test")).any()
    assert (rows["metric"] == "accuracy_oracle").any()


# FedALA: the weights that mix the download with a client's last model.

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
    """(1), as an opening whose W stays 1. Without an opening it is among the equalities."""
    still = Method("Still", opening=AdaptiveAggregation(0.0, 0.8, 0, 2.0))
    mine, plain = (Tiny(one, net=network(norm)).run(4, [0, 1, 2, 3]) for one in (still, fedavg()))
    assert same_bits(plain.server, mine.server)


def test_a_weight_of_1_gives_the_download_s_own_bits() -> None:
    """(1): .1 + (.3 − .1) is not .3 in float32 for many numbers."""
    g = torch.Generator().manual_seed(0)
    last, new = (Params({"w": torch.randn(1000, generator=g)}) for _ in range(2))
    assert not torch.equal(last["w"] + (new["w"] - last["w"]), new["w"])
    k = client(last, new)
    assert torch.equal(AdaptiveAggregation(1.0, 0.8, 0, 1.0).begin(k).model.w["w"], new["w"])


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
    assert [len(rule.samples(n, torch.Generator())) for n in (1, 2, 3)] == [1, 2, 2]  # two for BatchNorm


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


# cwFedAvg: class models, mixtures by the norms of heads, and the regulariser of the head.

HEADS = torch.tensor([[[3.0, 4], [0, 1]], [[0, 1], [0, 2]], [[1, 0], [1, 0]]], dtype=torch.float64)
SHARES = [[0.8333333, 0.1666667], [0.3333333, 0.6666667], [0.5, 0.5]]
MIXED = [2.6985539, 2.8587319, 2.8053393]


def test_shares_are_those_of_the_rows_norms() -> None:
    """(1): norms 5 and 1; 1 and 2; 1 and 1."""
    found = torch.stack([norm_shares(head) for head in HEADS])
    torch.testing.assert_close(found, torch.tensor(SHARES, dtype=torch.float64), rtol=0, atol=1e-7)


def test_class_weights_are_those_of_the_worked_example() -> None:
    """(1), p = (.2, .3, .5)."""
    p = torch.tensor([0.2, 0.3, 0.5], dtype=torch.float64)
    q = class_weights(p, torch.tensor(SHARES, dtype=torch.float64))
    wanted = [[0.3225806, 0.1935484, 0.4838710], [0.0689655, 0.4137931, 0.5172414]]
    torch.testing.assert_close(q, torch.tensor(wanted, dtype=torch.float64), rtol=0, atol=1e-6)


def test_a_class_without_a_share_has_weights_0() -> None:
    q = class_weights(torch.tensor([1.0]), torch.tensor([[1.0, 0.0]], dtype=torch.float64))
    assert q.tolist() == [[1.0], [0.0]]


def uploads(body: tuple[float, ...], sizes: tuple[int, ...]) -> tuple[Upload, ...]:
    return tuple(
        Upload(n, Params({"body.w": torch.tensor([x]), "head.weight": head.float()}).clone(), Params({}), {})
        for x, n, head in zip(body, sizes, HEADS, strict=True)
    )


def mixtures(part: str = "all") -> tuple[Mixtures, Params]:
    """After a round of three clients with scalar bodies 1, 2, 4 and p = (.2, .3, .5)."""
    sent = uploads((1.0, 2.0, 4.0), (2, 3, 5))
    k = server_context(received={"server": Received(3, None, sent, (0, 1, 3))})
    mean = Params({"body.w": torch.tensor([2.8]), "head.weight": torch.zeros(2, 2)}).clone()
    return ClassWiseMean(part).step(None, mean, mean, k)  # type: ignore[arg-type]


def body(table: Mixtures, w: Params, client: int) -> float:
    return float(replied(Broadcast(1, w, Params({}), {"server": table}), client).w["body.w"])


def test_clients_download_the_mixtures_of_the_worked_example() -> None:
    """(1): class models 2.6451613 and 2.9655172; the mean by p is 2.8, which is FedAvg's."""
    table, w = mixtures()
    assert table.rows[:, 0].tolist() == pytest.approx([2.6451613, 2.9655172], abs=1e-6)
    found = [body(table, w, client) for client in (0, 1, 3)]
    assert found == pytest.approx(MIXED, abs=1e-6)
    assert sum(p * x for p, x in zip((0.2, 0.3, 0.5), found, strict=True)) == pytest.approx(2.8, abs=1e-6)
    assert body(table, w, 2) == pytest.approx(2.8)  # it never took part


def test_with_the_head_alone_the_body_is_fedavg_s_mean() -> None:
    table, w = mixtures("head")
    assert [body(table, w, client) for client in (0, 1, 3)] == pytest.approx([2.8] * 3)
    heads = [replied(Broadcast(1, w, Params({}), {"server": table}), c).w["head.weight"] for c in (0, 1)]
    assert not torch.equal(*heads)


def regulariser(weight: torch.Tensor, counts: list[int]) -> torch.Tensor:
    k = bare_context(class_counts=torch.tensor(counts))
    f = forward(torch.zeros(1, 2), torch.zeros(1), w=Params({"head.weight": weight}))
    return WeightDistribution(10.0).loss(f, k)


@pytest.mark.parametrize(("counts", "value"), [([8, 2], 0.2357023), ([1, 1], 2.3570226)])
def test_the_regulariser_of_the_worked_example(counts: list[int], value: float) -> None:
    """(4)."""
    assert float(regulariser(HEADS[0], counts)) == pytest.approx(value, abs=1e-6)


@pytest.mark.parametrize("second", [[0.0, 1.0], [0.0, 0.0]], ids=["as it is", "a row of zeros"])
@pytest.mark.parametrize("counts", [[1, 1], [5, 1]])
def test_its_gradient_is_that_of_the_worked_example_and_finite_where_shares_agree_or_a_row_is_0(
    counts: list[int], second: list[float]
) -> None:
    """(4), (6): the norm has no gradient at 0, where it would be NaN."""
    live = torch.stack([HEADS[0, 0], torch.tensor(second, dtype=torch.float64)]).requires_grad_()
    (slope,) = torch.autograd.grad(regulariser(live, counts), [live])
    assert torch.isfinite(slope).all()
    if (counts, second) == ([1, 1], [0.0, 1.0]):
        wanted = torch.tensor([[0.1178511, 0.1571348], [0.0, -0.9820928]], dtype=torch.float64)
        torch.testing.assert_close(slope, wanted, rtol=0, atol=1e-5)


def test_equal_shares_for_all_are_fedavg(monkeypatch: pytest.MonkeyPatch) -> None:
    """(2)."""
    equal = torch.full((3,), 1 / 3, dtype=torch.float64)
    monkeypatch.setattr("raffed.methods.cwfedavg.shares_of", lambda upload: equal)
    mine, plain = (Tiny(one, net=network(True)).run(2, EVERYBODY) for one in (cwfedavg(wdr=0.0), fedavg()))
    for client in EVERYBODY:
        one, other = mine.last[client].trained, plain.last[client].trained
        torch.testing.assert_close(one.w.flat, other.w.flat, rtol=0, atol=1e-6)


def test_one_hot_shares_of_different_classes_are_local_training(monkeypatch: pytest.MonkeyPatch) -> None:
    """(3): three clients and three classes."""
    given = iter(torch.eye(3, dtype=torch.float64).repeat(3, 1))
    monkeypatch.setattr("raffed.methods.cwfedavg.shares_of", lambda upload: next(given))
    mine, alone = (Tiny(one).run(3, (0, 1, 2)) for one in (cwfedavg(wdr=0.0), solo()))
    for client in (0, 1, 2):
        one, other = mine.last[client].trained.w.flat, alone.last[client].trained.w.flat
        torch.testing.assert_close(one, other, rtol=0, atol=1e-9)


def test_one_client_is_fedavg_and_without_the_regulariser_there_is_no_term() -> None:
    """(5)."""
    data = [clients()[3]]
    mine, plain = (Tiny(one, data=data).run(3, [0]) for one in (cwfedavg(wdr=0.0), fedavg()))
    torch.testing.assert_close(mine.server.w.flat, plain.server.w.flat, rtol=0, atol=1e-7)
    assert cwfedavg(wdr=0.0).terms == ()


@pytest.mark.parametrize("shares", ["norms", "counts"])
def test_the_mean_of_all_mixtures_by_samples_is_the_server_s_model(shares: str) -> None:
    """p·M = p, so that the global model has a meaning."""
    tiny = Tiny(cwfedavg(shares=shares), net=network(True)).run(2, EVERYBODY)  # type: ignore[arg-type]
    sizes = torch.tensor([float(data.n) for data in tiny.data])
    found = torch.stack([tiny.visit(client).start.w.flat for client in EVERYBODY])
    torch.testing.assert_close((sizes / sizes.sum()) @ found, tiny.server.w.flat, rtol=0, atol=1e-6)
    assert tiny.method.has_global


def test_the_downloaded_mixture_is_scored_and_the_trained_model_is_sent() -> None:
    tiny = Tiny(cwfedavg(), net=network(True)).run(2, EVERYBODY)
    done = tiny.last[1]
    assert same_bits(done.personal_state(tiny.method), done.start)
    assert same_bits(done.upload.w, done.trained.w)


def test_class_shares_leave_the_client_only_if_they_are_asked_for() -> None:
    norms, counts = (Tiny(cwfedavg(shares=one)).visit(1).upload for one in ("norms", "counts"))  # type: ignore[arg-type]
    assert norms.slots == {}
    assert [t.tolist() for t in leaves(counts.slots)] == [[0.0, 0.5, 0.5]]
