"""The GPU's benchmark, rehearsed without one: what it counts has closed forms, and its contestants make
the same steps.
"""

from __future__ import annotations

import pytest
import torch

from benchmarks import gpu
from benchmarks.workloads import workload


@pytest.fixture
def w3(monkeypatch: pytest.MonkeyPatch) -> gpu.BenchmarkSetup:
    """Without the benchmark's own network: other tests walk through the list of models."""
    monkeypatch.setattr("benchmarks.workloads.register", lambda: None)
    return workload("W3").setup()


def test_operations_of_a_multilayer_perceptron(w3: gpu.BenchmarkSetup) -> None:
    """64-64-10: each layer's product forwards and for its weights' gradient, the second's for its
    input's; 2 a multiplication.
    """
    assert gpu.flops_an_image(w3) == 2 * (2 * (64 * 64 + 64 * 10) + 64 * 10)


def test_images_of_a_round_are_all_digits(w3: gpu.BenchmarkSetup) -> None:
    assert gpu.images_a_round(w3) == 1797


def test_a_row_from_its_blocks() -> None:
    """2 s a round of 100 images at 3 operations each is 150 a second; the bare loop took 4 s."""
    blank = {"note": None}
    rows = [
        {"contestant": "bare", "blocks": [4.0, 5.0, 3.0], **blank},
        {"contestant": "stacks-1-bf16", "blocks": [2.0, 1.0, 2.0], **blank},
        {"contestant": "actors-4", "blocks": [], "note": "died"},
    ]
    gpu.completed(rows, images=100, flops=3.0, peaks={"fp32": 300.0, "bf16": 600.0})
    assert [row["seconds"] for row in rows] == [4.0, 2.0, None]
    assert [row["ratio"] for row in rows] == [1.0, 0.5, None]
    assert [row["images_s"] for row in rows] == [25.0, 50.0, None]
    assert [row["share"] for row in rows] == [0.25, 0.25, None]


def test_a_name_that_is_none_is_refused(w3: gpu.BenchmarkSetup) -> None:
    for name in ("actors", "bare-2", "stacks-x", "actors-", "fast", "bare-unrecorded"):
        with pytest.raises(ValueError, match="there are bare, actors-K and stacks-K"):
            gpu.contestant(name, workload("W3"), "cpu")


@pytest.mark.slow
def test_a_rehearsal_makes_the_bare_loop_s_steps() -> None:
    """Two steps for each of 100 clients, in processes of their own, two of them on Ray's actors."""
    rows = [
        gpu.measure(name, workload("W3"), "cpu", 1, 2, "published")
        for name in ("bare", "bare-bf16", "actors-2", "stacks-2-bf16")
    ]
    assert [(row["note"], row["steps"]) for row in rows] == [(None, [200])] * 4
    assert all(0.0 < row["accuracy"] <= 1.0 for row in rows)
    assert [row["mib"] for row in rows] == [None] * 4 or torch.cuda.is_available()
    assert [row["parts"].get("training", 0.0) > 0 for row in rows] == [False, False, True, True]
