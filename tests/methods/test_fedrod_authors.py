"""FedROD's preset "authors" by hand (docs/papers/baselines-personal.md, FedROD, deviations of MAP's
released code).
"""

from __future__ import annotations

from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor

from raffed.core.params import Params
from raffed.methods.common import Companion
from raffed.methods.fedrod import fedrod
from tests.methods.test_flda import joint_step
from tests.tiny import PLAIN, Tiny, activity, bare_context, companion, of_kind


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
    kept = companion(tiny, 0)
    done, x, y = tiny.visit(0), tiny.data[0].x, tiny.data[0].y
    assert done.steps == 1
    counts = torch.bincount(y, minlength=3)

    def loss(w: Params, v: Params) -> Tensor:
        generic, h = activity(w, x)
        both = h @ v["head.weight"].T + v["head.bias"] + generic
        return F.cross_entropy(generic * 4 * counts / len(y), y) + F.cross_entropy(both / 2, y)

    after = of_kind(done.client_state.slots["personal"], Companion)
    joint_step(loss, done, (done.start.w, kept), after.own)
    logits, z = tiny.net.apply(done.trained, x)
    wanted = (logits + z @ after.own["head.weight"].T + after.own["head.bias"]) / 2
    torch.testing.assert_close(tiny.net.apply(done.personal_state(tiny.method), x)[0], wanted)
