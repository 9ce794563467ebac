"""FedROD's preset "authors" by hand (docs/papers/baselines-personal.md, FedROD, deviations of MAP's
released code).
"""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from raffed.core.params import Params
from raffed.methods.common import Companion
from raffed.methods.fedrod import fedrod
from tests.tiny import PLAIN, Tiny, bare_context


def scaled(gamma: float, counts: list[int]) -> Tensor:
    """What its generic head makes of logits that are all 1."""
    head = fedrod(gamma, preset="authors").head
    assert head is not None
    return head.logits(torch.ones(2, len(counts)), bare_context(class_counts=torch.tensor(counts)))


def test_a_client_of_all_classes_has_a_logit_scale_of_4_over_c() -> None:
    """0.4 for C = 10, 0.04 for C = 100: the 4 is a constant. γ is its exponent."""
    torch.testing.assert_close(scaled(1.0, [7] * 10), torch.full((2, 10), 0.4))
    torch.testing.assert_close(scaled(1.0, [7] * 100), torch.full((2, 100), 0.04))
    torch.testing.assert_close(scaled(0.5, [7] * 10), torch.full((2, 10), 0.4**0.5))


def test_a_missing_class_has_logit_0_and_a_share_of_the_denominator() -> None:
    """Counts 4, 2, 0 of 6: scales 16/6, 8/6, 0; the balanced softmax would have −∞."""
    torch.testing.assert_close(scaled(1.0, [4, 2, 0]), torch.tensor([[16 / 6, 8 / 6, 0.0]] * 2))


def test_one_step_is_that_of_both_losses_jointly_and_the_score_is_half_the_sum_of_both_heads() -> None:
    """L = CE((4 n/Σn) z_g) + CE(½ (V h + z_g)), its gradient in θ, W_g and V without a stop; client 0
    lacks class 2.
    """
    tiny = Tiny(
        fedrod(preset="authors"), local=replace(PLAIN, momentum=0.0, weight_decay=0.0, batch_size=64)
    ).run(1, [0, 1])
    kept = tiny.client_states[0].slots["personal"]
    assert isinstance(kept, Companion)
    done, x, y = tiny.visit(0), tiny.data[0].x, tiny.data[0].y
    assert done.steps == 1
    w, v = (
        Params({n: t.clone().requires_grad_() for n, t in p.tensors.items()})
        for p in (done.start.w, kept.own)
    )
    h = torch.tanh(x @ w["body.fc.weight"].T + w["body.fc.bias"])
    generic, personal = (h @ p["head.weight"].T + p["head.bias"] for p in (w, v))
    counts = torch.bincount(y, minlength=3)
    loss = F.cross_entropy(generic * 4 * counts / len(y), y) + F.cross_entropy((personal + generic) / 2, y)
    assert done.loss == pytest.approx(float(loss.detach()), rel=1e-5)
    after = done.client_state.slots["personal"]
    assert isinstance(after, Companion)
    for point, moved in ((w, done.trained.w), (v, after.own)):
        grads = torch.autograd.grad(loss, list(point.tensors.values()), retain_graph=True)
        for (n, t), slope in zip(point.tensors.items(), grads, strict=True):
            torch.testing.assert_close(moved[n], t.detach() - 0.1 * slope, rtol=1e-5, atol=1e-6)
    logits, z = tiny.net.apply(done.trained, x)
    wanted = (logits + z @ after.own["head.weight"].T + after.own["head.bias"]) / 2
    torch.testing.assert_close(tiny.net.apply(done.personal_state(tiny.method), x)[0], wanted)
