"""Clipping, noise and masks as ingredients of any run: what they leave alone, what they hide, what ε they
come to.
"""

from __future__ import annotations

import importlib.util
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import raffed
from raffed import Data, Faults, Privacy, RunConfig
from raffed.core import seeds
from raffed.core.aggregation.exact_sums import Mask
from raffed.core.aggregation.robust_means import add_noise, clip_update
from raffed.core.aggregation.uploads import UploadAccumulator
from raffed.core.params import Params
from raffed.errors import UsageError
from raffed.methods import build_method
from raffed.runs.federation import warn
from raffed.runtime.record_files import load_server
from raffed.runtime.setup import prepare_run
from tests.laws.test_faults import config
from tests.params import one_in
from tests.tiny import PLAIN, Tiny, same_bits
from tests.tiny import body_point as point

opacus = pytest.mark.skipif(
    importlib.util.find_spec("opacus") is None, reason="the extra `privacy` is not installed"
)


def guarded(method: str = "fedavg", faults: Faults | None = None, **privacy: object) -> RunConfig:
    return replace(config(method, faults), privacy=Privacy(**privacy))  # type: ignore[arg-type]


def test_no_noise_and_a_limit_that_no_update_reaches_change_no_bit() -> None:
    plain = raffed.run(config())
    for limit in (1e9, 1e3):
        assert raffed.run(guarded(clip=limit)).hashes == plain.hashes
    assert raffed.run(guarded(clip=0.01)).hashes["weights"] != plain.hashes["weights"]
    assert config().identity() == guarded().identity() != guarded(clip=1e9).identity()


def test_an_update_of_norm_five_is_scaled_to_the_limit() -> None:
    """w = (1, 1) + (3, 4): to S = 2.5 half of the way is left, (1, 1) + (1.5, 2); in both directions."""
    start = point(1.0, 1.0)
    assert clip_update(point(4.0, 5.0), start, 2.5)["body.w"].tolist() == [2.5, 3.0]
    assert clip_update(point(-2.0, -3.0), start, 2.5)["body.w"].tolist() == [-0.5, -1.0]
    short = point(4.0, 5.0)
    assert clip_update(short, start, 5.0) is short


def test_noise_has_its_deviation_and_no_mean() -> None:
    """20,000 numbers: the mean within 4 σ/√n, the deviation within 4 σ/√(2n)."""
    zero = Params({"body.w": torch.zeros(200, 50), "head.w": torch.zeros(10_000)})
    noise = torch.cat(
        [t.flatten() for t in add_noise(zero, 3.0, seeds.generator(0, "privacy")).tensors.values()]
    ).double()
    assert abs(float(noise.mean())) < 4 * 3.0 / math.sqrt(20_000)
    assert abs(float(noise.std()) - 3.0) < 4 * 3.0 / math.sqrt(40_000)
    assert add_noise(zero, 0.0, seeds.generator(0, "privacy")) is zero


@opacus
@pytest.mark.parametrize(("place", "expected"), [("server", 1 / 10), ("client", 1 / math.sqrt(10))])
def test_noise_on_the_mean_is_what_was_asked_for(place: str, expected: float, tmp_path: Path) -> None:
    """One round of ten equal clients, σ S = 1, no update reaches S: the weights differ from those without
    noise by N(0, (σ S / 10)²) from the server and N(0, (σ S)² / 10) from ten clients; deviation within 4
    standard errors.
    """
    once = replace(config().federation, rounds=1)
    base = replace(guarded(), data=Data(samples=300, split="iid:10"), federation=once)
    raffed.run(base, tmp_path / "plain")
    raffed.run(replace(base, privacy=Privacy(clip=1e3, noise=1e-3, noise_at=place)), tmp_path / "noisy")
    plain, noise = (
        load_server(tmp_path / name / "final.safetensors", build_method(base.method)).w.tensors
        for name in ("plain", "noisy")
    )
    moved = torch.cat([(noise[name] - plain[name]).flatten() for name in plain])
    assert abs(float(moved.std()) - expected) < 4 * expected / math.sqrt(2 * moved.numel())


