"""FedDF (docs/papers/baselines.md, FedDF)."""

from __future__ import annotations

import math
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from raffed import Data, Federation, Local, RunConfig
from raffed.core.aggregation.uploads import UploadAccumulator
from raffed.core.context import Received
from raffed.core.messages import Upload
from raffed.core.params import Params, State
from raffed.core.server import Mean, ServerData
from raffed.methods.fedavg import fedavg
from raffed.methods.feddf import EnsembleDistillation, ensemble_target, feddf
from raffed.methods.registry import Preset
from tests.tiny import PLAIN, Tiny, digits, leaves, network, of_kind, same_bits, server_context

WHOLE = digits(
    method="feddf",
    args={"server_steps": 5, "public": 40},
    local=Local(epochs=1),
    federation=Federation(rounds=2, participation=0.5),
)


class Watched(torch.optim.Adam):
    """Adam that notes the gradient and the rate of every step."""

    seen: ClassVar[list[tuple[list[torch.Tensor], float]]] = []

    def step(self, closure: Any = None) -> Any:
        group = self.param_groups[0]
        self.seen.append(([p.grad.clone() for p in group["params"]], float(group["lr"])))
        return super().step(closure)


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> list[tuple[list[torch.Tensor], float]]:
    """(gradients, rate) of every step that the rule's Adam takes."""
    Watched.seen.clear()
    monkeypatch.setattr(torch.optim, "Adam", Watched)
    return Watched.seen


def test_one_client_alone_is_its_own_teacher_so_the_first_gradient_is_0(
    watched: list[tuple[list[torch.Tensor], float]],
) -> None:
    """(b): teacher and student are one model with one set of BatchNorm statistics, both in evaluation
    mode.
    """
    tiny = Tiny(feddf(server_steps=1), net=network(True)).run(1, [0])
    ((grads, _),) = watched
    assert len(grads) == len(tiny.net.initial.w)
    assert max(float(g.abs().max()) for g in grads) < 1e-6


def distilled(rule: EnsembleDistillation, student: list[float], *teachers: list[float]) -> torch.Tensor:
    """What the rule makes of a model that is nothing but its logits, the same for every image; float64."""
    at = lambda z: Params({"z": torch.tensor(z, dtype=torch.float64)})  # noqa: E731
    uploads = tuple(Upload(1, at(z), Params({}), {}) for z in teachers)
    k = server_context(
        received={"server": Received(len(uploads), each=uploads)},
        public=torch.zeros(3, 1),
        net=lambda state, x: (state.w["z"].expand(len(x), -1), x),
    )
    return rule.step(None, at(student), at(student), k)[1]["z"]


@pytest.mark.parametrize("tau", [1.0, 2.0])
def test_the_targets_are_the_teachers_mean_logits(
    tau: float, watched: list[tuple[list[torch.Tensor], float]]
) -> None:
    """(c): teachers (4, 0), (0, 0) and student (0, 0): ∂/∂z KL(σ(z̄/τ) ‖ σ(z/τ)) = (½ − σ(2/τ))/τ, with σ(2)
    = 0.8808.

        The mean of probabilities would have 0.7410 in its place.
    """
    distilled(EnsembleDistillation(1, 0.1, 64, tau, 3), [0.0, 0.0], [4.0, 0.0], [0.0, 0.0])
    (((slope,), _),) = watched
    wanted = (0.5 - 1 / (1 + math.exp(-2.0 / tau))) / tau
    assert slope.tolist() == pytest.approx([wanted, -wanted], rel=1e-9)
    if tau == 1.0:
        assert wanted == pytest.approx(0.5 - 0.8808, abs=5e-5)


def test_the_rate_falls_from_lr_to_1e_8_as_a_cosine(watched: list[tuple[list[torch.Tensor], float]]) -> None:
    """Step t of 4: 1e-8 + (η − 1e-8)(1 + cos(πt/4))/2."""
    distilled(EnsembleDistillation(4, 0.01, 64, 1.0, 3), [0.0, 0.0], [4.0, 0.0])
    half = math.sqrt(0.5)
    wanted = [1e-8 + (0.01 - 1e-8) * share for share in (1.0, (1 + half) / 2, 0.5, (1 - half) / 2)]
    assert [rate for _, rate in watched] == pytest.approx(wanted, abs=1e-12)


