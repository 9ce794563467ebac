"""Derived randomness: every draw has its own stream of (seed, purpose, round, client, …)."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from raffed.core import seeds
from raffed.core.seeds import PURPOSES, forked, generator, rng


def test_no_two_streams_share_a_seed() -> None:
    """2 runs × every purpose × 5 rounds × 5 clients × 3 stages: as many seeds as keys."""
    keys = list(itertools.product(range(2), PURPOSES, range(5), range(5), range(3)))
    drawn = {seeds.seed(run, purpose, r, c, more) for run, purpose, r, c, more in keys}  # type: ignore[arg-type]
    assert len(PURPOSES) == len(set(PURPOSES)) >= 9
    assert len(drawn) == len(keys)


def test_round_and_client_do_not_change_places() -> None:
    assert seeds.seed(0, "batches", 1, 2) != seeds.seed(0, "batches", 2, 1)
    assert seeds.seed(1, "batches", 0, 2) != seeds.seed(2, "batches", 0, 1)


@given(st.integers(0, 2**31 - 1), st.integers(0, 10**6), st.integers(0, 10**6))
def test_a_seed_is_a_function_of_its_key_and_fits_every_generator(run: int, round: int, client: int) -> None:
    value = seeds.seed(run, "augment", round, client)
    assert value == seeds.seed(run, "augment", round, client)
    assert 0 <= value < 2**63
    a, b = generator(run, "augment", round, client), generator(run, "augment", round, client)
    assert torch.equal(torch.rand(3, generator=a), torch.rand(3, generator=b))
    assert np.array_equal(rng(run, "split", round, client).random(3), rng(run, "split", round, client).random(3))


def test_drawing_from_derived_streams_leaves_the_global_generators_alone() -> None:
    before, numpy_before = torch.get_rng_state(), np.random.get_state()[1]  # noqa: NPY002 (the one to watch)
    torch.randn(5, generator=generator(0, "batches"))
    rng(0, "sampling").permutation(5)
    assert torch.equal(torch.get_rng_state(), before)
    assert np.array_equal(np.random.get_state()[1], numpy_before)  # noqa: NPY002


def test_a_fork_sets_the_global_generator_and_puts_it_back() -> None:
    before = torch.get_rng_state()
    with forked(5):
        first = torch.rand(3)
    assert torch.equal(torch.get_rng_state(), before)
    with forked(5):
        assert torch.equal(torch.rand(3), first)


def test_a_fork_puts_the_generator_back_after_an_exception() -> None:
    before = torch.get_rng_state()
    with pytest.raises(RuntimeError, match="invalid multinomial"), forked(5):
        torch.multinomial(torch.rand(3) * 0, 2)
    assert torch.equal(torch.get_rng_state(), before)
