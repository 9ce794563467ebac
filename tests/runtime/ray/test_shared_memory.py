"""Values that travel beside each other's pickles: what is large lies in memory that both sides map, and
is given back.
"""

from __future__ import annotations

import gc
from pathlib import Path

import numpy as np
import pytest
import torch

from raffed.core.messages import Broadcast
from raffed.core.params import Params
from raffed.runtime.ray import serving
from raffed.runtime.ray.serving import ASIDE, packed

pytestmark = pytest.mark.skipif(not serving.SHARES, reason="no memory without a name on this system")
LARGE = ASIDE // 8 + 3  # int64 numbers


def open_files() -> int:
    gc.collect()
    return len(list(Path("/proc/self/fd").iterdir()))


def test_large_arrays_lie_beside_the_pickle_and_small_ones_in_it() -> None:
    small, large = np.arange(5), np.arange(LARGE)
    value = packed({"small": small, "large": [large, 2 * large], "word": "w"})
    assert [length for _, length in value.places] == [large.nbytes] * 2
    assert all(at % 64 == 0 for at, _ in value.places)
    assert len(value.body) < 2_000
    there = value.unpacked()
    assert (there["small"].tolist(), there["word"]) == (small.tolist(), "w")
    assert np.array_equal(there["large"][0], large)
    assert np.array_equal(there["large"][1], 2 * large)
    assert packed(small).memory is None


def test_a_broadcast_is_read_in_place_and_cannot_be_written_to() -> None:
    w = Params({"a": torch.arange(21_000.0).view(300, 70), "b": torch.ones(7)}).clone()
    value, maps = packed(Broadcast(3, w, Params({}), {})), len(serving.held_maps)
    received = [value.unpacked() for _ in range(2)]
    assert len(serving.held_maps) == maps + 2
    for one in received:
        assert torch.equal(one.w.flat, w.flat)
        assert one.w.flat.data_ptr() % 4096 == 0  # the first of its pages: it is no copy
    with pytest.raises(TypeError, match="read-only"):
        value.memory.parts(value.places)[0][0] = 1  # type: ignore[index,union-attr]


def test_the_memory_is_given_back_with_the_last_that_holds_it() -> None:
    before = open_files()
    value = packed(np.arange(LARGE))
    there = value.unpacked()
    assert open_files() == before + 2  # the parcel's descriptor, and the map's
    del value
    assert there[-1] == LARGE - 1  # it can be read still
    del there
    assert open_files() == before
