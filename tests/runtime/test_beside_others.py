"""Several runs in one process, and a run beside a program that uses torch and NumPy itself: the bits of
each are its own.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import raffed
from raffed.errors import RaffedError
from raffed.results.runfile import read_run
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
