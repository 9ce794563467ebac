"""A server that answers each client: replies, mixtures, stacks, bytes, hashes, resumed runs and limits."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import raffed
from raffed import Context, Federation, Forward, Method, Privacy, Runtime, Term
from raffed.core.messages import Broadcast, ServerState
from raffed.core.params import Params, State
from raffed.core.server import Mixtures, mixture, replied
from raffed.errors import UsageError
from raffed.methods.fedavg import fedavg
from raffed.methods.solo import solo
from raffed.own.user_code import UserCodeError
from raffed.runs.checkpoint import round_sha256, weights_sha256
from raffed.testing import check_method
from tests.params import one_in
from tests.testing import answering
from tests.tiny import EVERYBODY, Tiny, digits, leaves, network, same_bits

DIGITS = replace(
    digits(hidden=10, samples=600, local_test=0.2, federation=Federation(4, 0.5)),
    method=answering.own_uploads,
    runtime=Runtime(execution="serial", checkpoint_every=2),
)
POINT = Params({"body.w": torch.tensor([1.0, 2.0]), "head.w": torch.tensor([3.0])}).clone()


def table(shares: list[list[float]], known: list[bool], part: Any = "all", rows: int = 2) -> Mixtures:
    """Rows 10, 20, … in every weight of the part."""
    like = POINT if part == "all" else POINT.only(n for n in POINT.names if n.startswith(part))
    flats = [
        (like.zeros() + Params({n: torch.full_like(t, 10.0 * (r + 1)) for n, t in like.tensors.items()}))
        .clone()
        .flat
        for r in range(rows)
    ]
    return Mixtures(
        torch.stack(flats), torch.tensor(shares, dtype=torch.float64), torch.tensor(known), None, part
    )


def downloaded(mixtures: Mixtures, client: int) -> dict[str, list[float]]:
    sent = replied(Broadcast(0, POINT, Params({}), {"server": mixtures}), client)
    assert sent.slots == {}
    return {name: tensor.tolist() for name, tensor in sent.w.tensors.items()}


def test_a_client_downloads_the_sum_of_its_shares_of_the_rows() -> None:
    """¾ · 10 + ¼ · 20 = 12.5."""
    mixtures = table([[0.75, 0.25], [0.0, 1.0]], [True, True])
    assert downloaded(mixtures, 0) == {"body.w": [12.5, 12.5], "head.w": [12.5]}
    assert downloaded(mixtures, 1) == {"body.w": [20.0, 20.0], "head.w": [20.0]}


def test_a_mixture_does_not_depend_on_the_order_of_its_rows() -> None:
    draws = torch.Generator().manual_seed(0)
    points = [Params({"w": torch.randn(50, generator=draws)}).clone() for _ in range(5)]
    shares = torch.rand(5, generator=draws, dtype=torch.float64).softmax(0).tolist()
    order = [3, 1, 4, 0, 2]
    again = mixture([points[i] for i in order], [shares[i] for i in order], points[0])
    assert same_bits(mixture(points, shares, points[0]), again)


@pytest.mark.parametrize("norm", [False, True])
def test_shares_e_i_are_local_training(norm: bool) -> None:
    """Up to the fixed point, which moves a weight below 2^-21 by at most 2^-45 a round."""
    mine, alone = (Tiny(m, net=network(norm)).run(3, EVERYBODY) for m in (answering.own_uploads(), solo()))
    for client in EVERYBODY:
        for one, other in zip(
            leaves(mine.last[client].trained), leaves(alone.last[client].trained), strict=True
        ):
            torch.testing.assert_close(one, other, rtol=0, atol=1e-9)
    assert not same_bits(mine.last[0].start, mine.last[1].start)


def test_a_table_may_be_sent_by_a_rule_that_keeps_its_memory_to_itself() -> None:
    plain = replace(answering.own_uploads(), server=answering.KeptToItself())
    mine, own = (Tiny(m).run(2, EVERYBODY) for m in (plain, answering.own_uploads()))
    assert same_bits([d.trained for d in mine.last.values()], [d.trained for d in own.last.values()])
    with pytest.raises(UserCodeError, match=r"for the slot 'server', which nothing reads"):
        Tiny(replace(plain, server=answering.KeptToItself("server"))).step()


@pytest.mark.parametrize("norm", [False, True])
@pytest.mark.parametrize("rounds", [[EVERYBODY] * 3, [(0, 1), (1, 2, 3), (3,)]])
def test_shares_p_are_fedavg_bit_for_bit(norm: bool, rounds: list[tuple[int, ...]]) -> None:
    mine, plain = (Tiny(m, net=network(norm)) for m in (answering.sample_weights(), fedavg()))
    for chosen in rounds:
        mine.step(chosen)
        plain.step(chosen)
        assert same_bits(
            [done.trained for done in mine.last.values()], [d.trained for d in plain.last.values()]
        )
        assert same_bits([mine.server.w, mine.server.b], [plain.server.w, plain.server.b])


@pytest.mark.parametrize("method", [answering.own_uploads, answering.lists])
def test_a_stack_of_clients_with_different_downloads_trains_as_each_alone(method: Any) -> None:
    """Lists differ in `k.server`, own uploads in `k.start`. What the first client got must not serve all."""
    alone, together = (Tiny(method(), cohort=cohort).run(2, EVERYBODY) for cohort in (False, True))
    for client in EVERYBODY:
        one, other = alone.last[client].trained.w.flat, together.last[client].trained.w.flat
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)
    biases = [alone.last[client].trained.w["head.bias"].mean() for client in EVERYBODY]
    if method is answering.lists:
        assert sorted(biases) == biases


@pytest.mark.parametrize(
    "method", one_in(2, [answering.own_uploads, answering.sample_weights, answering.lists])
)
def test_such_methods_keep_the_contract(method: Any) -> None:
    found = {one.name: one for one in check_method(method)}
    assert found["replies"].state == "holds"
    assert not [one for one in found.values() if one.state == "fails"]


def test_a_reply_of_other_shapes_is_refused_with_file_and_line() -> None:
    with pytest.raises(
        UserCodeError, match=r"answering\.py:\d+: Shorter\.reply returned weights .* of other"
    ):
        Tiny(answering.shorter()).step()


def test_bytes_down_are_those_of_each_client_s_reply() -> None:
    """MLP 64-10-10: P = 760. Client i also gets the first i of 4 numbers."""
    config = replace(DIGITS, method=answering.lists, federation=Federation(rounds=1))
    rows = raffed.run(config).to_pandas()
    loss = rows[(rows["metric"] == "loss") & (rows["split"] == "train") & rows["client"].notna()]
    assert list(loss["bytes_down"]) == [4 * (760 + min(client, 4)) for client in loss["client"]]


def test_a_killed_and_a_resumed_run_end_in_the_same_bits_and_verify_executes_them_again(
    tmp_path: Path,
) -> None:
    whole, rounds = raffed.run(DIGITS, tmp_path / "whole"), list[Any]()
    raffed.run(DIGITS, tmp_path / "run", watch=rounds.append, stop=lambda: len(rounds) >= 2)
    assert raffed.resume(tmp_path / "run").hashes == whole.hashes
    assert raffed.verify(tmp_path / "run", rounds=4).ok


def test_the_hash_of_a_round_covers_the_table_and_is_that_of_the_weights_without_one() -> None:
    mixtures = table([[1.0, 0.0]], [True])
    plain = ServerState(1, POINT, Params({}), {})
    hashes = [
        round_sha256(plain.replace(slots={"server": one}))
        for one in (mixtures, mixtures.replace(shares=torch.tensor([[0.0, 1.0]], dtype=torch.float64)))
    ]
    weights = weights_sha256(State(POINT, Params({})))
    assert round_sha256(plain) == weights
    assert len({weights, *hashes}) == 3


def test_verify_notices_a_wrong_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last round's answers reach no upload, and so no weights."""
    one_round = replace(DIGITS, federation=Federation(rounds=1))
    raffed.run(one_round, tmp_path / "run")

    def wrong(self: Any, own: Any, w: Any, mean: Any, k: Any) -> Any:
        mixtures, w = usual(self, own, w, mean, k)
        return mixtures.replace(shares=mixtures.shares.flip(0)), w

    usual = answering.OwnUploads.step
    monkeypatch.setattr(answering.OwnUploads, "step", wrong)
    found = {one.what: one.ok for one in raffed.verify(tmp_path / "run").checks if one.round == 1}
    assert not found["weights"]


