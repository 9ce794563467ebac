"""Several runs in one process, and a run beside a program that uses torch and NumPy itself: the bits of
each are its own.
"""

from __future__ import annotations

import contextlib
import os
import random
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import raffed
from raffed.errors import RaffedError, UsageError
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


def test_a_run_is_not_disturbed_by_a_thread_that_seeds_and_draws_all_the_time(
    alone: dict[str, dict[str, str]],
) -> None:
    over = threading.Event()

    def disturb() -> None:
        while not over.is_set():
            torch.manual_seed(1)
            torch.rand(3)
            np.random.seed(1)  # noqa: NPY002 (as a user's program may)
            random.seed(1)

    other = threading.Thread(target=disturb)
    other.start()
    try:
        assert hashes() == alone["fedmr"]
    finally:
        over.set()
        other.join()


def test_a_run_leaves_the_user_s_generators_where_they_were() -> None:
    def states() -> tuple[Any, ...]:
        return torch.get_rng_state().tolist(), np.random.get_state()[1].tolist(), random.getstate()  # noqa: NPY002

    before = states()
    hashes()
    assert states() == before


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


def test_a_watcher_has_the_caller_s_settings_and_may_change_them(alone: dict[str, dict[str, str]]) -> None:
    seen: list[bool] = []

    def watch(event: Any) -> None:
        seen.append(torch.is_grad_enabled())
        torch.set_num_threads(2)
        torch.manual_seed(event.round)

    with torch.no_grad():
        assert hashes(watch=watch) == alone["fedmr"]
    assert seen == [False, False]


def test_a_run_s_number_of_threads_is_its_own_thread_s() -> None:
    """torch.set_num_threads also sets what threads begin with; neither they nor the caller see the run's
    number.
    """
    mine, seen = torch.get_num_threads(), []
    [other] = in_threads(torch.get_num_threads)
    [during] = in_threads(
        lambda: hashes(
            watch=lambda event: seen.extend([torch.get_num_threads(), *in_threads(torch.get_num_threads)])
        )
    )
    assert during
    assert seen == [1, other, 1, other]
    assert [torch.get_num_threads(), *in_threads(torch.get_num_threads)] == [mine, other]


@contextlib.contextmanager
def double() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


def test_another_default_type_of_the_process_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    with (
        double(),
        pytest.raises(UsageError, match=r"get_default_dtype.* torch\.float64 .* with torch\.float32"),
    ):
        hashes(out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_one_that_comes_while_the_run_goes_on_ends_it_and_resume_gives_its_bits(
    tmp_path: Path, alone: dict[str, dict[str, str]]
) -> None:
    with double():
        torch.set_default_dtype(torch.float32)
        with pytest.raises(RaffedError, match=r"became torch\.float64 during the run"):
            hashes(out=tmp_path / "run", watch=lambda event: torch.set_default_dtype(torch.float64))
    assert read_run(tmp_path / "run")["state"] == "failed"
    assert raffed.resume(tmp_path / "run").hashes == alone["fedmr"]


def test_a_relative_folder_stays_where_it_was_when_the_process_goes_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    result = raffed.run(small("fedmr", 2), "run", watch=lambda event: os.chdir(tmp_path / "elsewhere"))
    assert result.folder == Path("run")
    assert (tmp_path / "run" / "run.json").exists()
    assert not list((tmp_path / "elsewhere").iterdir())


def test_two_runs_at_once_in_one_folder_are_one_run_and_one_refusal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("raffed.results.lock.PATIENCE", 0.2)
    refused: list[str] = []

    def second(event: Any) -> None:
        with pytest.raises(UsageError) as error:
            hashes(out=tmp_path / "run")
        refused.append(str(error.value))

    assert hashes(out=tmp_path / "run", watch=second)
    assert len(refused) == 2
    assert all(str(tmp_path / "run") in text for text in refused)


def held() -> tuple[int, int]:
    """Descriptors and threads of this process, by the system's own count."""
    return len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))


def test_five_runs_leave_no_thread_and_no_descriptor_behind() -> None:
    hashes()
    before = held()
    for _ in range(5):
        hashes()
    assert held() == before
