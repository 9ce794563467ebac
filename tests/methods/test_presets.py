"""Preset "authors": what MAP's released code does in all its baselines (docs/papers/map.md §1.4, §5, §7
no. 3).
"""

from __future__ import annotations

import inspect

import pytest

from raffed.methods import METHODS, build_method
from raffed.methods.fedrs import RestrictedSoftmax
from tests.tiny import Tiny, of_kind, same_bits

PRESET = [name for name, info in METHODS.items() if "preset" in inspect.signature(info.load()).parameters]
MODES = {"scars": "uniform_bug", "scamap": "uniform_bug", "dittors": "counts"}


def mode_of(name: str, **args: object) -> str:
    return of_kind(build_method(name, args).head, RestrictedSoftmax).mode


@pytest.mark.parametrize("name", PRESET)
def test_every_one_of_them_takes_uniform_means(name: str) -> None:
    """[C]: n_k for FedRS, FedPHP and MAP alone, which have no preset."""
    assert build_method(name, {"preset": "authors"}).mean.by == "clients"


def test_it_is_known_which_methods_have_it() -> None:
    assert len(PRESET) == 15
    assert not {"fedrs", "fedphp", "map"} & set(PRESET)


@pytest.mark.parametrize("name", ["fedprox", "fedrep", "fedrod", "flda", "ditto"])
def test_where_clients_differ_in_size_uniform_means_move_the_server_elsewhere(name: str) -> None:
    """Not only the weights in the recipe: the first round's mean, from clients of 8, 11 and fewer samples."""
    ours, theirs = (Tiny(build_method(name, {"preset": preset})).run(1) for preset in ("original", "authors"))
    assert not same_bits(ours.server.w, theirs.server.w)


@pytest.mark.parametrize(("name", "mode"), MODES.items())
def test_the_restricted_softmax_is_the_released_one_unless_another_is_named(name: str, mode: str) -> None:
    assert mode_of(name) == "binary"
    assert mode_of(name, preset="authors") == mode
    assert mode_of(name, preset="authors", mode="binary") == "binary"
    assert mode_of(name, mode="counts") == "counts"