def test_where_the_student_agrees_only_adams_weight_decay_is_left() -> None:
    """MAP's code: wd 1e-6 enters as a gradient 1e-6·w, of which Adam's first step is η g/(|g| + 1e-8)."""
    after = distilled(EnsembleDistillation(1, 0.1, 64, 1.0, 3), [2.0, -1.0], [2.0, -1.0])
    pull = [1e-6 * w for w in (2.0, -1.0)]
    wanted = [w - 0.1 * g / (abs(g) + 1e-8) for w, g in zip((2.0, -1.0), pull, strict=True)]
    assert after.tolist() == pytest.approx(wanted, abs=1e-6)


def test_distillation_moves_the_student_towards_the_ensemble() -> None:
    """The KL on the public images falls to less than a third of what the plain mean has."""
    public = torch.randn(12, 4, generator=torch.Generator().manual_seed(7))
    local = replace(PLAIN, epochs=10)
    mine, plain = Tiny(feddf(300, 1e-2), local=local), Tiny(fedavg(), local=local)
    sent = [one.upload for one in plain.step([0, 1, 2, 3]).values()]
    mine.step([0, 1, 2, 3])
    z = sum(mine.net.apply(mine.net.initial.replace(w=one.w), public)[0] for one in sent) / 4
    target = ensemble_target(z, 1.0)
    students = [
        t.net.apply(t.net.initial.replace(w=t.server.w), public)[0].log_softmax(-1) for t in (mine, plain)
    ]
    distilled, mean = (float(F.kl_div(z, target, reduction="batchmean")) for z in students)
    assert distilled < mean / 3


def test_teachers_and_statistics_are_left_as_they_were() -> None:
    """(e)."""
    mine = Tiny(feddf(5), net=network(True)).run(1, [0, 1])
    plain = Tiny(fedavg(), net=network(True)).run(1, [0, 1])
    assert same_bits(mine.server.b, plain.server.b)
    assert all(same_bits(mine.last[c].upload, plain.last[c].upload) for c in (0, 1))
    assert not same_bits(mine.server.w, plain.server.w)


def test_the_fold_hands_on_every_upload_in_client_order_only_where_the_rule_asks() -> None:
    tiny = Tiny(feddf(5))
    done = {c: tiny.visit(c) for c in (2, 0)}
    for keep in (True, False):
        parts = []
        for client, one in done.items():
            fold = UploadAccumulator(keep)
            fold.add(client, 0.5, one.upload, "test")
            parts.append(fold.export())
        whole = UploadAccumulator()
        for part in parts:
            whole.merge(part)
        received = whole.finish(tiny.server)[2]
        assert ("server" in received) == keep
        if keep:
            assert [
                same_bits(a, done[c].upload) for a, c in zip(received["server"].each, (0, 2), strict=True)
            ] == [True, True]


def test_a_federation_never_sees_the_labels_of_its_public_images() -> None:
    """(d): with the test labels turned round the same images are drawn and the same weights come of them;
    docs/papers/map.md §E2.3 S7: none of them is anybody's training image.
    """
    from raffed.runs.federation import RoundLoop as Rounds
    from raffed.runs.folder import RunFolder
    from raffed.runtime.setup import prepare_run
    from raffed.runtime.worker import SerialBackend

    setup, hashes, drawn = prepare_run(WHOLE), [], []
    turned = replace(setup, dataset=replace(setup.dataset, y_test=setup.dataset.y_test[::-1].copy()))
    for one in (setup, turned):
        with tempfile.TemporaryDirectory() as folder:
            rounds = Rounds(one, SerialBackend(one), RunFolder(Path(folder) / "run", one))
            list(rounds.rounds(count=2))
            hashes.append(rounds.now.round_hashes)
            assert rounds.aggregator.public is not None
            drawn.append(rounds.aggregator.public)
    assert torch.equal(*drawn)
    assert hashes[0] == hashes[1]
    assert len(set(hashes[0])) == 2
    assert not (turned.dataset.y_test == setup.dataset.y_test).all()
    seen = {tuple(row) for row in np.asarray(setup.dataset.x).reshape(len(setup.dataset.y), -1).tolist()}
    public = (drawn[0].flatten(1) * setup.dataset.max_value).round().to(torch.int64)
    assert not seen & {tuple(row) for row in public.tolist()}