@pytest.mark.parametrize(
    ("method", "asked", "why"),
    [
        *(
            (name, {"clip": 1.0}, "clip: .*, not only the sum")
            for name in ("scaffold", "fedproto", "feddisco")
        ),
        ("feddf", {"masks": True}, "masks: the server needs server of each client"),
    ],
)
def test_what_clipping_or_masks_do_not_cover_is_refused(method: str, asked: dict[str, Any], why: str) -> None:
    with pytest.raises(UsageError, match=rf"privacy\.{why}"):
        raffed.run(guarded(method, **asked))


@pytest.mark.parametrize("method", one_in(3, ["scamap", "fedavg", "ifca", "fedmr", "feddisco"]))
def test_masks_change_no_bit_of_a_run(method: str) -> None:
    """Weights, vaults, metrics; also where some clients drop out and some uploads are refused."""
    struck = Faults(drop=0.2, corrupt=0.2)
    assert (
        raffed.run(guarded(method, struck, masks=True)).hashes == raffed.run(guarded(method, struck)).hashes
    )


def test_masks_cancel_and_a_masked_upload_tells_nothing_of_what_it_hides() -> None:
    """Of 4 clients of SCAFFOLD: the sum's bits are those without masks; a client's own differ from mask to
    mask, and about half of their top bits are set, although the weights in them are small numbers.
    """
    tiny = Tiny(build_method("scaffold", {}), local=replace(PLAIN, momentum=0.0))
    uploads = {client: done.upload for client, done in tiny.step(range(4)).items()}

    def masked(client: int, seed: int) -> UploadAccumulator:
        fold = UploadAccumulator()
        fold.add(client, 0.25, uploads[client], "test")
        fold.add_mask(Mask(seed, 0, client, range(4)))
        return fold

    plain = UploadAccumulator()
    plain.add_all(range(4), [0.25] * 4, list(uploads.values()), "test")
    for order in ((0, 1, 2, 3), (3, 1, 0, 2)):
        total = UploadAccumulator()
        for client in order:
            total.merge(masked(client, 5).export())
        assert same_bits(total.finish(tiny.server), plain.finish(tiny.server))
    one, other = (masked(2, seed).export() for seed in (5, 6))
    assert one.w is not None
    assert other.w is not None
    assert (one.w != other.w).mean() > 0.99
    assert (one.sums["correction"][1][0] != other.sums["correction"][1][0]).mean() > 0.99
    alone = UploadAccumulator()
    alone.add(2, 0.25, uploads[2], "test")
    assert abs(alone.export().w).max() < 2**50  # type: ignore[operator]
    # Of 64 bits, so half of them are above 2^62
    assert 0.25 < (abs(one.w.astype(float)) > 2.0**62).mean() < 0.75


@opacus
@pytest.mark.parametrize(("noise", "rounds", "delta"), [(1.0, 1, 1e-5), (2.0, 10, 1e-5), (5.0, 100, 1e-6)])
def test_epsilon_is_the_closed_form_and_no_less_than_the_truth(
    noise: float, rounds: int, delta: float
) -> None:
    """Rounds of Gaussian mechanisms: RDP(a) = T a / (2σ²), converted (Canonne et al. 2020) and minimised over
    a; and the exact δ(ε) of N(0, σ²/T) (Balle & Wang 2018, Theorem 8) is at most δ there, but not at 0.85 ε:
    valid, and not wasteful.
    """
    from raffed.runs.metric_rows import epsilon

    found = epsilon(noise, rounds, delta)
    orders = [1 + step / 200 for step in range(1, 40_000)]
    closed = min(
        rounds * a / (2 * noise**2) + math.log((a - 1) / a) - (math.log(delta) + math.log(a)) / (a - 1)
        for a in orders
    )
    assert closed <= found < closed * 1.01
    s = noise / math.sqrt(rounds)

    def phi(x: float) -> float:
        return 0.5 * math.erfc(-x / math.sqrt(2))

    def true_delta(eps: float) -> float:
        return phi(0.5 / s - eps * s) - math.exp(eps) * phi(-0.5 / s - eps * s)

    assert true_delta(found) <= delta < true_delta(0.85 * found)


