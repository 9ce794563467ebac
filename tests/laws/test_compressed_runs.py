"""Runs whose clients compress what they upload, weights or updates."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import raffed
from raffed import Data, Faults, Local, Numerics, Privacy, RunConfig
from raffed.attacks.protocol import observed
from raffed.config.aggregation import CompressionRule, Quantize, TopK
from raffed.core.ingredients import Compression, CompressionWithFeedback
from raffed.core.method import Method
from raffed.core.params import Params
from raffed.errors import UsageError
from raffed.methods import build_method
from raffed.runtime.setup import prepare_run
from tests.laws.test_faults import config
from tests.params import one_in
from tests.tiny import SHORT, Tiny, bare_context, client_data, network, over_methods, same_bits


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


@pytest.mark.parametrize("method", one_in(3, ["fedmr", "fedavg", "fedlesam", "pfedme"]))
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
    ("asked", "message"),
    [
        (
            replace(run("topk"), privacy=Privacy(masks=True)),
            "a masked upload has a random number in every place",
        ),
        (
            replace(run("topk"), privacy=Privacy(clip=1.0, noise=1.0, noise_at="client")),
            "noise of the clients is added to every number",
        ),
        (run("quantize", "solo"), "the clients of SOLO upload no weights"),
        (run("topk", "ifca"), "with feedback=true IFCA could add to one model what was left out of another"),
    ],
)
def test_what_cannot_be_compressed_is_refused(asked: RunConfig, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        prepare_run(asked)


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
    plain, short = (
        raffed.run(replace(run(name, method, rounds=1), args=SHORT.get(method, {}))) for name in ("", "topk")
    )
    assert short.hashes["weights"] != plain.hashes["weights"]


# FedNova uploads updates and not weights. With equal steps it is FedAvg, whatever happens to uploads.
#
# Let τ be the number of steps of every client, so ‖a_k‖₁ = τ without momentum. FedNova sends Δ_k/τ and makes
# w − τ Σ p_k (Δ_k/τ). Compression, sign flips and scaling commute with a factor, so Δ_k may be compressed or
# turned before or after the division.

EQUAL = [client_data(n, (0, 1, 2), n) for n in (5, 6, 7, 8)]  # two batches of at most 4


def compressed(name: str, rule: CompressionRule) -> Tiny:
    kind = CompressionWithFeedback if rule.feedback else Compression
    return Tiny(replace(build_method(name, {}), compression=kind(rule)), data=EQUAL)


@pytest.mark.parametrize("rule", [TopK(0.3, feedback=False), TopK(0.3)], ids=str)
def test_a_compressed_update_is_that_of_fedavg_with_equal_steps(rule: CompressionRule) -> None:
    nova, avg = compressed("fednova", rule), compressed("fedavg", rule)
    for _ in range(3):
        nova.step([0, 1, 2, 3])
        avg.step([0, 1, 2, 3])
        torch.testing.assert_close(nova.server.w.flat, avg.server.w.flat, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("bits", [3, 6])
def test_a_rounded_update_is_off_by_less_than_a_step_of_the_update(bits: int) -> None:
    """A step is max |Δ_k| / (2^(bits − 1) − 1) of each tensor, and p_k add up to 1."""
    rounded, exact = compressed("fednova", Quantize(bits)), Tiny(build_method("fednova", {}), data=EQUAL)
    before = exact.server.w
    rounded.step([0, 1, 2, 3])
    done = exact.step([0, 1, 2, 3])
    for name, w in exact.server.w.tensors.items():
        largest = max(float((one.trained.w[name] - before[name]).abs().max()) for one in done.values())
        off = float((rounded.server.w[name] - w).abs().max())
        assert off <= largest / (2 ** (bits - 1) - 1) + 1e-6, name


@pytest.mark.parametrize("name", ["fednova", "ifca"])
def test_a_client_that_has_not_moved_uploads_the_same_compressed_or_not(name: str) -> None:
    tiny = compressed(name, TopK(0.3, feedback=False))
    tiny.local = replace(tiny.local, lr=0.0)
    tiny.arrange()
    before = tiny.server.broadcast()
    tiny.step([0, 1, 2, 3])
    after = tiny.server.broadcast()
    assert same_bits([after.w, after.slots.get("opening")], [before.w, before.slots.get("opening")])


@pytest.mark.parametrize(("kind", "strength"), [("sign_flip", 1.0), ("scaling", 3.0), ("backdoor", 3.0)])
def test_an_attacker_does_to_the_update_what_it_does_to_fedavg_s(kind: Any, strength: float) -> None:
    def losses(method: str) -> list[float]:
        plan = Faults(attack=kind, attackers=0.2, attack_strength=strength)
        base = config(method, plan)
        made: RunConfig = replace(
            base,
            data=Data(samples=300, split="iid:10"),  # 30 samples each
            local=replace(base.local, momentum=0.0),
        )
        rows = raffed.run(made).to_pandas()
        values: list[float] = rows.query("metric == 'loss'")["value"].dropna().tolist()
        assert values
        return values

    assert losses("fednova") == pytest.approx(losses("fedavg"), rel=1e-4)


def test_attackers_that_have_not_moved_move_no_model_of_ifca() -> None:
    still = replace(config("ifca"), local=Local(lr=0.0))
    scaled = replace(still, faults=Faults(attack="scaling", attackers=0.9))
    assert raffed.run(scaled).personalization == raffed.run(still).personalization


def test_leakage_finds_the_same_gradient_in_an_update_as_in_weights() -> None:
    x = torch.rand(4, generator=torch.Generator().manual_seed(0))
    nova, avg = (
        observed(build_method(name, {}), network(), x, 1).gradient() for name in ("fednova", "fedavg")
    )
    assert float(avg.flat.norm()) > 0.01
    torch.testing.assert_close(nova.flat, avg.flat, rtol=1e-4, atol=1e-5)


@over_methods
def test_every_method_says_whether_it_uploads_weights_or_updates(name: str) -> None:
    """At the rate 0 a client uploads what `still` says, or nearly so if the method has a rate of its own."""
    method: Method = build_method(name, {})
    if method.split.personal == "all":
        return
    tiny = Tiny(method)
    tiny.local = replace(tiny.local, lr=0.0)
    tiny.arrange()
    done, received = tiny.visit(0), tiny.server.w
    assert float((done.upload.w - done.still).flat.norm()) < 0.1 * float(received.flat.norm())