def test_the_public_images_are_the_same_in_every_round_and_for_every_method_of_a_seed() -> None:
    """(e): drawn by (seed, "public"), without labels (d)."""
    from raffed.runs.aggregation import public_images
    from raffed.runtime.setup import prepare_run

    config = RunConfig(data=Data(split="dirichlet:6:0.3"), seed=3)
    one, two = (public_images(prepare_run(replace(config, method=m)).data, 50) for m in ("feddf", "fedavg"))
    assert one is not None
    assert two is not None
    assert torch.equal(one, two)
    assert one.shape[0] == 50
    other = public_images(prepare_run(replace(config, seed=4)).data, 50)
    assert other is not None
    assert not torch.equal(one, other)
    assert public_images(prepare_run(config).data, 0) is None


def test_the_rule_needs_everybody_and_asks_for_its_images() -> None:
    rule = of_kind(feddf(public=123).server, EnsembleDistillation)
    assert rule.each
    assert rule.required_data() == ServerData(images=123)
    assert feddf(server_steps=0).server.required_data() == ServerData()
    assert leaves(server_context()) == []


def test_the_authors_preset_distils_on_the_whole_test_set_in_every_second_round() -> None:
    """docs/papers/baselines.md, FedDF: round 1 is FedAvg's, bit for bit, round 2 is not."""
    from raffed.runs.aggregation import public_images
    from raffed.runtime.setup import prepare_run

    method = feddf(5, public=3, preset="authors")
    mine = Tiny(method, net=network(True))
    plain = Tiny(replace(fedavg(), mean=Mean(by="clients")), net=network(True))
    assert same_bits(mine.run(1).server.w, plain.run(1).server.w)
    assert not same_bits(mine.run(1).server.w, plain.run(1).server.w)
    setup = prepare_run(RunConfig(data=Data(split="dirichlet:6:0.3")))
    images = public_images(setup.data, method.server.required_data().images)
    assert images is not None
    assert len(images) == len(setup.data.test_set()[1])
    assert feddf(0, preset="authors").server.required_data() == ServerData()


def batches_of(preset: Preset, images: int, batch: int, steps: int) -> list[list[int]]:
    """Which images, by number, the server sees in every step of a round that distils."""
    seen: list[list[int]] = []

    def net(state: State, x: Tensor) -> tuple[Tensor, Tensor]:
        if state.w.requires_grad:
            seen.append([int(v) for v in x[:, 0]])
        return state.w["z"].expand(len(x), -1), x

    at = Params({"z": torch.zeros(2)})
    told = {"server": Received(1, each=(Upload(1, at, Params({}), {}),))}
    k = server_context(round=1, received=told, public=torch.arange(float(images))[:, None], net=net)
    feddf(steps, batch_size=batch, preset=preset).server.step(None, at, at, k)
    return seen


def test_the_authors_batches_follow_one_permutation_a_round_over_and_over() -> None:
    """[C]: 5 images in batches of 2: in the order a b c d e these are ab, cd, ea, bc, de, and ab again; of 3
    images a batch of 4 has one twice. The original draws anew for every step, so a batch never has an image
    twice, but two in a row may share one.
    """
    seen = batches_of("authors", 5, 2, 6)
    order = [one for batch in seen for one in batch]
    assert sorted(order[:5]) == [0, 1, 2, 3, 4]
    assert order == (order[:5] * 3)[:12]
    assert [len(batch) for batch in batches_of("authors", 3, 4, 2)] == [4, 4]
    drawn = [one for batch in batches_of("original", 5, 2, 30) for one in batch]
    assert any(sorted(drawn[i : i + 5]) != [0, 1, 2, 3, 4] for i in range(0, 60, 5))


@pytest.mark.parametrize(("preset", "slope"), [("authors", 100 / 2**0.5), ("original", 380.8)])
def test_the_authors_server_clips_its_gradient_at_norm_100(
    preset: Preset, slope: float, watched: list[tuple[list[torch.Tensor], float]]
) -> None:
    """Logits 1000 z: teachers 1000 (0.004, 0), 0 and a student at 0 have the slope 1000 (½ − 0.8808) (1,
    −1), of norm 538.5.
    """
    at = lambda *z: Params({"z": torch.tensor(z, dtype=torch.float64)})  # noqa: E731
    uploads = tuple(Upload(1, w, Params({}), {}) for w in (at(0.004, 0.0), at(0.0, 0.0)))
    k = server_context(
        round=1,
        received={"server": Received(2, each=uploads)},
        public=torch.zeros(3, 1),
        net=lambda state, x: (1000 * state.w["z"].expand(len(x), -1), x),
    )
    feddf(1, 0.1, preset=preset).server.step(None, at(0.0, 0.0), at(0.0, 0.0), k)
    (((found,), _),) = watched
    assert found.tolist() == pytest.approx([-slope, slope], rel=1e-4)
