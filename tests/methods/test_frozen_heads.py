"""Heads that training leaves alone: FedBABU, FedETF, FedNH, FedGELA, FedLoGe."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from raffed.core.context import Forward, Received, Spec
from raffed.core.losses import cross_entropy
from raffed.core.method import Method
from raffed.core.params import Params, State
from raffed.core.server import Mean
from raffed.methods.common import BODY_ONLY, NEVER, BalancedSoftmax, Companion, HeldSums, KeepHead
from raffed.methods.fedavg import fedavg
from raffed.methods.fedbabu import fedbabu
from raffed.methods.fedetf import fedetf
from raffed.methods.fedgela import ScaledByShares, fedgela, shares
from raffed.methods.fedloge import FrozenFrame, LocalHead, Realigned, fedloge
from raffed.methods.fednh import ClassDirections, MovingPrototypes, fednh
from raffed.models.last_layers import UnitFeatures
from tests.tiny import (
    PLAIN,
    Tiny,
    bare_context,
    client_data,
    companion,
    leaves,
    network,
    of_kind,
    same_bits,
    server_context,
)

# FedBABU (Oh et al., ICLR 2022): the head keeps its initial draw, the body is trained and averaged.

WHOLE = replace(PLAIN, batch_size=100, momentum=0.0, weight_decay=0.0)


@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
def test_the_head_keeps_the_bits_of_its_initial_draw_also_with_weight_decay(weight_decay: float) -> None:
    local = replace(PLAIN, weight_decay=weight_decay)
    tiny = Tiny(fedbabu(every_round=True), net=network(norm=True), local=local)
    start = tiny.server.w
    tiny.run(3)
    assert same_bits(
        [tiny.server.w[n] for n in ("head.weight", "head.bias")], [start["head.weight"], start["head.bias"]]
    )
    assert not same_bits(tiny.server.w["body.fc.weight"], start["body.fc.weight"])


def test_the_server_keeps_the_head_s_bits_where_the_mean_of_equal_numbers_would_not() -> None:
    """Numbers below 2^-20 are rounded by the exact sums, which have steps of 2^-44."""
    tiny = Tiny(fedbabu(), net=network())
    tiny.server = tiny.server.replace(w=tiny.server.w * 1e-9)
    before = tiny.server.w
    mean = Tiny(Method("mean", passes=fedbabu().passes), net=network())
    mean.server = tiny.server
    assert same_bits(tiny.run(1, [0, 1, 2]).server.w["head.weight"], before["head.weight"])
    assert not same_bits(mean.run(1, [0, 1, 2]).server.w["head.weight"], before["head.weight"])


def test_a_round_of_one_step_over_all_samples_gives_fedavg_s_body() -> None:
    """At equal weights the body's gradient is FedAvg's, whatever becomes of the head."""
    mine, plain = (Tiny(one, local=WHOLE).run(1, [0, 1, 2, 3]) for one in (fedbabu(), fedavg()))
    for name in mine.server.w.names:
        assert torch.equal(mine.server.w[name], plain.server.w[name]) == name.startswith("body."), name


@pytest.mark.parametrize(
    ("scope", "moved"), [("all", ("body.", "head.")), ("head", "head."), ("body", "body.")]
)
def test_fine_tuning_moves_its_scope_and_leaves_the_bits_of_the_rest(
    scope: str, moved: str | tuple[str, ...]
) -> None:
    tiny = Tiny(fedbabu(scope=scope, every_round=True), net=network()).run(1)  # type: ignore[arg-type]
    done = tiny.visit(1)
    own = done.personal_state(tiny.method).w
    for name in own.names:
        assert torch.equal(own[name], done.start.w[name]) != name.startswith(moved), name


def test_its_rule_is_the_mean_of_the_clients_bodies() -> None:
    """Two clients at equal weights: the mean of their bodies, to the step of the exact sums."""
    tiny = Tiny(replace(fedbabu(), mean=Mean(by="clients")), net=network()).run(1, [0, 1])
    sent = [tiny.last[c].upload.w["body.fc.weight"] for c in (0, 1)]
    torch.testing.assert_close(tiny.server.w["body.fc.weight"], (sent[0] + sent[1]) / 2, rtol=0, atol=1e-7)


# FedETF (Li et al., ICCV 2023): unit features under a frozen simplex ETF, balanced softmax.

FRAME = math.sqrt(3 / 2) * (torch.eye(3) - 1 / 3)  # C = 3, U = I


def worked(missing: str) -> tuple[Tensor, Tensor, Tensor]:
    """Logits, loss and dL/ds of z = (1, 2, 2), s = 10, n = (4, 0, 2), y = 2."""
    unit = UnitFeatures(10.0, learn=True)
    logits = unit(torch.tensor([[1.0, 2.0, 2.0]])) @ FRAME
    k = bare_context(class_counts=torch.tensor([4, 0, 2]))
    head = BalancedSoftmax(1.0, missing=missing)
    loss = cross_entropy(head.logits(logits, k), torch.tensor([2]))
    (slope,) = torch.autograd.grad(loss, list(unit.parameters()))
    return logits.detach()[0], loss.detach(), slope


def test_the_worked_example_has_the_sheet_s_logits_loss_and_slope_of_the_scale() -> None:
    logits, loss, slope = worked("one")
    torch.testing.assert_close(logits, torch.tensor([-2.7216553, 1.3608276, 1.3608276]), rtol=0, atol=1e-6)
    assert float(loss) == pytest.approx(0.4277034, abs=1e-6)
    assert float(slope) == pytest.approx(-0.0089785, abs=1e-6)


def test_masking_the_missing_class_gives_another_loss() -> None:
    assert float(worked("mask")[1]) == pytest.approx(0.0331747, abs=1e-6)


@pytest.mark.parametrize("factor", [7.0, 1e-3])
def test_a_scaled_feature_changes_no_logit(factor: float) -> None:
    z, unit = torch.tensor([[1.0, 2.0, 2.0], [0.5, -3.0, 0.1]]), UnitFeatures(10.0, learn=True)
    torch.testing.assert_close(unit(factor * z) @ FRAME, unit(z) @ FRAME, rtol=1e-6, atol=1e-6)


def test_the_frame_keeps_its_bits_and_the_scale_moves_and_is_averaged() -> None:
    tiny = Tiny(fedetf(), net=network(norm=True))
    start = tiny.server.w
    assert float(start["body.unit.scale"]) == 10.0
    tiny.run(1, [0, 1, 2, 3])
    assert same_bits(tiny.server.w["head.weight"], start["head.weight"])
    weights = tiny.method.mean.weights([tiny.data[c].n for c in range(4)])
    sent = [float(tiny.last[c].upload.w["body.unit.scale"]) for c in range(4)]
    assert len({*sent, 10.0}) == 5
    mean = sum(p * s for p, s in zip(weights, sent, strict=True))
    assert float(tiny.server.w["body.unit.scale"]) == pytest.approx(mean, rel=1e-6)


def test_a_scale_that_is_not_learned_is_no_parameter() -> None:
    assert "body.unit.scale" not in Tiny(fedetf(learn_scale=False)).server.w.names


@pytest.mark.parametrize("missing", ["one", "mask", "eps"])
def test_equally_many_samples_of_all_classes_make_the_loss_the_cross_entropy(missing: str) -> None:
    z = torch.randn(5, 3, generator=torch.Generator().manual_seed(0))
    y, k = torch.tensor([0, 1, 2, 0, 1]), bare_context(class_counts=torch.tensor([7, 7, 7]))
    loss = cross_entropy(BalancedSoftmax(1.0, missing=missing).logits(z, k), y)
    torch.testing.assert_close(loss, cross_entropy(z, y), rtol=1e-6, atol=1e-6)


def test_features_have_the_length_of_the_scale_and_may_be_negative() -> None:
    tiny = Tiny(fedetf()).run(2)
    scale = float(tiny.server.w["body.unit.scale"])
    _, z = tiny.net.apply(tiny.visit(3).start, tiny.data[3].x)
    torch.testing.assert_close(z.norm(dim=1), torch.full((11,), scale), rtol=1e-5, atol=1e-5)
    assert bool((z < 0).any())


def test_fine_tuning_moves_the_whole_network_and_not_the_server() -> None:
    tiny = Tiny(fedetf(every_round=True), net=network()).run(1)
    done = tiny.visit(1)
    own = done.personal_state(tiny.method).w
    assert not any(torch.equal(own[name], done.start.w[name]) for name in ("head.weight", "body.fc.weight"))
    none = Tiny(fedetf(epochs=0.0, every_round=True), net=network()).run(1)
    assert same_bits(none.everything(), tiny.everything())


# FedNH (Dai et al., AAAI 2023): a cosine head whose rows move towards the clients' class means.


def sent(counts: tuple[int, ...], features: dict[int, tuple[float, ...]], unit: str = "client") -> HeldSums:
    """What a client sends whose features of a class are all the same."""
    y = torch.tensor([c for c, n in enumerate(counts) for _ in range(n)])
    z = torch.tensor([features[int(c)] for c in y])
    k = bare_context(
        class_counts=torch.tensor(counts),
        spec=Spec(3, 3, 2, 1),
        features=lambda _: iter([(z, y)]),
    )
    return of_kind(ClassDirections(unit).finish(k)[1], HeldSums)


def rows_after(one: HeldSums, other: HeldSums, rho: float = 0.9) -> Tensor:
    told = HeldSums(one.total + other.total, one.count + other.count)
    k = server_context(received={"message": Received(2, told)})
    w = Params({"body.x": torch.zeros(1), "head.weight": torch.eye(3)})
    return MovingPrototypes(rho).step(None, w, w, k)[1]["head.weight"]


ONE = sent((3, 1, 0), {0: (0.6, 0.8, 0.0), 1: (0.0, 1.0, 0.0)})
OTHER = sent((1, 0, 0), {0: (1.0, 0.0, 0.0)})


def test_the_worked_example_has_the_sheet_s_rows() -> None:
    """proto₀ = unit(3 (.6, .8, 0) + (1, 0, 0)) = (.7592566, .6507914, 0)."""
    total = (ONE.total + OTHER.total)[0]
    torch.testing.assert_close(
        total / total.norm(), torch.tensor([0.7592566, 0.6507914, 0.0]), rtol=0, atol=1e-6
    )
    rows = rows_after(ONE, OTHER)
    torch.testing.assert_close(rows[0], torch.tensor([0.9977840, 0.0665367, 0.0]), rtol=0, atol=1e-6)
    torch.testing.assert_close(rows[1:], torch.eye(3)[1:], rtol=0, atol=1e-6)


def test_a_class_that_no_participant_holds_keeps_the_bits_of_its_row() -> None:
    assert torch.equal(rows_after(ONE, OTHER)[2], torch.eye(3)[2])


def test_the_length_of_features_changes_nothing() -> None:
    long = sent((3, 1, 0), {0: (6.0, 8.0, 0.0), 1: (0.0, 0.1, 0.0)})
    torch.testing.assert_close(long.total, ONE.total, rtol=1e-6, atol=1e-6)


def test_without_scaling_a_class_whose_features_disagree_counts_less() -> None:
    """Features (1, 0, 0) and (0, 1, 0) have a mean of length 1/√2, and two of them the sum (1, 1, 0)."""
    z, y = torch.eye(3)[:2], torch.tensor([0, 0])
    spec = Spec(3, 3, 2, 1)
    k = bare_context(class_counts=torch.tensor([2, 0, 0]), spec=spec, features=lambda _: iter([(z, y)]))
    lengths = []
    for unit in ("client", "none"):
        told = ClassDirections(unit).finish(k)[1]
        assert told is not None
        lengths.append(float(told.total[0].norm()))
    assert lengths == pytest.approx([2.0, 2**0.5])


def test_with_rho_1_it_is_the_frozen_orthogonal_head_bit_for_bit() -> None:
    frozen = Method(
        "FedUH",
        passes=BODY_ONLY,
        mean=Mean(by="clients"),
        server=KeepHead(),
        network=fednh().network,
    )
    mine, other = (Tiny(one, net=network(norm=True)).run(3) for one in (fednh(rho=1.0), frozen))
    assert same_bits(mine.server.w, other.server.w)
    assert same_bits(mine.server.b, other.server.b)


def test_rows_always_have_length_1_and_move() -> None:
    tiny = Tiny(fednh(rho=0.5), net=network(norm=True))
    start = tiny.server.w["head.weight"]
    torch.testing.assert_close(start @ start.T, torch.eye(3), rtol=0, atol=1e-6)
    for _ in range(3):
        tiny.step([0, 1])
        rows = tiny.server.w["head.weight"]
        torch.testing.assert_close(rows.norm(dim=1), torch.ones(3), rtol=0, atol=1e-6)
    assert not torch.equal(rows, start)


def test_the_head_is_frozen_in_local_training() -> None:
    tiny = Tiny(fednh(), net=network()).run(2, [0, 1, 2, 3])
    done = tiny.visit(1)
    assert same_bits(done.trained.w["head.weight"], done.start.w["head.weight"])


# FedGELA (Fan et al., NeurIPS 2023): a frozen simplex ETF, scaled by the client's class shares at home.

COUNTS = torch.tensor([80, 15, 0, 5])
LOGITS = torch.tensor([[1.0, 0.5, -0.5, 0.0]]) @ (math.sqrt(4 / 3) * (torch.eye(4) - 1 / 4))


def test_the_worked_example_has_the_sheet_s_logits_and_scales() -> None:
    """C = 4, U = I, h = (1, .5, −.5, 0), n = (80, 15, 0, 5)."""
    wanted = torch.tensor([[0.8660254, 0.2886751, -0.8660254, -0.2886751]])
    torch.testing.assert_close(LOGITS, wanted, rtol=0, atol=1e-6)
    torch.testing.assert_close(shares(COUNTS), torch.tensor([3.2, 0.6, 0.0, 0.2]), rtol=0, atol=1e-6)


@pytest.mark.parametrize(("temperature", "loss"), [(1.0, 0.1790406), (0.2, 3.9613e-6)])
def test_the_worked_example_has_the_sheet_s_loss(temperature: float, loss: float) -> None:
    head, k = ScaledByShares(temperature), bare_context(class_counts=COUNTS)
    found = cross_entropy(head.logits(LOGITS.double(), k), torch.tensor([0]))
    assert float(found) == pytest.approx(loss, rel=1e-4)


def test_a_missing_class_has_the_logit_0_and_is_not_masked() -> None:
    k = bare_context(class_counts=COUNTS)
    assert float(ScaledByShares(0.2).logits(LOGITS, k)[0, 2]) == 0.0


def test_with_equal_counts_and_temperature_1_it_is_fedavg_under_a_frozen_etf_bit_for_bit() -> None:
    frozen = Method("ETF", passes=BODY_ONLY, server=KeepHead(), network=fedgela().network)
    data = [client_data(12, (0, 1, 2), seed) for seed in range(4)]
    mine, plain = (
        Tiny(one, net=network(norm=True), data=data).run(3) for one in (fedgela(temperature=1.0), frozen)
    )
    assert same_bits(mine.everything(), plain.everything())


def test_unequal_counts_or_another_temperature_make_another_run() -> None:
    data = [client_data(12, (0, 1, 2), seed) for seed in range(4)]
    one, other = (Tiny(fedgela(temperature=t), data=data).run(2) for t in (1.0, 0.2))
    assert not same_bits(one.server.w, other.server.w)


def test_the_frame_keeps_its_bits() -> None:
    tiny = Tiny(fedgela(), net=network(norm=True))
    start = tiny.server.w["head.weight"]
    torch.testing.assert_close(start @ start.T, torch.eye(3) * 1.5 - 0.5, rtol=0, atol=1e-6)
    assert same_bits(tiny.run(3).server.w["head.weight"], start)


def test_the_client_s_model_has_scaled_rows_and_the_global_one_has_not() -> None:
    tiny = Tiny(fedgela(), net=network()).run(1, [0, 1, 2, 3])
    done = tiny.last[1]  # 5 samples of class 1 and 5 of class 2
    own, frame = done.personal_state(tiny.method).w, tiny.server.w["head.weight"]
    torch.testing.assert_close(own["head.weight"], frame * torch.tensor([[0.0], [1.5], [1.5]]))
    assert same_bits(own["body.fc.weight"], done.trained.w["body.fc.weight"])


def test_a_batch_of_one_sample_is_trained_on() -> None:
    """BatchNorm over one sample's features has no variance, so the running statistics normalise it."""
    tiny = Tiny(fedgela(temperature=1.0), data=[replace(client_data(5, (0, 1, 2), s)) for s in range(4)])
    tiny.run(2, [0, 1, 2, 3])
    assert all(bool(torch.isfinite(t).all()) for t in leaves(tiny.server))