@pytest.mark.parametrize(
    ("privacy", "why"),
    [
        (Privacy(masks=True), r"privacy\.masks: the server needs server of each client"),
        (Privacy(clip=1.0), r"privacy\.clip: .*uploads one by one"),
    ],
)
def test_masks_and_clipping_are_refused_by_name(privacy: Privacy, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        raffed.run(replace(DIGITS, privacy=privacy))


def test_a_table_that_does_not_fit_is_refused_with_its_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before a folder is made."""
    monkeypatch.setattr("raffed.budget.free_memory", lambda: 2.0**32)
    with pytest.raises(UsageError, match=r"answers 6 clients, of 1,073,741,824 numbers, would take 4\.0 GiB"):
        raffed.run(replace(DIGITS, method=answering.too_large), tmp_path / "run")
    assert not (tmp_path / "run").exists()


class Halves(Term):
    silent: int = -1

    def loss(self, f: Forward, k: Context) -> float:
        return 0.0

    def shares(self, k: Context) -> Tensor | None:
        return None if k.client == self.silent else torch.tensor([0.25, 0.75])


class AlsoTells(Halves):
    pass


def test_shares_are_told_by_one_ingredient_and_by_all_clients() -> None:
    with pytest.raises(UsageError, match="Halves and AlsoTells both tell shares of columns"):
        Method("M", terms=(Halves(), AlsoTells()))
    with pytest.raises(UsageError, match="M: 3 of 4 clients told shares of columns"):
        Tiny(Method("M", terms=(Halves(1),))).step(EVERYBODY)
    assert "messages (term-Halves)" in Method("M", terms=(Halves(),)).why_no_robust_mean
