"""The least that torch's kernels can need is measured on the steps that the bare loop makes."""

from __future__ import annotations

import multiprocessing
from concurrent.futures import ProcessPoolExecutor

import pytest
import torch

from benchmarks.bare import Floor
from benchmarks.kernels import batches_of, passes, stacked_passes
from benchmarks.workloads import workload


@pytest.fixture(autouse=True)
def _models_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """The benchmark's own network is not needed for W3, and other tests walk through the list of models."""
    monkeypatch.setattr("benchmarks.workloads.register", lambda: None)


def steps_of_a_round() -> int:
    """Of the bare loop in W3."""
    floor = Floor(workload("W3").setup(), workers=1)
    try:
        return floor.round()
    finally:
        floor.close()


@pytest.mark.slow
def test_the_passes_see_every_batch_of_the_bare_loop_s_epoch() -> None:
    """The bare loop in a process of its own: it forks, which torch forbids after a backward pass where there
    is a device, as there is here (tests/devices).
    """
    clients = batches_of(workload("W3").setup())
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as apart:
        assert sum(len(batches) for batches in clients) == apart.submit(steps_of_a_round).result() == 200
    assert sum(len(y) for batches in clients for _, y in batches) == 1797


def test_alone_and_stacked_have_the_same_losses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Same weights, no update: the sums of the batches' losses that are differentiated are one number."""
    setup = workload("W3").setup()
    clients = batches_of(setup)[:7]
    seen: list[float] = []
    gradient = torch.autograd.grad
    monkeypatch.setattr(
        torch.autograd, "grad", lambda loss, leaves: seen.append(loss.item()) or gradient(loss, leaves)
    )
    passes(setup, clients)()
    alone = sum(seen)
    seen.clear()
    stacked_passes(setup, clients)()
    assert len(seen) < 14
    assert abs(sum(seen) - alone) < 1e-4 * alone
