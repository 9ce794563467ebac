"""Pickles of names that Ray Tune uses, which create a file when anybody opens them."""

from __future__ import annotations

import pickle
from pathlib import Path

from tests.fuzz.strangers import Trap

NAMES = ("tuner.pkl", "trainable.pkl", "searcher-state-x.pkl", "experiment_state-x.json")


def plant(sweep: Path, sprung: Path) -> list[Path]:
    """Put traps where Tune could have left something in a sweep over FedMR; `sprung` is what they make."""
    planted = [place / name for place in (sweep, sweep / "fedmr", sweep / "fedmr/trials") for name in NAMES]
    for path in planted:
        path.write_bytes(pickle.dumps(Trap(sprung)))
    pickle.loads(planted[0].read_bytes())
    assert sprung.exists(), "a trap goes off when it is opened"
    sprung.unlink()
    return planted
