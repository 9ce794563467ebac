"""Whatever a stranger hands over, raffed answers with a result or one line: no traceback, no hang, no file
outside its folder.

`make test` tries a few cases of each kind; `make test-slow` tens of thousands (CASES).
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from raffed.cli.config import read_config
from raffed.config.run import RunConfig
from raffed.core.messages import ClientState
from raffed.data.datasets import load_dataset
from raffed.data.femnist import SIDE, load_femnist
from raffed.data.partition import Partition, make_partition
from raffed.data.splits import SPLITS, parse_split
from raffed.experiments.checks import check_names
from raffed.experiments.folder import check_unedited, run_config
from raffed.experiments.tuning.folder import SweepFolder, stored_request
from raffed.methods import METHODS, build_method
from raffed.models import MODELS
from raffed.runtime.record_codec import load_record, load_server
from tests.fuzz.harness import Source, exits_cleanly, refused_or_done
from tests.fuzz.mutations import ODD_NUMBERS, ODD_TEXTS, as_json, changed, damaged, values

QUICK, CASES = 8, int(os.environ.get("RAFFED_FUZZ", "3000"))
REPORTS = CASES // 20  # a report draws figures: about a second each


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
    section = draw(
        st.sampled_from([key for key, value in tables.items() if isinstance(value, dict) and key != "args"])
    )
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
    words = [word for info in SPLITS.values() for word in info.syntax.replace(" ", "").split(":")] + [
        "if50",
        "if1e9",
        "outer",
        "p10c2",
    ]
    number = st.sampled_from(
        [
            "0",
            "1",
            "2",
            "7",
            "10",
            "100",
            "1442",
            "99999",
            "1000000",
            "1e-6",
            "0.01",
            "1e6",
            "nan",
            "-1",
            "１",
        ]
    )
    first = draw(st.sampled_from([name for name in SPLITS if name != "file"] + ["p10c2"]))
    rest = draw(st.lists(number | st.sampled_from(words) | st.text(max_size=4), max_size=6))
    return draw(
        st.sampled_from([":".join([first, *rest]), f"p{''.join(rest[:1])}c{''.join(rest[1:2])}"])
        | st.text(max_size=20)
    )


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
    import io

    digits = load_dataset("digits")
    made = make_partition(parse_split("iid:4"), digits.y, 10, digits.clients, 0, 0.2, digits.y_test)
    import tempfile

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


FILES = (
    "run.json",
    "partition.npz",
    "final.safetensors",
    "checkpoints/round-000002/server.safetensors",
    "checkpoints/round-000002/state.json",
    "metrics/part-*.parquet",
    "checkpoints/round-000002/vaults/*",
)


def wounded(data: st.DataObject, run: Path) -> Path:
    """Damage a file of a run: its bytes, or where it is JSON in half of the cases what it says."""
    path = sorted(run.glob(data.draw(st.sampled_from(FILES))))[0]
    how = damaged(path.read_bytes())
    if path.suffix == ".json" and data.draw(st.booleans()):
        how = changed(json.loads(path.read_text())).map(as_json)
    path.unlink()  # it may be a link to another file of the run
    path.write_bytes(data.draw(how))
    return path


def fuzz_toml(data: st.DataObject, source: Source) -> None:
    check_toml(data.draw(experiments()), source)


def fuzz_split(data: st.DataObject, source: Source) -> None:
    check_split(data.draw(splits()), source)


def fuzz_partition(data: st.DataObject, source: Source) -> None:
    check_partition(data.draw(archives()), source)


def fuzz_leaf(data: st.DataObject, source: Source) -> None:
    check_leaf(data.draw(changed(LEAF) | damaged(as_json(LEAF)) | values), source)


def fuzz_checkpoint(data: st.DataObject, source: Source) -> None:
    """What resuming reads: the configuration, the server, the vaults."""
    run = source.fresh()
    wounded(data, run)
    (client_state,) = sorted((run / "checkpoints/round-000002/vaults").iterdir())[:1]
    refused_or_done(lambda: check_unedited(run))
    refused_or_done(lambda: run_config(run))
    refused_or_done(lambda: load_server(run / "checkpoints/round-000002/server.safetensors"))
    refused_or_done(lambda: load_record(client_state, ClientState))


def fuzz_resume(data: st.DataObject, source: Source) -> None:
    """A damaged run that was stopped after two of three rounds is resumed, by the command."""
    run = source.fresh()
    about = json.loads((run / "run.json").read_text()) | {"state": "stopped"}
    (run / "run.json").write_text(json.dumps(about))
    wounded(data, run)
    exits_cleanly(["resume", str(run), "--quiet", "--execution", "serial"])  # whatever run.json says


def fuzz_verify(data: st.DataObject, source: Source) -> None:
    run = source.fresh()
    wounded(data, run)
    exits_cleanly(["verify", str(run), "--rounds", "1"])


SWEEP = {
    "schema": 1,
    "state": "finished",
    "meaning": "x",
    "request": {
        "methods": ["fedavg"],
        "protocol": "validation",
        "select": "global",
        "grid": {},
        "args": {},
        "seeds": 1,
        "trials": None,
        "scheduler": "fifo",
        "search": "grid",
        "base": {"data": {"validation": 0.2}},
    },
    "methods": {
        "fedavg": {
            "budget": 1,
            "space": {"mu": [0.1]},
            "cost": {"trials": 1, "rounds": 2, "seconds": 3.0},
            "trials": [
                {
                    "name": "mu=0.1",
                    "settings": {"mu": 0.1},
                    "state": "done",
                    "rounds": 2,
                    "seconds": 3.0,
                    "score": 0.5,
                    "error": None,
                }
            ],
            "chosen": {"name": "mu=0.1", "settings": {"mu": 0.1}, "state": "done", "score": 0.5},
            "final": [{"seed": 1, "folder": "fedavg/final/seed-1", "state": "finished"}],
        }
    },
}
ITEM = {
    "schema": 1,
    "paper": "map",
    "name": "table1",
    "title": "Table",
    "measure": "accuracy_last",
    "scale": "full",
    "meaning": "x",
    "unit": "%",
    "tolerance": 1.0,
    "baseline": "FedAvg",
    "note": "",
    "left_out": [],
    "cells": [
        {"row": "FedAvg", "column": "a", "printed": {"table": "1"}, "runs": ["run"]},
        {"row": "MAP", "column": "a", "printed": {}, "runs": ["run"]},
    ],
    "averages": [{"column": "mean", "of": ["a"], "printed": {}}],
}


def fuzz_sweep(data: st.DataObject, source: Source) -> None:
    """What `raffed tune --resume` reads before it starts Ray: the request, the trials and the runs they
    ask for.
    """
    path = source.room() / "sweep.json"
    path.write_bytes(data.draw(changed(SWEEP).map(as_json) | damaged(as_json(SWEEP)) | values.map(as_json)))

    def work() -> None:
        request = stored_request(path.parent)
        folder = SweepFolder(path.parent, request, resume=True)
        for method in request.methods:
            for trial in folder.trials(method):
                request.config(method, trial.settings)
            request.config(
                method,
                folder.chosen(method) or {},
                seed=request.final_seeds()[0] if request.final_seeds() else None,
            )

    refused_or_done(work)


def fuzz_report(data: st.DataObject, source: Source) -> None:
    """A folder with a damaged run, sweep or reproduction is reported on, by the command."""
    run = source.fresh()
    sweep, item = run.parent / "sweep.json", run.parent / "item.json"
    sweep.write_bytes(as_json(SWEEP))
    item.write_bytes(as_json(ITEM))
    which = data.draw(st.sampled_from(["run", "sweep", "item"]))
    if which == "run":
        wounded(data, run)
    else:
        path, whole = (sweep, SWEEP) if which == "sweep" else (item, ITEM)
        path.write_bytes(
            data.draw(changed(whole).map(as_json) | damaged(as_json(whole)) | values.map(as_json))
        )
    exits_cleanly(["report", str(run.parent), "--out", str(source.work / "report")])


KINDS: dict[
    str, tuple[Callable[[st.DataObject, Source], None], int]
] = {  # what is fuzzed, cases of the slow profile
    "toml": (fuzz_toml, CASES * 2),
    "split": (fuzz_split, CASES * 2),
    "partition": (fuzz_partition, CASES * 2),
    "leaf": (fuzz_leaf, CASES * 2),
    "checkpoint": (fuzz_checkpoint, CASES),
    "resume": (fuzz_resume, CASES // 5),
    "verify": (fuzz_verify, CASES // 10),
    "sweep": (fuzz_sweep, CASES),
    "report": (fuzz_report, REPORTS),
}


def fuzzed(name: str, cases: int, source: Source) -> int:
    """Run a property on `cases` cases; how many there were."""
    seen = 0

    @settings(max_examples=cases, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(st.data())
    def property_holds(data: st.DataObject) -> None:
        nonlocal seen
        seen += 1
        with warnings.catch_warnings():
            warnings.simplefilter(
                "ignore"
            )  # odd numbers make numpy and matplotlib warn; the property is about the end
            KINDS[name][0](data, source)
        source.nothing_escaped()

    property_holds()
    return seen


@pytest.mark.parametrize("name", sorted(set(KINDS) - {"report", "resume", "verify"}))
def test_a_few_odd_inputs_are_refused_in_one_line(name: str, source: Source) -> None:
    assert fuzzed(name, QUICK, source) >= QUICK


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(KINDS))
def test_thousands_of_odd_inputs_are_refused_in_one_line(name: str, source: Source) -> None:
    cases = KINDS[name][1]
    assert fuzzed(name, cases, source) >= cases // 10
