"""Preset "authors" against the formulas of the released code, worked out by hand (baselines-map.md; lxcnju/MAP).

What the code does is written in the docstring of each test, with the numbers that follow from it.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch

from raffed.core.params import Params
from raffed.methods import build_method
from tests.tiny import Tiny, network, server_context

MOVED = [
    ("scaffold", {"server_lr": 0.5}, 0.5), ("scaffold", {"server_lr": 2.0}, 2.0), ("scars", {"server_lr": 0.75}, 0.75),
    ("scamap", {"server_lr": 0.9}, 0.9), ("pfedme", {"beta": 0.5}, 0.5), ("pfedme", {"beta": 2.0}, 2.0),
    ("feddyn", {}, 0.5),  # |S|/N = 2/4
]  # fmt: skip


@pytest.mark.parametrize(("name", "args", "rate"), MOVED)
def test_batchnorms_statistics_take_the_servers_step_of_the_authors_preset_and_are_averaged_otherwise(
    name: str, args: dict[str, Any], rate: float
) -> None:
    """The released update runs over the whole state: b ← b + η (b̄ − b). From 2 towards 6 at ½: 4, from 2 towards −6: −2."""
    old, k = Params({"b": torch.tensor([2.0, 2.0])}).clone(), server_context(count=2)
    mean = Params({"b": torch.tensor([6.0, -6.0])}).clone()
    for preset, share in (("authors", rate), ("original", 1.0)):
        rule = build_method(name, {**args, "preset": preset}).server
        assert rule.statistics(old, mean, k)["b"].tolist() == pytest.approx([2 + share * 4, 2 - share * 8], rel=1e-6)


@pytest.mark.parametrize(("name", "args", "rate"), MOVED)
def test_and_so_they_do_in_a_round(name: str, args: dict[str, Any], rate: float) -> None:
    tiny = Tiny(build_method(name, {**args, "preset": "authors"}), net=network(norm=True))
    done = tiny.step([0, 2])
    old, mean = tiny.net.initial.b, (done[0].upload.b + done[2].upload.b) / 2
    torch.testing.assert_close(tiny.server.b.flat, (old + (mean - old) * rate).flat, rtol=1e-5, atol=1e-6)
    assert float((mean - old).sq_norm()) > 1e-4
