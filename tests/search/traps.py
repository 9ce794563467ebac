"""Files as Ray Tune writes them about a search, whose pickles create a file when anybody opens them."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

from tests.fuzz.strangers import Trap

STATES = (
    "experiment_state-2026-01-01_00-00-00.json",
    "basic-variant-state-2026-01-01_00-00-00.json",
    "search_gen_state-x.json",
)
PICKLES = ("tuner.pkl", "trainable.pkl", "searcher-state-x.pkl", "error.pkl", "params.pkl")


def plant(sweep: Path, sprung: Path) -> list[Path]:
    """Put traps wherever Tune could have left something in a sweep over FedMR and FedAvg; `sprung` is
    what they make.
    """
    raw = pickle.dumps(Trap(sprung))
    state = json.dumps({"trial_data": [], "stats": {"_type": "CLOUDPICKLE_FALLBACK", "value": raw.hex()}})
    planted = []
    below = [
        f"{method}/{name}" for method in ("fedmr", "fedavg") for name in ("", "search", "repeat", "trials")
    ]
    places = [sweep, *(sweep / name for name in below)]
    for place in places:
        place.mkdir(parents=True, exist_ok=True)
        for name in PICKLES:
            (place / name).write_bytes(raw)
        for name in STATES:
            (place / name).write_text(state)
        planted += [place / name for name in (*PICKLES, *STATES)]
    return planted
