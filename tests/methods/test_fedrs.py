"""Restricted softmax and FedRS (docs/papers/map.md §6 R1-R7, §1.2-1.4). R1, R5 and R6 are among the laws."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from raffed.config.training import Local
from raffed.core.context import ClientData
from raffed.core.params import Params
from raffed.core.round import client_round
from raffed.core.training.network import Network
from raffed.data.datasets import load_dataset
from raffed.errors import UnknownNameError
from raffed.methods import build_method
from raffed.methods.fedavg import fedavg
from raffed.methods.fedrs import RestrictedSoftmax, fedrs
from raffed.models import build
from tests.tiny import OWNED, PLAIN, Tiny, bare_context, clients, network, of_kind


def rows(w: Params, client: int, missing: bool) -> list[int]:
    return [c for c in range(3) if (c not in OWNED[client]) == missing]


def test_alpha_0_without_decay_leaves_missing_rows_bit_identical() -> None:
    """R2: a missing class's row gets the gradient α(…) = 0. Its bias too."""
    local = replace(PLAIN, weight_decay=0.0, epochs=3)
    tiny = Tiny(fedrs(alpha=0.0), local=local)
    for client in (0, 1, 2):
        w = tiny.visit(client).trained.w
        for c in rows(w, client, missing=True):
            assert torch.equal(w["head.weight"][c], tiny.net.initial.w["head.weight"][c])
            assert torch.equal(w["head.bias"][c], tiny.net.initial.w["head.bias"][c])
        for c in rows(w, client, missing=False):
            assert not torch.equal(w["head.weight"][c], tiny.net.initial.w["head.weight"][c])


def test_alpha_0_with_decay_shrinks_all_missing_rows_by_one_factor() -> None:
    """R2: rows become s·w with the same 0 < s < 1. Client 2 misses classes 1 and 2."""
    tiny = Tiny(fedrs(alpha=0.0), net=network(bias=False), local=replace(PLAIN, weight_decay=0.1, epochs=3))
    w, w0 = tiny.visit(2).trained.w["head.weight"], tiny.net.initial.w["head.weight"]
    ratio = w[1:] / w0[1:]
    assert 0 < float(ratio.min()) <= float(ratio.max()) < 1
    torch.testing.assert_close(ratio, torch.full_like(ratio, float(ratio[0, 0])), rtol=1e-5, atol=0)


@given(st.integers(0, 10**6), st.sampled_from([0.1, 0.5, 0.9, 1.0]))
def test_the_gradients_of_proxies_and_features_are_those_of_section_1_2(seed: int, alpha: float) -> None:
    """R3, eq. 9, float64: ∂L/∂w_c = α_c (1/B) Σ_i (p_ic − 1[y_i = c]) h_i, ∂L/∂h_i = (1/B) Σ_c α_c (p_ic −
    1[y_i = c]) w_c, and Σ_c (∂L/∂w_c)/α_c = 0.
    """
    g = torch.Generator().manual_seed(seed)
    h = torch.randn(6, 4, generator=g, dtype=torch.float64, requires_grad=True)
    w = torch.randn(3, 4, generator=g, dtype=torch.float64, requires_grad=True)
    y = torch.randint(0, 2, (6,), generator=g)
    k = bare_context(class_counts=torch.tensor([3, 3, 0]))
    loss = F.cross_entropy(RestrictedSoftmax(alpha).logits(h @ w.T, k), y)
    got_w, got_h = torch.autograd.grad(loss, [w, h])
    a = torch.tensor([1.0, 1.0, alpha], dtype=torch.float64)
    error = (a * (h @ w.T)).softmax(-1).detach() - torch.eye(3, dtype=torch.float64)[y]
    exact = alpha in (0.5, 1.0)  # α is held in float32 as a factor, so 0.9 is off by 2.6e-8 relative
    rtol, atol = (1e-12, 1e-12) if exact else (1e-6, 1e-7)
    torch.testing.assert_close(got_w, a[:, None] * (error.T @ h.detach()) / 6, rtol=rtol, atol=atol)
    torch.testing.assert_close(got_h, (error * a) @ w.detach() / 6, rtol=rtol, atol=atol)
    assert float((got_w / a[:, None]).sum(0).abs().max()) < (1e-12 if exact else 1e-6)


def test_alpha_0_is_not_masking() -> None:
    """R4: −z_y + log(Σ_{c∈O} e^{z_c} + |M|); masking would lack the |M| = 2."""
    z = torch.tensor([[0.3, -1.2, 2.0, 0.7]], dtype=torch.float64)
    k = bare_context(class_counts=torch.tensor([5, 0, 0, 2]))
    loss = F.cross_entropy(RestrictedSoftmax(0.0).logits(z, k), torch.tensor([0]))
    owned = z[0, [0, 3]].exp().sum()
    torch.testing.assert_close(loss, -z[0, 0] + (owned + 2).log())
    assert abs(float(loss - (-z[0, 0] + owned.log()))) > 0.3


def test_a_client_with_3_of_10_classes_has_exactly_7_factors_equal_to_alpha() -> None:
    """R6."""
    counts = torch.tensor([0, 7, 0, 0, 1, 0, 0, 0, 200, 0])
    a = RestrictedSoftmax(0.25).factors(counts)
    assert a.tolist() == [0.25, 1, 0.25, 0.25, 1, 0.25, 0.25, 0.25, 1, 0.25]


