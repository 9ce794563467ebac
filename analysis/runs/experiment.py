"""The part of a run's configuration that distinguishes experiments, in one spelling for all versions."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from .files import JsonDict, JsonObject
from .load import section

SHOWN = 8  # digits of the hash of a fork's earlier configurations
_NOT_THE_EXPERIMENT = ("seed", "runtime", "name", "run_id", "out")
_WHERE_DATA_ARE = ("root", "download")
# What is in run.json where nothing was asked for; older runs do not have all of it
_USUAL: Mapping[str, JsonDict] = {
    "data": {"validation": 0, "samples": 0, "transform": "auto", "pool": "train"},
    "local": {
        "schedule": "constant",
        "schedule_by": "round",
        "optimizer": "sgd",
        "keep_optimizer": False,
        "label_smoothing": 0,
        "epochs_to": 0,
    },
    "federation": {
        "survey": 0,
        "strength_every": 1,
        "unseen_clients": 0,
        "forked_at": 0,
        "selection": "uniform",
    },
    "numerics": {"cohort": 0, "precision": "fp32", "bits": "machine", "convolutions": "torch"},
    "faults": {
        "drop": 0,
        "late": 0,
        "corrupt": 0,
        "straggle": 0,
        "straggle_share": 0.5,
        "corrupt_kind": "nan",
        "at": "",
        "attackers": 0,
        "backdoor_target": 0,
        "backdoor_share": 0.5,
    },
    "privacy": {"noise": 0, "noise_at": "server", "delta": 1e-05, "masks": False},
    "clock": {
        "work": "step",
        "spread": 0.5,
        "jitter": 0,
        "seconds": 1,
        "server": "waits",
        "buffer": 0,
        "staleness": "polynomial",
        "staleness_a": 0.5,
        "staleness_b": 4,
        "mixing": 1,
    },
}
_SECTIONS = ("data", "model", "local", "federation", "numerics", "faults", "privacy", "clock")


def experiment(file: JsonObject) -> JsonDict:
    """Return the configuration without what does not distinguish experiments.

    5.0 counts as 5, and a null, an empty text or an empty table of a section as a missing setting. A setting
    that older runs lack also counts as missing if it has its default value. The folder of the data is
    ignored. A fork has the hash of its checkpoint, which differs between seeds; a short hash of the
    configurations of its earlier rounds takes its place, so that a label stays short.
    """
    config = {
        key: _spelt(value) for key, value in section(file, "config").items() if key not in _NOT_THE_EXPERIMENT
    }
    for name in ("loss", "loss_args"):
        if not config.get(name):
            config.pop(name, None)
    for name in _SECTIONS:
        usual = _USUAL.get(name, {})
        config[name] = {
            key: value
            for key, value in section(config, name).items()
            if value != usual.get(key) and value not in ("", {})
        }
    if config["federation"].pop("fork_sha256", ""):
        before = [earlier for earlier in file.get("earlier") or [] if isinstance(earlier, Mapping)]
        configs = json.dumps([experiment(earlier) for earlier in before], sort_keys=True, default=str)
        config["forked_from"] = hashlib.sha256(configs.encode()).hexdigest()[:SHOWN]
    config["data"] = {key: value for key, value in config["data"].items() if key not in _WHERE_DATA_ARE}
    return config


def value_of(config: JsonObject, name: str) -> object:
    """Return a value of a flattened configuration: if it is not there, its default, or "none" without one."""
    part, _, field = name.partition(".")
    usual = _USUAL.get(part, {}).get(field, "")
    return config.get(name, "none" if usual == "" else usual)


def _spelt(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _spelt(inner) for key, inner in value.items() if inner is not None}
    if isinstance(value, list):
        return [_spelt(inner) for inner in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value