@opacus
def test_rows_tell_epsilon_of_the_client_that_took_part_most() -> None:
    """Everybody in both rounds: two mechanisms for all; with client 3 alone in the second, two for it."""
    from raffed.runs.metric_rows import epsilon

    rows = raffed.run(
        guarded(clip=1.0, noise=3.0, faults=Faults(at=", ".join(f"drop {c}@2" for c in range(10) if c != 3)))
    )
    found = (
        rows.to_pandas()
        .query("metric in ['epsilon', 'epsilon_poisson']")
        .set_index(["round", "metric"])["value"]
    )
    assert found[2, "epsilon"] == epsilon(3.0, 2, 1e-5) > found[1, "epsilon"] == epsilon(3.0, 1, 1e-5)
    assert found[2, "epsilon_poisson"] == found[2, "epsilon"]  # at rate 1 the two are one


@opacus
@pytest.mark.parametrize(("asked", "drawn"), [(0.06, 0.1), (0.34, 0.3)])
def test_the_rate_of_poisson_samples_is_the_fraction_of_clients_that_is_drawn(
    asked: float, drawn: float
) -> None:
    """Of ten clients, Q = 0.06 draws 1 and Q = 0.34 draws 3. With Q itself the first ε would be too small."""
    from raffed.runs.metric_rows import epsilon_of

    made = guarded(clip=1.0, noise=1.0)
    rows = raffed.run(replace(made, federation=replace(made.federation, participation=asked))).to_pandas()
    found = rows.query("metric == 'epsilon_poisson'").sort_values("round")["value"].tolist()
    assert found == [epsilon_of(1.0, {drawn: done}, 1e-5) for done in range(1, len(found) + 1)]


def test_noise_without_the_accountant_is_refused_before_anything_starts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"pip install 'raffed\[privacy\]'"):
        raffed.run(guarded(clip=1.0, noise=1.0))


@pytest.mark.parametrize(
    ("wrong", "match"),
    [
        ({"noise": 1.0}, r"units of privacy\.clip"),
        ({"clip": 0.0}, r"privacy\.clip"),
        ({"noise_at": "sever"}, "nearest: server"),
    ],
)
def test_an_impossible_plan_of_privacy_is_refused(wrong: dict[str, object], match: str) -> None:
    with pytest.raises(UsageError, match=match):
        Privacy(**wrong)  # type: ignore[arg-type]


def noisy(method: str, **local: object) -> RunConfig:
    made = guarded(method, clip=0.05, noise=1.0)
    return replace(made, local=replace(made.local, **local))  # type: ignore[arg-type]


@opacus
@pytest.mark.parametrize(
    ("method", "local", "warned"),
    [
        ("fedadam", {}, True),
        ("fedyogi", {}, True),
        ("fedavgm", {}, False),
        ("fedavg", {"optimizer": "adam", "keep_optimizer": True}, False),
    ],
)
def test_a_run_says_that_an_adaptive_server_beside_noise_may_learn_little(
    method: str, local: dict[str, object], warned: bool, caplog: pytest.LogCaptureFixture
) -> None:
    warn(prepare_run(noisy(method, **local)))
    assert ("its server divides by the root of the mean squared update" in caplog.text) == warned


@pytest.mark.parametrize("optimizer", ["sgd", "adam", "adagrad"])
def test_whatever_the_optimiser_the_mean_update_is_no_longer_than_the_limit(
    optimizer: str, tmp_path: Path
) -> None:
    """So noise in units of the limit gives the same ε for each. Δ is at most S for one round of everybody."""
    made = replace(noisy("fedavg", optimizer=optimizer), privacy=Privacy(clip=0.05))
    made = replace(made, federation=replace(made.federation, rounds=1))
    start = replace(made, local=replace(made.local, lr=0.0))
    for name, one in (("moved", made), ("begun", start)):
        raffed.run(one, tmp_path / name)
    moved, begun = (load_file(tmp_path / name / "final.safetensors") for name in ("moved", "begun"))
    squares = [(moved[name].double() - begun[name].double()).square().sum() for name in begun]
    assert 0.0 < math.sqrt(sum(map(float, squares))) <= 0.05 * (1 + 1e-4)
