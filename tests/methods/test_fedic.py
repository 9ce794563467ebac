"""FEDIC (docs/papers/baselines.md, FEDIC)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from raffed import Federation, Local, RunConfig
from raffed.core.params import Params, State
from raffed.core.server import ServerData
from raffed.data.partition import draw_server_holdout, make_partition, partition_beside
from raffed.data.partition_file import Partition
from raffed.data.split import LabelPool
from raffed.data.splits import parse_split
from raffed.errors import UsageError
from raffed.methods.fedavg import fedavg
from raffed.methods.fedic import (
    AdamMemory,
    Calibration,
    Seen,
    adam,
    distillation,
    fedic,
    new_gates,
    seen,
    shares,
    teacher,
)
from tests.tiny import CLASSES, Tiny, client_data, digits, network, of_kind, same_bits, server_context

G = torch.Generator().manual_seed(0)
LOGITS, FEATURES, OWN = (torch.randn(*shape, generator=G) for shape in ((3, 6, 4), (6, 5), (6, 4)))
SEEN = Seen(LOGITS, FEATURES)


def gates(**changes: Tensor) -> Params:
    """The calibrator before the first round, with some of its parts replaced."""
    return Params({**new_gates(4, 5).tensors, **changes})


def small(**args: float) -> Tiny:
    return Tiny(fedic(**{"copy_steps": 3, "gate_steps": 3, "distil_steps": 3, **args}), net=network(True))  # type: ignore[arg-type]


def test_a_server_that_distils_asks_for_its_images_and_no_other() -> None:
    assert fedic(distil_steps=0).server.required_data() == ServerData()
    assert fedic(public=7, labelled=3).server.required_data() == ServerData(images=7, labelled=3)


def test_identical_clients_have_equal_shares_and_their_mixture_is_their_own_logits() -> None:
    """(2): whatever the gate is."""
    same = LOGITS[:1].expand(3, 6, 4)
    some = gates(a=torch.randn(4, generator=G), b0=torch.tensor([0.7]))
    torch.testing.assert_close(shares(some, same), torch.full((3, 6), 1 / 3))
    open_ = gates(c=torch.tensor([50.0]))
    torch.testing.assert_close(teacher(open_, Seen(same, FEATURES), OWN), LOGITS[0])


def test_the_last_gate_chooses_between_the_calibrated_copy_and_the_weighted_ensemble() -> None:
    """(3): c = −50 leaves z_g, c = +50 with s = 1 and b = 0 the ensemble weighted by sigmoid(Σ z_k)."""
    torch.testing.assert_close(teacher(gates(c=torch.tensor([-50.0])), SEEN, OWN), OWN)
    e = 1 / (1 + torch.exp(-LOGITS.sum(-1)))
    wanted = sum(e[k, :, None] * LOGITS[k] for k in range(3)) / e.sum(0)[:, None]
    torch.testing.assert_close(teacher(gates(c=torch.tensor([50.0])), SEEN, OWN), wanted)
    torch.testing.assert_close(teacher(gates(), SEEN, OWN), (wanted + OWN) / 2)


def test_scale_and_bias_act_on_the_mixture_by_class() -> None:
    s, b = torch.tensor([2.0, 1.0, 0.0, -1.0]), torch.tensor([0.0, 3.0, 1.0, 0.0])
    open_ = gates(c=torch.tensor([50.0]))
    plain = teacher(open_, SEEN, OWN)
    torch.testing.assert_close(teacher(Params({**open_.tensors, "s": s, "b": b}), SEEN, OWN), s * plain + b)


def test_with_rho_0_the_student_does_not_depend_on_the_teacher() -> None:
    """(4): other steps of the teacher's parts draw other batches, so the teacher is changed at the
    calibrator's start.
    """
    for rho, same in ((0.0, True), (0.5, False)):
        one, two = small(rho=rho).run(1, [0, 1]), small(rho=rho)
        own = of_kind(two.server.slots["server"], Calibration)
        moved = own.replace(gates=Params({**own.gates.tensors, "c": torch.tensor([9.0])}).clone())
        two.server = two.server.replace(slots={"server": moved})
        two.run(1, [0, 1])
        assert same_bits(one.server.w, two.server.w) == same


def on_the_labelled(tiny: Tiny) -> float:
    """Cross-entropy on the server's labelled set."""
    data = client_data(12, range(CLASSES), 8)
    logits = tiny.net.apply(State(tiny.server.w, tiny.server.b), data.x)[0]
    return float(torch.nn.functional.cross_entropy(logits, data.y))