def factors(mode: str, counts: list[int], n_min: int = 1) -> list[float]:
    return RestrictedSoftmax(0.5, mode, n_min).factors(torch.tensor(counts)).tolist()


def test_the_three_modes_of_section_1_4() -> None:
    """binary: n ≥ n_min. counts: α + (1−α)n/max n = 0.5 + 0.5·(8, 2, 0)/8. uniform_bug: α for all, unless
    one class.
    """
    assert factors("binary", [8, 2, 0]) == [1.0, 1.0, 0.5]
    assert factors("binary", [8, 1, 0], n_min=2) == [1.0, 0.5, 0.5]
    assert factors("counts", [8, 2, 0]) == [1.0, 0.625, 0.5]
    assert factors("uniform_bug", [8, 2, 0]) == [0.5, 0.5, 0.5]
    assert factors("uniform_bug", [8, 0, 0]) == [1.0, 0.5, 0.5]


def test_the_bug_is_a_softmax_temperature() -> None:
    """§1.4: CE(α·z)."""
    z = torch.randn(5, 3, generator=torch.Generator().manual_seed(0))
    k = bare_context(class_counts=torch.tensor([4, 4, 0]))
    assert torch.equal(RestrictedSoftmax(0.5, "uniform_bug").logits(z, k), 0.5 * z)


def test_the_observed_set_comes_from_training_labels_alone() -> None:
    """R7: a class that occurs only in the local test part is missing. 2 of 5 samples held out are class 2."""
    from raffed.config.run import RunConfig
    from raffed.config.sections import Data, Runtime
    from raffed.runtime.setup import prepare_run
    from raffed.runtime.worker import ClientWorker

    config = RunConfig(
        data=Data(split="dirichlet:20:0.1", local_test=0.5), runtime=Runtime(execution="serial")
    )
    host = ClientWorker(prepare_run(config), None)
    labels, partition, only_tested = host.setup.dataset.y, host.setup.partition, 0
    for client in range(partition.num_clients):
        counts = host.data.client(client).class_counts
        trained = set(labels[partition.train[client]].tolist())
        tested = set(labels[partition.test[client]].tolist())
        a = RestrictedSoftmax(0.5).factors(counts)
        assert {c for c in range(10) if a[c] == 1.0} == trained
        only_tested += len(tested - trained)
    assert only_tested > 0


def test_restricting_pushes_missing_proxies_less() -> None:
    """§1.2: the push on a missing row is damped by α. Client 2 owns class 0 only; one full-batch step from
    equal logits (zero head): p = 1/3 for every α, so the row moves by −ηα(1/B) Σ h/3, in proportion to α.
    """
    local = replace(PLAIN, momentum=0.0, weight_decay=0.0, batch_size=64)

    def moved(alpha: float) -> Tensor:
        net = network(bias=False)
        net.initial.w["head.weight"].zero_()
        tiny = Tiny(fedrs(alpha), net=net, local=local, data=clients())
        return tiny.visit(2).trained.w["head.weight"][1]

    torch.testing.assert_close(moved(0.1), 0.1 * moved(1.0), rtol=1e-5, atol=1e-8)


def test_only_methods_with_a_preset_have_a_mode_that_depends_on_it() -> None:
    """FedRS and MAP name theirs; DittoRS, ScaRS and ScaMAP take the preset's."""
    for name in ("fedrs", "map"):
        with pytest.raises(UnknownNameError, match="mode 'auto'"):
            build_method(name, {"mode": "auto"})
    theirs = {"dittors": "counts", "scars": "uniform_bug", "scamap": "uniform_bug"}
    for name, mode in theirs.items():
        for preset, wanted in (("original", "binary"), ("authors", mode)):
            head = of_kind(build_method(name, {"preset": preset}).head, RestrictedSoftmax)
            assert head.mode == wanted


# M7 (docs/papers/map.md §6; Fig. 8 of the paper): restricting keeps the proxies of missing classes from
# being pushed away.


def test_after_local_training_missing_proxies_are_longer_with_alpha_0_1_than_with_alpha_1() -> None:
    """2 clients × 5 disjoint classes of digits, from a model that knows all ten: plain local training shrinks
    the rows of the five missing classes (push without pull), damping the push by 0.1 shrinks them less.
    """
    digits = load_dataset("digits")
    x = torch.from_numpy(digits.x).float() / 16
    y = torch.from_numpy(digits.y)

    def client(keep: torch.Tensor) -> ClientData:
        return ClientData(x[keep], y[keep], torch.bincount(y[keep], minlength=10))

    net = Network(build("mlp", (1, 8, 8), 10, 0, hidden=(32,), head_bias=False))
    local = Local(lr=0.1, momentum=0.9, weight_decay=0.0, batch_size=64, epochs=3)
    joint = Tiny(fedavg(), net=net, data=[client(y >= 0)], local=local).run(1)
    halves = Tiny(fedavg(), net=net, data=[client(y < 5), client(y >= 5)], local=local)
    for number, missing in ((0, slice(5, 10)), (1, slice(0, 5))):
        norms = {}
        for alpha in (0.1, 1.0):
            sent, data = joint.server.broadcast(), halves.data[number]
            done = client_round(fedrs(alpha), sent, None, data, halves.session, number)
            norms[alpha] = float(done.trained.w["head.weight"][missing].norm(dim=1).mean())
        assert norms[0.1] > norms[1.0]
