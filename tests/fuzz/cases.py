"""Odd inputs of the kinds that are made from nothing, and what raffed must do with each."""

from __future__ import annotations

import io
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import strategies as st

from raffed.cli.config import read_config
from raffed.config.run import RunConfig
from raffed.data.datasets import load_dataset
from raffed.data.femnist import SIDE, load_femnist
from raffed.data.partition import make_partition
from raffed.data.partition_file import Partition
from raffed.data.splits import SPLITS, parse_split
from raffed.methods import METHODS, build_method
from raffed.models import MODELS
from raffed.runs.run import check_names
from tests.fuzz.harness import Source, refused_or_done
from tests.fuzz.mutations import ODD_NUMBERS, ODD_TEXTS, as_json, damaged, values


def toml(value: Any) -> str:
    """A value as TOML writes it; texts that TOML cannot hold are left for the byte mutations."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(str(key))} = {toml(one)}" for key, one in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    return "nan" if value is None else json.dumps(value) if isinstance(value, str) else repr(value)


BASE = RunConfig(args={}).as_dict()
SMALL = st.sampled_from([one for one in ODD_NUMBERS if not 10**4 < abs(one) < 10**12] + ODD_TEXTS) | values


@st.composite
def experiments(draw: st.DrawFn) -> bytes:
    """TOML files of runs: some field is something else, the names are known ones or not, sometimes the
    bytes are damaged.
    """
    tables = json.loads(json.dumps(BASE))
    tables["method"] = draw(st.sampled_from(sorted(METHODS)))
    tables["model"] = {
        "name": draw(st.sampled_from(sorted(MODELS))),
        "args": draw(st.dictionaries(st.text(max_size=8), SMALL)),
    }
    sections = [key for key, value in tables.items() if isinstance(value, dict) and key != "args"]
    section = draw(st.sampled_from(sections))
    for _ in range(draw(st.integers(0, 3))):
        tables[section][draw(st.sampled_from(sorted(tables[section]) or ["x"]))] = draw(SMALL)
    tables["data"]["download"] = False
    text = "\n".join(f"{key} = {toml(value)}" for key, value in tables.items()).encode(errors="replace")
    return draw(damaged(text)) if draw(st.booleans()) else text


def check_toml(case: bytes, source: Source) -> None:
    path = source.room() / "exp.toml"
    path.write_bytes(case)

    def work() -> None:
        config = read_config(path, {})
        check_names(config)
        build_method(config.method, config.args)
        config.identity()

    refused_or_done(work)


@st.composite
def splits(draw: st.DrawFn) -> str:
    """Texts that look like splits, with numbers from everywhere."""
    words = [word for info in SPLITS.values() for word in info.syntax.replace(" ", "").split(":")]
    words += ["if50", "if1e9", "outer", "p10c2"]
    numbers = ["0", "1", "2", "7", "10", "100", "1442", "99999", "1000000", "1e-6", "0.01", "1e6", "nan"]
    number = st.sampled_from([*numbers, "-1", "１"])
    first = draw(st.sampled_from([name for name in SPLITS if name != "file"] + ["p10c2"]))
    rest = draw(st.lists(number | st.sampled_from(words) | st.text(max_size=4), max_size=6))
    texts = [":".join([first, *rest]), f"p{''.join(rest[:1])}c{''.join(rest[1:2])}"]
    return draw(st.sampled_from(texts) | st.text(max_size=20))


def check_split(case: str, source: Source) -> None:
    digits = load_dataset("digits")

    def work() -> None:
        split = parse_split(case)
        if not split.stores_lists:
            made = make_partition(split, digits.y, 10, digits.clients, 0, 0.2, digits.y_test)
            assert sum(map(len, made.train)) > 0

    refused_or_done(work)


@st.composite
def archives(draw: st.DrawFn) -> dict[str, Any] | bytes:
    """A partition file: arrays of odd types, shapes and values in it, objects that only pickle could
    store, or damaged bytes.
    """
    if draw(st.booleans()):
        return draw(st.binary(min_size=0, max_size=1)) + draw(damaged(PARTITION))
    changes: dict[str, Any] = {}
    for _ in range(draw(st.integers(1, 3))):
        kind = draw(st.sampled_from(["object", "float", "int", "text", "gone", "negative", "huge"]))
        name = draw(st.sampled_from(sorted(STORED)))
        changes[name] = {
            "object": np.array([{"x": 1}], dtype=object),
            "float": np.array([0.5]),
            "text": np.str_(draw(st.sampled_from(ODD_TEXTS))),
            "int": np.array(draw(st.lists(st.integers(-5, 2000), max_size=6)), dtype=np.int64),
            "gone": None,
            "negative": np.array([-1]),
            "huge": np.array([2**63 - 1, 2**63 - 1], dtype=np.uint64),
        }[kind]
    return changes


def _partition() -> tuple[bytes, dict[str, Any]]:
    digits = load_dataset("digits")
    made = make_partition(parse_split("iid:4"), digits.y, 10, digits.clients, 0, 0.2, digits.y_test)
    with tempfile.TemporaryDirectory() as folder:
        made.save(Path(folder) / "a.npz")
        raw = (Path(folder) / "a.npz").read_bytes()
    with np.load(io.BytesIO(raw)) as stored:
        return raw, {name: stored[name] for name in stored.files}


PARTITION, STORED = _partition()


def check_partition(case: dict[str, Any] | bytes, source: Source) -> None:
    path = source.room() / "a.npz"
    if isinstance(case, bytes):
        path.write_bytes(case)
    else:
        np.savez(path, **{name: value for name, value in {**STORED, **case}.items() if value is not None})
    refused_or_done(lambda: Partition.load(path))


LEAF = {
    "users": ["a", "b"],
    "num_samples": [1, 2],
    "user_data": {
        "a": {"x": [[0.5] * SIDE**2], "y": [3]},
        "b": {"x": [[0.0] * SIDE**2, [1.0] * SIDE**2], "y": [0, 61]},
    },
}


def check_leaf(case: Any, source: Source) -> None:
    folder = source.room() / "FEMNIST"
    folder.mkdir(exist_ok=True)
    (folder / "all.json").write_bytes(case if isinstance(case, bytes) else as_json(case))
    refused_or_done(lambda: load_femnist(folder.parent))
