"""FedPAC: what heads are compared by, the quadratic problems, combined heads, and rates of passes."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from raffed.config.training import Local
from raffed.core.context import Received
from raffed.core.messages import Broadcast, Upload
from raffed.core.method import Method
from raffed.core.params import Params, State
from raffed.core.parts import Pass
from raffed.core.server import Mixtures, replied
from raffed.errors import UsageError
from raffed.methods.fedpac import (
    CombinedHeads,
    HeadStatistics,
    TellsStatistics,
    fedpac,
    head_shares,
    simplex_minimum,
)
from raffed.methods.fedproto import prototype_pull
from raffed.methods.fedrep import fedrep
from tests.tiny import EVERYBODY, PLAIN, Tiny, bare_context, network, of_kind, server_context

V = torch.tensor([0.1, 0.2, 0.05], dtype=torch.float64)
H = torch.tensor([[0.8, 0.1], [0.1, 0.9], [0.7, 0.2]], dtype=torch.float64)


def test_statistics_of_the_worked_example() -> None:
    """(4): z = (1, 0), (3, 0) of class 0 and (0, 2) of class 1."""
    z, y = torch.tensor([[1.0, 0.0], [3.0, 0.0], [0.0, 2.0]]), torch.tensor([0, 0, 1])
    k = bare_context(features=lambda state: iter([(z[:2], y[:2]), (z[2:], y[2:])]))
    k = k.replace(spec=replace(k.spec, num_classes=2, feature_dim=2), class_counts=torch.tensor([2, 1]))
    _, told = TellsStatistics().finish(k)
    assert float(told.variance) == pytest.approx(0.8148148, abs=1e-6)
    torch.testing.assert_close(told.means, torch.tensor([[1.3333333, 0.0], [0.0, 0.6666667]]))


def test_the_pull_of_the_worked_example() -> None:
    """(4): with both centres 1.1666667. With that of class 0 alone it is the mean over its samples, 1.5; the
    official rule's 1.0 divides by all three.
    """
    z, y = torch.tensor([[1.0, 0.0], [3.0, 0.0], [0.0, 2.0]]), torch.tensor([0, 0, 1])
    centres = torch.tensor([[1.0, 1.0], [0.0, 1.0]])
    assert float(prototype_pull(z, y, centres, torch.tensor([True, True]))) == pytest.approx(1.1666667)
    assert float(prototype_pull(z, y, centres, torch.tensor([True, False]))) == pytest.approx(1.5)


@pytest.mark.parametrize(
    ("client", "alpha", "value"),
    [
        (0, [0.4117647, 0.0, 0.5882353], 0.0411765),
        (1, [0.0, 0.8181818, 0.1818182], 0.1636364),
        (2, [0.3266888, 0.0692137, 0.6040975], 0.0302049),
    ],
)
def test_shares_of_heads_are_those_of_the_worked_example(
    client: int, alpha: list[float], value: float
) -> None:
    """(2): C 2, d 1."""
    gap = H[client] - H
    a = torch.diag(V) + gap @ gap.T
    found = simplex_minimum(a)
    torch.testing.assert_close(found, torch.tensor(alpha, dtype=torch.float64), rtol=0, atol=1e-6)
    assert float(found @ a @ found) == pytest.approx(value, abs=1e-6)
    torch.testing.assert_close(head_shares(V, H, 0.0)[client], found)


def test_equal_means_give_shares_by_inverse_variance() -> None:
    """(3)."""
    found = head_shares(V, torch.ones(3, 4, dtype=torch.float64), 0.0)
    wanted = (1 / V) / (1 / V).sum()
    torch.testing.assert_close(found, wanted.repeat(3, 1), rtol=0, atol=1e-12)


def test_a_head_without_variance_is_all_of_its_client_s() -> None:
    """One sample: V = 0, and the matrix is singular."""
    found = head_shares(torch.tensor([0.0, 0.2], dtype=torch.float64), H[:2], 0.0)
    torch.testing.assert_close(found[0], torch.tensor([1.0, 0.0], dtype=torch.float64), rtol=0, atol=1e-10)


def test_shares_below_the_floor_become_0_and_the_others_are_scaled_up() -> None:
    """Of the shares .3266888, .0692137 and .6040975."""
    wanted = [0.3266888 / 0.9307863, 0.0, 0.6040975 / 0.9307863]
    assert head_shares(V, H, 0.07)[2].tolist() == pytest.approx(wanted, abs=1e-6)


@given(st.integers(1, 12), st.integers(1, 8), st.integers(0, 2**31), st.sampled_from([0.0, 1e-3, 1.0]))
def test_the_minimum_fulfils_its_conditions(clients: int, dim: int, seed: int, spread: float) -> None:
    """α ≥ 0 adds up to 1, and A α is smallest, and equal, where α is above 0."""
    draws = torch.Generator().manual_seed(seed)
    gap = torch.randn(clients, dim, generator=draws, dtype=torch.float64)
    variance = spread * torch.rand(clients, generator=draws, dtype=torch.float64) + 1e-3
    a = torch.diag(variance) + gap @ gap.T
    alpha = simplex_minimum(a)
    assert float(alpha.sum()) == pytest.approx(1.0, abs=1e-12)
    assert float(alpha.min()) >= 0.0
    slope = a @ alpha
    level = float(alpha @ slope)
    assert float((slope - level).min()) >= -1e-10
    assert float((alpha * (slope - level)).abs().max()) <= 1e-10


def test_clients_download_their_combined_heads_under_the_mean_body() -> None:
    """(2): heads 1, 2, 4 give client 1 2.7647059. (5): an absent client keeps its last head."""
    w = Params({"body.w": torch.tensor([7.0]), "head.weight": torch.tensor([[5.0]])}).clone()
    sent = [
        Upload(
            1,
            Params({"body.w": torch.tensor([0.0]), "head.weight": torch.tensor([[head]])}).clone(),
            Params({}),
            {"message": HeadStatistics(v.float(), h.float()[:, None])},
        )
        for head, v, h in zip((1.0, 2.0, 4.0), V, H, strict=True)
    ]
    rule = CombinedHeads(0.0)
    k = server_context(received={"server": Received(3, None, tuple(sent), (0, 1, 2))})
    table, _ = rule.step(None, w, w, k)
    assert head(table, w, 0) == pytest.approx(2.7647059, abs=1e-5)
    assert head(table, w, 3) == 5.0  # it never took part
    alone = server_context(received={"server": Received(1, None, (sent[1],), (1,))})
    later, _ = rule.step(table, w, w, alone)
    assert (head(later, w, 0), head(later, w, 1)) == (head(table, w, 0), 2.0)


def head(table: Mixtures, w: Params, client: int) -> float:
    sent = replied(Broadcast(1, w, Params({}), {"server": table}), client)
    assert sent.w["body.w"].tolist() == [7.0]
    return float(sent.w["head.weight"])


@pytest.mark.parametrize("norm", [False, True])
def test_with_shares_e_i_and_without_a_pull_it_is_fedrep(norm: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """(1)."""
    monkeypatch.setattr(
        "raffed.methods.fedpac.head_shares",
        lambda variance, *_: torch.eye(len(variance), dtype=torch.float64),
    )
    mine, plain = (
        Tiny(m, net=network(norm)).run(3, EVERYBODY)
        for m in (fedpac(lam=0.0, head_lr_scale=1.0), fedrep(1.0, 1.0))
    )
    for client in EVERYBODY:
        one, other = mine.last[client].trained.w.flat, plain.last[client].trained.w.flat
        torch.testing.assert_close(one, other, rtol=0, atol=1e-6)


def test_statistics_are_those_of_the_downloaded_model() -> None:
    tiny = Tiny(fedpac(), net=network(True)).run(2, EVERYBODY)
    done, data = tiny.visit(3), tiny.data[3]
    z = tiny.net.apply(done.start, data.x)[1].double()
    told = of_kind(done.upload.slots["message"], HeadStatistics)
    h = torch.stack([z[data.y == c].sum(0) / data.n for c in range(3)])
    torch.testing.assert_close(told.means, h.float())
    variance = (z.square().sum() / data.n - h.square().sum()) / data.n
    assert float(told.variance) == pytest.approx(float(variance), rel=1e-5)


def test_a_pass_steps_by_its_own_multiple_of_the_rate() -> None:
    """A pass at ten times a tenth of the rate is a pass at the rate; so is its sum of rates."""
    slow = replace(PLAIN, lr=PLAIN.lr / 10)
    mine = Tiny(Method("x", passes=(Pass(lr_scale=10.0),)), local=slow).run(2, EVERYBODY)
    plain = Tiny(Method("x", passes=(Pass(),))).run(2, EVERYBODY)
    torch.testing.assert_close(mine.server.w.flat, plain.server.w.flat, rtol=0, atol=1e-6)


@pytest.mark.parametrize("cohort", [False, True])
def test_the_sum_of_the_rates_counts_each_pass_at_its_own(cohort: bool) -> None:
    """Client 0 makes 2 steps an epoch: 2 · 0.5 η + 2 · η."""
    method = Method("x", passes=(Pass("head", lr_scale=0.5), Pass("body")), message=TellsStatistics())
    done = Tiny(method, cohort=cohort).step([0, 1])[0]
    assert done.views["message"].lr_sum == pytest.approx(3 * PLAIN.lr)


def test_a_schedule_by_steps_is_scaled_as_well() -> None:
    local = Local(lr=0.1, batch_size=4, epochs=1, schedule="cosine", schedule_by="step")
    half, whole = (
        Tiny(Method("x", passes=(Pass(lr_scale=scale),), message=TellsStatistics()), local=local).step([0])[0]
        for scale in (0.5, 1.0)
    )
    assert half.views["message"].lr_sum == pytest.approx(whole.views["message"].lr_sum / 2)


def test_a_scale_beside_a_solver_is_refused() -> None:
    from raffed.methods.fedsam import fedsam

    with pytest.raises(UsageError, match="lr_scale"):
        replace(fedsam(), passes=(Pass(lr_scale=2.0),))


def test_without_epochs_of_the_head_it_is_not_trained() -> None:
    done = Tiny(fedpac(head_epochs=0.0)).visit(1)
    assert torch.equal(done.trained.w["head.weight"], done.start.w["head.weight"])
    assert isinstance(done.trained, State)