def test_a_closed_gate_passes_on_what_the_calibrated_copy_knows() -> None:
    """Steps 2 and 4: c = −50 and ρ = 1, so the labels reach the student through the copy of w̄ alone;
    uncalibrated it is w̄.
    """
    losses = []
    for copy_steps in (200, 0):
        tiny = Tiny(fedic(copy_steps, 0, 200, 1e-2, rho=1.0))
        own = of_kind(tiny.server.slots["server"], Calibration)
        closed = own.replace(gates=Params({**own.gates.tensors, "c": torch.tensor([-50.0])}).clone())
        tiny.server = tiny.server.replace(slots={"server": closed})
        losses.append(on_the_labelled(tiny.run(1, [0, 1, 2])))
    plain = on_the_labelled(Tiny(fedavg()).run(1, [0, 1, 2]))
    assert losses[0] < plain / 2
    assert losses[1] == pytest.approx(plain, rel=0.1)


def test_the_three_optimisers_have_the_sheet_s_steps_rates_and_decays_and_batches(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Copy, calibrator, student: 100 steps of Adam at 1e-3, decay 2e-4 for the two networks and none for the
    calibrator; batches of 20 of A, in the last also 128 of U.
    """
    called: list[tuple[int, float, float]] = []
    drawn: list[tuple[int, int]] = []

    def spy(
        start: Params, own: AdamMemory, loss: object, steps: int, lr: float, decay: float
    ) -> tuple[Params, AdamMemory]:
        called.append((steps, lr, decay))
        return adam(start, own, loss, min(steps, 2), lr, decay)  # type: ignore[arg-type]

    def batch(n: int, size: int, draws: torch.Generator) -> Tensor:
        drawn.append((n, size))
        return torch.randperm(n, generator=draws)[:size]

    monkeypatch.setattr("raffed.methods.fedic.adam", spy)
    monkeypatch.setattr("raffed.methods.fedic.drawn_batch", batch)
    Tiny(fedic()).run(1, [0, 1])
    assert called == [(100, 1e-3, 2e-4), (100, 1e-3, 0.0), (100, 1e-3, 2e-4)]
    assert drawn == [(12, 20)] * 2 + [(12, 20)] * 2 + [(12, 128), (12, 20)] * 2


def test_a_student_that_agrees_with_its_teacher_has_no_gradient() -> None:
    """(4)."""
    student = OWN.clone().requires_grad_()
    loss = distillation(student, OWN)
    assert float(loss.detach()) == pytest.approx(0.0, abs=1e-6)
    assert float(torch.autograd.grad(loss, student)[0].abs().max()) < 1e-7
    wanted = ((OWN / 2).softmax(-1) * ((OWN / 2).log_softmax(-1) - (LOGITS[0] / 2).log_softmax(-1))).sum() / 6
    torch.testing.assert_close(distillation(LOGITS[0], OWN), wanted)


def test_the_first_step_of_the_optimiser_and_its_going_on_are_adams() -> None:
    """Adam's first step is lr·sign(g); 3 steps and 2 more with the memory of the first 3 are 5 in a row."""
    start = Params({"w": torch.tensor([1.0, -2.0])})

    def loss(w: Params) -> Tensor:
        return (w["w"] ** 2 * torch.tensor([1.0, 3.0])).sum()

    once, _ = adam(start, AdamMemory.of(start), loss, 1, 0.1, 0.0)
    torch.testing.assert_close(once["w"], torch.tensor([0.9, -1.9]))
    whole, memory = adam(start, AdamMemory.of(start), loss, 5, 0.1, 0.01)
    half, between = adam(start, AdamMemory.of(start), loss, 3, 0.1, 0.01)
    again, after = adam(half, between, loss, 2, 0.1, 0.01)
    assert same_bits([whole, memory], [again, after])
    assert float(memory.steps) == 5


def test_the_calibrator_and_the_optimisers_persist_over_rounds_and_are_not_broadcast() -> None:
    tiny = small().run(2, [0, 1, 2, 3])
    own = of_kind(tiny.server.slots["server"], Calibration)
    assert [float(one.steps) for one in (own.of_gates, own.of_copy, own.of_student)] == [6, 6, 6]
    assert not same_bits(own.gates, new_gates(3, 5))
    assert tiny.server.broadcast().slots == {}


def test_no_gradient_reaches_the_clients_models_and_the_statistics_are_their_mean() -> None:
    """(5)."""
    tiny, plain = small(), Tiny(fedavg(), net=network(True)).run(1, [0, 1])
    tiny.run(1, [0, 1])
    assert all(same_bits(tiny.last[c].upload, plain.last[c].upload) for c in (0, 1))
    assert same_bits(tiny.server.b, plain.server.b)
    live = [
        Params({n: t.clone().requires_grad_() for n, t in one.upload.w.tensors.items()})
        for one in plain.last.values()
    ]
    k = server_context(net=tiny.net.differentiable)
    said = seen([State(w, plain.server.b) for w in live], tiny.data[3].x, k)
    assert said.logits.shape == (2, 11, 3)
    assert not said.logits.requires_grad
    assert not said.features.requires_grad


def test_the_student_learns_the_labelled_set() -> None:
    """With ρ = 0 and 200 steps the cross-entropy on the server's set falls to less than half of the plain
    mean's.
    """
    plain, mine = Tiny(fedavg()).run(1, [0, 1, 2]), Tiny(fedic(1, 1, 200, 1e-2, rho=0.0)).run(1, [0, 1, 2])
    assert on_the_labelled(mine) < on_the_labelled(plain) / 2


def whole_run(method: str, **args: int) -> RunConfig:
    return digits(method=method, args=args, local=Local(epochs=1), federation=Federation(2, 0.5))


def test_the_servers_set_is_balanced_and_no_client_has_any_of_it() -> None:
    """(5); and methods that ask for nothing have the split that they always had."""
    from raffed.runs.aggregation import labelled_images
    from raffed.runtime.setup import prepare_run

    setup, plain = prepare_run(whole_run("fedic", labelled=7)), prepare_run(whole_run("fedavg"))
    own = draw_server_holdout(setup.dataset.y, 10, 7, 0)
    p = setup.partition
    assert np.bincount(setup.dataset.y[own]).tolist() == [7] * 10
    assert not np.intersect1d(own, np.concatenate([*p.train, *p.test])).size
    assert sum(map(len, (*p.train, *p.test))) == len(setup.dataset.y) - 70
    labelled = labelled_images(setup.data, 7)
    assert labelled is not None
    assert labelled[0].shape[0] == 70
    assert labelled[1].bincount().tolist() == [7] * 10
    assert labelled_images(plain.data, 0) is None
    request = parse_split("dirichlet:6:0.3"), plain.dataset.y, 10, None, 0
    assert plain.partition.sha256() == make_partition(*request).sha256()


def test_a_long_tail_is_cut_from_what_the_server_leaves() -> None:
    """100 of 500 samples a class are the server's: n_max = 400, and at imbalance 4 the tenth class has
    100.
    """
    y, y_test = np.repeat(np.arange(10), 500), np.repeat(np.arange(10), 200)
    own = draw_server_holdout(y, 10, 100, seed=1)
    p = partition_beside(own, parse_split("stages:2:5:2:if4"), LabelPool(y, 10, test_labels=y_test), 1)
    counts = p.class_counts(y).sum(0)
    assert counts.max() <= 400
    assert 90 <= counts[9] <= 100
    assert not np.intersect1d(own, np.concatenate(p.train)).size
    assert p.recipe["reserved"] == 1000
    assert p.recipe["samples"] == 5000


@pytest.mark.parametrize("text", ["dirichlet:6:0.3", "stages:2:5:2:if2"])
def test_a_split_from_a_file_loses_the_servers_samples_and_keeps_the_others_in_order(
    text: str, tmp_path: Path
) -> None:
    y, y_test = np.repeat(np.arange(10), 60), np.repeat(np.arange(10), 40)
    whole = make_partition(parse_split(text), y, 10, None, 3, None, y_test)
    whole.save(tmp_path / "p.npz")
    own = draw_server_holdout(y, 10, 5, seed=1)
    split = parse_split(f"file:{tmp_path}/p.npz")
    p = partition_beside(own, split, LabelPool(y, 10, test_labels=y_test), 1)
    for client in range(whole.num_clients):
        for stage in (None,) if whole.stages is None else (None, 0, 1):
            before = whole.train_at(client, stage)
            assert p.train_at(client, stage).tolist() == [
                i for i in before.tolist() if i not in set(own.tolist())
            ]
    assert sum(map(len, p.train)) < sum(map(len, whole.train))
    p.save(tmp_path / "q.npz")
    assert Partition.load(tmp_path / "q.npz", len(y), len(y_test)).sha256() == p.sha256()


def test_a_class_that_would_be_taken_whole_is_refused_with_its_size() -> None:
    with pytest.raises(UsageError, match="needs 5 samples of class 0, but there are only 5"):
        draw_server_holdout(np.repeat(np.arange(3), 5), 3, 5, 0)
