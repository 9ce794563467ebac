"""The bits of a run are its own: beside other runs and programs of the process, with compiled convolutions,
and by the hash that covers every number of a model.
"""

from __future__ import annotations

import contextlib
import hashlib
import struct
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import raffed
from raffed import Data, Federation, Local, Model, Numerics, RunConfig, Runtime
from raffed.core.kernels import convolution
from raffed.core.params import Params, State
from raffed.errors import RaffedError, UsageError
from raffed.results.runfile import read_run
from raffed.runs.checkpoint import weights_sha256
from raffed.runtime.machine import could_be_compiled
from raffed.runtime.run_method import network_of
from tests.runtime.conftest import small

METHODS = ("scamap", "fedmr")


def hashes(method: str = "fedmr", rounds: int = 2, **how: Any) -> dict[str, str]:
    return raffed.run(small(method, rounds), **how).hashes


@pytest.fixture(scope="module")
def alone() -> dict[str, dict[str, str]]:
    """Hashes of each run by itself."""
    return {method: hashes(method) for method in METHODS}


def in_threads(*work: Callable[[], Any]) -> list[Any]:
    """What each gives, all begun together in threads of their own."""
    found: dict[int, Any] = {}

    def go(number: int) -> None:
        found[number] = work[number]()

    threads = [threading.Thread(target=go, args=(number,)) for number in range(len(work))]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    return [found[number] for number in range(len(work))]


def test_two_runs_that_take_turns_round_by_round_give_their_own_bits(
    alone: dict[str, dict[str, str]],
) -> None:
    turn = threading.Barrier(2, timeout=60)
    both = [lambda m=method: hashes(m, watch=lambda event: turn.wait()) for method in METHODS]
    assert in_threads(*both) == [alone[method] for method in METHODS]


@contextlib.contextmanager
def flushing() -> Iterator[None]:
    torch.set_flush_denormal(True)
    yield
    torch.set_flush_denormal(False)


@pytest.mark.parametrize(
    "caller_s",
    [
        torch.no_grad,
        torch.inference_mode,
        lambda: torch.autocast("cpu", torch.bfloat16),
        lambda: torch.device("meta"),
        flushing,
    ],
    ids=["no_grad", "inference_mode", "autocast", "default device", "flush denormal"],
)
def test_what_the_caller_has_set_for_its_thread_changes_no_bit(
    caller_s: Callable[[], Any], alone: dict[str, dict[str, str]]
) -> None:
    with caller_s():
        assert hashes() == alone["fedmr"]


def test_one_that_comes_while_the_run_goes_on_ends_it_and_resume_gives_its_bits(
    tmp_path: Path, alone: dict[str, dict[str, str]]
) -> None:
    try:
        with pytest.raises(RaffedError, match=r"became torch\.float64 during the run"):
            hashes(out=tmp_path / "run", watch=lambda event: torch.set_default_dtype(torch.float64))
    finally:
        torch.set_default_dtype(torch.float32)
    assert read_run(tmp_path / "run")["state"] == "failed"
    assert raffed.resume(tmp_path / "run").hashes == alone["fedmr"]


needs_kernel = pytest.mark.skipif(not convolution.built, reason="raffed was installed without a C compiler")
OWN = RunConfig(
    data=Data("digits", "iid:8", samples=40, local_test=0.0),
    model=Model("resnet8"),
    local=Local(lr=0.05, batch_size=4, epochs=1.0),
    federation=Federation(rounds=1, participation=0.25),
    numerics=Numerics(convolutions="compiled"),
    runtime=Runtime(execution="serial"),
)


def hashes_of(config: RunConfig, out: Path | None = None) -> dict[str, str]:
    return dict(raffed.run(config, out).hashes)


@needs_kernel
def test_a_run_has_the_same_bits_again_and_others_than_with_torchs_convolutions(tmp_path: Path) -> None:
    first = hashes_of(OWN, tmp_path / "a")
    assert raffed.verify(tmp_path / "a").ok  # it executes the round again
    assert hashes_of(replace(OWN, numerics=Numerics())) != first


def test_without_the_kernel_the_run_is_refused_before_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(convolution, "built", False)
    with pytest.raises(UsageError, match=r"this machine does not have raffed's kernel.*or use 'torch'"):
        raffed.run(OWN)
    plain = replace(OWN, numerics=Numerics())
    assert not could_be_compiled(network_of(plain), False, (1, 8, 8), 10, "float32")


def test_the_hash_of_a_model_covers_names_weights_and_batchnorm_s_statistics() -> None:
    model = State(Params({"head": torch.tensor([1.0, -2.0])}), Params({"mean": torch.tensor([0.5])}))
    covered = b"head" + struct.pack("<2f", 1.0, -2.0) + b"mean" + struct.pack("<f", 0.5)
    assert weights_sha256(model) == hashlib.sha256(covered).hexdigest()