# FedLoGe (Xiao et al., ICLR 2024): the body under a frozen sparse ETF, two heads beside it.

GLOBAL = torch.tensor([[3.0, 4.0], [0.0, 0.5], [1.0, 0.0]])
FEATURE = torch.tensor([[1.0, -0.2]])


def test_the_worked_example_is_predicted_as_2_once_rows_have_one_length() -> None:
    """Plain (2.2, −.1, 1) ⇒ 0; realigned (.748, −.34, 1.7) ⇒ 2."""
    plain = FEATURE @ GLOBAL.T
    torch.testing.assert_close(plain, torch.tensor([[2.2, -0.1, 1.0]]), rtol=0, atol=1e-6)
    rows = Realigned(length=1.7).evaluation_weights(None, Params({"head.weight": GLOBAL}))["head.weight"]
    aligned = FEATURE @ rows.T
    torch.testing.assert_close(aligned, torch.tensor([[0.748, -0.34, 1.7]]), rtol=0, atol=1e-6)
    assert (int(plain.argmax()), int(aligned.argmax())) == (0, 2)


def test_the_client_s_rows_are_the_global_ones_times_the_local_lengths() -> None:
    """l norms (2, 1, .5) ⇒ rows (6, 8), (0, .5), (.5, 0), to which l is added."""
    local = torch.tensor([[2.0, 0.0], [0.0, 1.0], [0.3, 0.4]])
    state = State(Params({"head.weight": GLOBAL}), Params({}))
    k = bare_context(state=state, mine=Companion(Params({"head.weight": local})))
    rows = LocalHead().model(k).w["head.weight"] - local
    torch.testing.assert_close(rows, torch.tensor([[6.0, 8.0], [0.0, 0.5], [0.5, 0.0]]), rtol=0, atol=1e-6)


