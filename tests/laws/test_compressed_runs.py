"""Runs whose clients compress what they upload."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

import raffed
from raffed import Numerics, Privacy, RunConfig
from raffed.config.aggregation import TopK
from raffed.core.ingredients import CompressionWithFeedback
from raffed.core.params import Params
from raffed.errors import UsageError
from raffed.runtime.setup import prepare_run
from tests.laws.test_faults import config
from tests.params import one_in
from tests.tiny import bare_context


def run(name: str = "", method: str = "fedavg", rounds: int = 2, **args: object) -> RunConfig:
    base = config(method, rounds=rounds)
    federation = replace(base.federation, compression=name, compression_args=args)  # type: ignore[arg-type]
    return replace(base, federation=federation)


@pytest.mark.parametrize(("name", "args"), [("topk", {"fraction": 1.0}), ("quantize", {"bits": 32})])
def test_all_numbers_and_all_bits_change_nothing(name: str, args: dict[str, object]) -> None:
    assert raffed.run(run(name, **args)).hashes == raffed.run(run()).hashes


@pytest.mark.parametrize("name", ["topk", "quantize"])
def test_a_compression_changes_the_run_and_is_part_of_its_identity(name: str) -> None:
    assert run(name).identity() != run().identity()
    plain, short = raffed.run(run()), raffed.run(run(name))
    assert short.hashes["weights"] != plain.hashes["weights"]
    up = [done.to_pandas()["bytes_up"].sum() for done in (plain, short)]
    down = [done.to_pandas()["bytes_down"].sum() for done in (plain, short)]
    assert up[1] < 0.3 * up[0]
    assert down[1] == down[0]


@pytest.mark.more
@pytest.mark.parametrize(("name", "args"), [("topk", {"fraction": 0.05}), ("quantize", {"feedback": True})])
def test_what_was_left_out_survives_a_stop(name: str, args: dict[str, object], tmp_path: Path) -> None:
    asked, done = run(name, rounds=3, **args), list[int]()
    raffed.run(asked, tmp_path / "run", watch=lambda e: done.append(e.round), stop=lambda: len(done) == 2)
    assert raffed.resume(tmp_path / "run").hashes == raffed.run(asked).hashes


@pytest.mark.parametrize("method", one_in(3, ["fedavg", "fedmr", "fedlesam", "pfedme"]))
def test_clients_with_and_without_what_was_left_out_step_together(method: str) -> None:
    """Half of the clients take part in a round, so a stack holds new ones and ones that have uploaded."""
    asked = run("topk", method, rounds=3, fraction=0.1)
    asked = replace(asked, federation=replace(asked.federation, participation=0.5))
    alone, stacked = (raffed.run(replace(asked, numerics=Numerics(cohort=k))) for k in (0, 3))
    a, b = (done.to_pandas().query("metric == 'loss'")["value"].to_numpy() for done in (alone, stacked))
    assert b == pytest.approx(a, rel=1e-4)


def test_what_is_left_out_and_what_is_sent_make_up_every_update() -> None:
    """Over three rounds the sum of what was sent and what is still left out is the sum of all updates."""
    kind = CompressionWithFeedback(TopK(0.25))
    w0 = Params({"w": torch.zeros(8)})
    updates = torch.randint(-8, 9, (3, 8), generator=torch.Generator().manual_seed(0)).float() / 4
    k = bare_context()
    k, total = k.replace(mine=kind.client_init(k)), torch.zeros(8)
    for update in updates:
        sent, left = kind.compress(Params({"w": update}), w0, k)
        assert int((sent["w"] != 0).sum()) <= 2
        total, k = total + sent["w"], k.replace(mine=left)
    assert torch.equal(total + k.mine.w["w"], updates.sum(0))


@pytest.mark.parametrize(
    ("privacy", "message"),
    [
        (Privacy(masks=True), "a masked upload has a random number in every place"),
        (Privacy(clip=1.0, noise=1.0, noise_at="client"), "noise of the clients is added to every number"),
    ],
)
def test_random_numbers_in_every_place_cannot_be_compressed(privacy: Privacy, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        prepare_run(replace(run("topk"), privacy=privacy))


def test_clients_that_upload_no_weights_have_nothing_to_compress() -> None:
    with pytest.raises(UsageError, match="the clients of SOLO upload no weights"):
        prepare_run(run("quantize", "solo"))


@pytest.mark.parametrize(
    ("name", "args", "message"),
    [
        ("topk", {"fraction": 0.0}, "fraction"),
        ("quantize", {"bits": 1}, "bits"),
        ("quantize", {"fraction": 0.1}, "fraction"),
        ("", {"bits": 8}, "has no effect without federation.compression"),
    ],
)
def test_arguments_are_checked(name: str, args: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        run(name, **args)


@pytest.mark.parametrize("method", one_in(3, ["scaffold", "map", "fedrep", "creff", "fednova"]))
def test_methods_with_messages_and_own_layers_run_compressed(method: str) -> None:
    plain, short = (raffed.run(run(name, method, rounds=1)) for name in ("", "topk"))
    assert short.hashes["weights"] != plain.hashes["weights"]
