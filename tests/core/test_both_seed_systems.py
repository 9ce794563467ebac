"""`core/seeds.py` and `data/randomness.py` derive streams from the same run seed: no two purposes of
either share one.
"""

from __future__ import annotations

import ast
import zlib
from pathlib import Path

import numpy as np
import torch

from raffed.core import seeds
from raffed.core.seeds import PURPOSES
from raffed.data.randomness import stream

RAFFED = Path(__file__).parents[2] / "raffed"


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


def test_no_two_purposes_of_the_data_share_a_key() -> None:
    """`stream` is keyed by CRC-32 of the purpose, which two texts could share."""
    named = purposes_of_data() | set(PURPOSES)
    assert len({zlib.crc32(one.encode()) for one in named}) == len(named)


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