def test_a_class_that_the_client_misses_is_never_predicted() -> None:
    tiny = Tiny(fedloge(), net=network()).run(2, [0, 1, 2, 3])
    done, method = tiny.last[1], tiny.method
    assert method.personal is not None
    logits = done.personal_logits(method.personal, tiny.data[3].x)
    assert bool((logits[:, 0] == NEVER).all())
    assert bool((logits[:, 1:] > NEVER).all())


def gradient(head: Tensor, local: Tensor) -> tuple[Tensor, ...]:
    """Of the features, the global head and the local one."""
    frame = torch.tensor([[0.1, 0.0], [0.0, 0.1], [-0.1, 0.1]])
    initial = State(Params({"head.weight": frame}), Params({}))
    z = torch.tensor([[1.0, -0.2], [0.3, 0.7]], requires_grad=True)
    g, own = head.clone().requires_grad_(), local.clone().requires_grad_()
    f = Forward(z, torch.tensor([0, 2]), z, z @ g.T, Params({"head.weight": g}), Params({"head.weight": own}))
    k = bare_context(initial=initial)
    return torch.autograd.grad(FrozenFrame().loss(f, k) + LocalHead().loss(f, k), (z, g, own))


def test_the_body_s_gradient_does_not_depend_on_either_head_and_theirs_are_not_0() -> None:
    one, other = gradient(GLOBAL, GLOBAL), gradient(-3 * GLOBAL, torch.zeros(3, 2))
    assert torch.equal(one[0], other[0])
    assert all(float(slope.abs().max()) > 0 for slope in (*one, *other))


