"""FedLWS (Shi et al. 2025): each layer of the mean is shrunk by how much clients disagree in it."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch

from raffed.core.context import Received
from raffed.core.messages import Upload
from raffed.core.params import Params
from raffed.errors import UsageError
from raffed.methods.fedavg import fedavg
from raffed.methods.fedlws import LayerwiseShrinking, fedlws, layers_of
from tests.tiny import Tiny, network, point, same_bits, server_context

NAMES = ("body.conv.weight", "body.norm.weight", "body.norm.bias", "head.weight")
Vector = list[float]


def after(rule: LayerwiseShrinking, w: Params, uploads: list[Params], p: Vector) -> Params:
    """w^{t+1} of uploads with weights p."""
    mean = sum((one * share for one, share in zip(uploads[1:], p[1:], strict=True)), uploads[0] * p[0])
    each = tuple(Upload(1, one, Params({}), {}) for one in uploads)
    k = server_context(received={"server": Received(len(each), each=each)})
    return rule.step(None, w, mean, k)[1]


@pytest.mark.parametrize(
    ("beta", "spread", "gamma", "made"),
    [
        (0.03, "norm", 0.9899019, [3.2171812, 5.4444605]),
        (0.3, "norm", 0.9426602, [3.0636457, 5.1846312]),  # τ at its upper bound
        (0.03, "rms", 0.9899019, [3.2171812, 5.4444605]),  # of two updates both are as far from their mean
    ],
)
def test_one_layer_of_two_clients_has_the_worked_numbers(
    beta: float, spread: str, gamma: float, made: Vector
) -> None:
    """w^t = (3, 4), uploads (4, 4) and (3, 6) with weights ¼ and ¾: ŵ = (3.25, 5.5), spread 1.1180340."""
    rule = LayerwiseShrinking(beta, 0.01, 0.2, spread=spread)
    found = after(rule, point(3.0, 4.0), [point(4.0, 4.0), point(3.0, 6.0)], [0.25, 0.75])
    assert found["w"].tolist() == pytest.approx(made, abs=1e-6)
    assert found["w"].tolist() == pytest.approx([gamma * 3.25, gamma * 5.5], abs=1e-6)


def test_the_two_spreads_differ_where_clients_are_unequally_far_away() -> None:
    """Updates 0, 0 and 3 lie 1, 1 and 2 from their mean: mean 4/3, root of the mean square √2. ‖w‖ = 1."""
    for spread, tau in (("norm", 0.04), ("rms", 0.03 * 2**0.5)):
        rule = LayerwiseShrinking(0.03, 0.0, 1.0, spread=spread)
        found = after(rule, point(1.0), [point(1.0), point(1.0), point(4.0)], [1 / 3] * 3)
        assert float(found["w"]) == pytest.approx(2.0 / (1.0 + tau), rel=1e-6)


def test_a_factor_does_not_change_with_the_scale_while_tau_is_at_a_bound() -> None:
    for beta, low, high in ((0.0, 0.01, 0.2), (1e3, 0.01, 0.2)):
        rule = LayerwiseShrinking(beta, low, high)
        small, large = (
            after(
                rule,
                point(3.0 * s, 4.0 * s),
                [point(4.0 * s, 4.0 * s), point(3.0 * s, 6.0 * s)],
                [0.5, 0.5],
            )["w"]
            for s in (1.0, 64.0)
        )
        torch.testing.assert_close(small * 64.0, large, rtol=1e-6, atol=0)
    free = LayerwiseShrinking(0.03, 0.0, 1.0)
    one, other = (
        after(free, point(3.0 * s), [point(4.0 * s), point(6.0 * s)], [0.5, 0.5])["w"] / s
        for s in (1.0, 64.0)
    )
    assert float(other) < 0.9 * float(one)


@pytest.mark.parametrize("rule", ["module", "code"])
def test_every_layer_of_the_mean_is_scaled_by_a_number_from_0_to_1(rule: str) -> None:
    tiny = Tiny(fedlws(beta=1.0, layers=rule), net=network(norm=True))
    plain = Tiny(fedavg(), net=network(norm=True))
    tiny.step([0, 1, 2])
    plain.step([0, 1, 2])
    assert same_bits(tiny.server.b, plain.server.b)
    factors = {}
    for names in layers_of(tiny.server.w.names, rule):
        shares = torch.cat([(tiny.server.w[n] / plain.server.w[n]).flatten() for n in names])
        torch.testing.assert_close(shares, shares[:1].expand_as(shares), rtol=1e-5, atol=0)
        assert 0.0 <= float(shares[0]) < 1.0
        factors[names[0]] = float(shares[0])
    assert all(a != b for a, b in pairwise(factors.values()))


def test_layers_are_the_parameters_of_a_module_or_end_with_a_bias() -> None:
    conv, *norm, head = NAMES
    assert layers_of(NAMES, "module") == [[conv], norm, [head]]
    assert layers_of(NAMES, "code") == [[conv, *norm], [head]]
    assert layers_of((conv, head), "code") == [[conv, head]]


def test_a_layer_of_zeros_takes_the_mean_whether_it_has_moved_or_not() -> None:
    """γ = 0/(0 + τ‖ŵ‖) would keep it at 0 for ever, and 0/0 is no number."""
    rule = LayerwiseShrinking(0.03, 0.01, 0.2)
    moved = after(rule, point(0.0, 0.0), [point(1.0, 0.0), point(0.0, 2.0)], [0.5, 0.5])
    assert moved["w"].tolist() == [0.5, 1.0]
    still = after(rule, point(0.0, 0.0), [point(0.0, 0.0)] * 2, [0.5, 0.5])
    assert still["w"].tolist() == [0.0, 0.0]


def test_bounds_in_the_wrong_order_are_refused() -> None:
    with pytest.raises(UsageError, match=r"fedlws: low = 0\.5 is above high = 0\.2; give low at most high"):
        fedlws(low=0.5)
