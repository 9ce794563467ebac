"""Derived randomness: every draw has its own stream of (seed, purpose, round, client, …). `core/seeds.py` and
`data/randomness.py` derive theirs from the same run seed: no two purposes of either share one.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import itertools
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from raffed.core import seeds
from raffed.core.seeds import PURPOSES, forked, generator, rng
from raffed.data.randomness import stream


def test_no_two_streams_share_a_seed() -> None:
    """2 runs × every purpose × 5 rounds × 5 clients × 3 stages: as many seeds as keys."""
    keys = list(itertools.product(range(2), PURPOSES, range(5), range(5), range(3)))
    drawn = {seeds.seed(run, purpose, r, c, more) for run, purpose, r, c, more in keys}  # type: ignore[arg-type]
    assert len(PURPOSES) == len(set(PURPOSES)) >= 9
    assert len(drawn) == len(keys)


@given(st.integers(0, 2**31 - 1), st.integers(0, 10**6), st.integers(0, 10**6))
def test_a_seed_is_a_function_of_its_key_and_fits_every_generator(run: int, round: int, client: int) -> None:
    value = seeds.seed(run, "augment", round, client)
    assert value == seeds.seed(run, "augment", round, client)
    assert 0 <= value < 2**63
    a, b = generator(run, "augment", round, client), generator(run, "augment", round, client)
    assert torch.equal(torch.rand(3, generator=a), torch.rand(3, generator=b))
    assert np.array_equal(
        rng(run, "split", round, client).random(3), rng(run, "split", round, client).random(3)
    )


DRAWS: dict[str, Callable[[], Tensor]] = {
    "randn": lambda: torch.randn(33),
    "randperm": lambda: torch.randperm(20),
    "randint": lambda: torch.randint(3, 9, (5,)),
    "randn_like": lambda: torch.randn_like(torch.ones(7)),
    "normal": lambda: torch.normal(torch.ones(7), 1.0),
    "bernoulli": lambda: torch.bernoulli(torch.full((7,), 0.3)),
    "multinomial": lambda: torch.multinomial(torch.ones(9), 3),
    "exponential_": lambda: torch.empty(5).exponential_(),
    "dropout": lambda: nn.Dropout(0.5)(torch.ones(7, 8)),
    "Linear": lambda: nn.Linear(5, 6).weight,
    "LSTM": lambda: nn.LSTM(3, 4).weight_hh_l0,
    "trunc_normal_": lambda: nn.init.trunc_normal_(torch.empty(50)),
    "orthogonal_": lambda: nn.init.orthogonal_(torch.empty(5, 6)),
}


@pytest.mark.parametrize("name", DRAWS)
def test_a_fork_gives_the_numbers_of_a_global_generator_that_was_seeded_so(name: str) -> None:
    draw = DRAWS[name]
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(5)
        expected = draw(), draw()
    before = torch.get_rng_state()
    with forked(5):
        found = draw(), draw()
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))
    assert torch.equal(torch.get_rng_state(), before)


def test_two_forks_at_once_and_a_thread_that_seeds_torch_get_what_each_gets_alone() -> None:
    """They take turns draw by draw."""
    turn, found = threading.Barrier(3, timeout=30), dict[str, list[Tensor]]()

    def draw(name: str, begin: Callable[[], AbstractContextManager[object]]) -> None:
        with begin():
            found[name] = [(turn.wait(), torch.rand(3))[1] for _ in range(4)]

    @contextlib.contextmanager
    def globally() -> Iterator[None]:
        torch.manual_seed(3)
        yield

    before = torch.get_rng_state()
    begins: dict[str, Callable[[], AbstractContextManager[object]]] = {
        "5": lambda: forked(5),
        "7": lambda: forked(7),
        "global": globally,
    }
    threads = [threading.Thread(target=draw, args=one) for one in begins.items()]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    torch.set_rng_state(before)
    for name, seed in (("5", 5), ("7", 7), ("global", 3)):
        alone = torch.Generator().manual_seed(seed)
        assert all(torch.equal(drawn, torch.rand(3, generator=alone)) for drawn in found[name])


RAFFED = Path(__file__).parents[2] / "raffed"


@functools.cache
def purposes_of_data() -> set[str]:
    """The purposes that raffed gives `stream`, read off the source, those of its callers' arguments and
    defaults included.
    """
    found = set()
    for path in sorted((RAFFED / "data").glob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "stream":
                texts = [one.value for one in ast.walk(node.args[1]) if isinstance(one, ast.Constant)]
                found |= {text for text in texts if isinstance(text, str)}
    return found | {"class order", "test order"}  # given to schemes.shuffled_classes


def test_no_two_purposes_of_both_systems_draw_the_same_numbers() -> None:
    """First 32 bits of the streams, as NumPy's of either kind and as torch's, for some seeds of runs: all
    differ.
    """
    first: dict[bytes, str] = {}
    for run in (0, 1, 2, 12345, 2**31, 2**62 + 1):
        for one in sorted(purposes_of_data()):
            _new(first, stream(run, one).bytes(32), f"data {one} {run}")
        for purpose in PURPOSES:
            _new(first, seeds.rng(run, purpose).bytes(32), f"rng {purpose} {run}")  # type: ignore[arg-type]
            drawn = torch.randint(2**31, (8,), generator=seeds.generator(run, purpose))  # type: ignore[arg-type]
            _new(first, drawn.numpy().tobytes(), f"torch {purpose} {run}")
            twin = np.random.RandomState(seeds.seed(run, purpose) % 2**32)  # type: ignore[arg-type]
            _new(first, twin.bytes(32), f"MT19937 {purpose} {run}")
    assert len(first) == 6 * (len(purposes_of_data()) + 3 * len(PURPOSES))


def _new(first: dict[bytes, str], drawn: bytes, name: str) -> None:
    assert drawn not in first, (name, first.get(drawn))
    first[drawn] = name