@pytest.mark.parametrize("local", [False, True])
def test_with_a_dense_frame_the_body_is_that_of_fedavg_under_a_frozen_etf(local: bool) -> None:
    frozen = Method("ETF", passes=BODY_ONLY, server=KeepHead(), network=(("head_init", "etf"),))
    mine = Tiny(fedloge("etf", realign=False, local=local), net=network(norm=True, bias=False)).run(3)
    plain = Tiny(frozen, net=network(norm=True, bias=False)).run(3)
    for name in mine.server.w.names:
        assert same_bits(mine.server.w[name], plain.server.w[name]) == name.startswith("body."), name


def test_realigning_is_for_scores_alone_and_the_local_head_never_moves_the_server() -> None:
    usual = Tiny(fedloge(), net=network()).run(3)
    for other in (fedloge(realign=False), fedloge(local=False)):
        assert same_bits(Tiny(other, net=network()).run(3).server.w, usual.server.w)


def test_the_local_head_begins_as_the_frame_and_stays_with_the_client() -> None:
    tiny = Tiny(fedloge(), net=network()).run(1, [0, 1, 2, 3])
    frame = tiny.net.initial.w["head.weight"]
    assert not torch.equal(companion(tiny, 1)["head.weight"], frame)
    assert set(tiny.last[1].upload.slots) == set()
    still = Tiny(fedloge(), net=network(), local=replace(tiny.local, lr=0.0)).run(1, [0, 1, 2, 3])
    assert torch.equal(companion(still, 1)["head.weight"], frame)
