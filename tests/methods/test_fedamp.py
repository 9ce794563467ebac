"""FedAMP and HeurFedAMP: shares by distances and by cosines, and training near the mixture."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

import raffed
from raffed.config.training import Local
from raffed.core.context import Spec
from raffed.core.params import Params
from raffed.core.server import Mixtures
from raffed.errors import UsageError
from raffed.methods.fedamp import AttentiveMixing, HeuristicMixing, fedamp
from raffed.methods.solo import solo
from tests.core.test_addressed import DIGITS
from tests.tiny import EVERYBODY, Tiny, leaves, network, of_kind

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
