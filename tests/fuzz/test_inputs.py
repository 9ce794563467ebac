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

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from raffed.core.messages import ClientState
from raffed.methods import build_method
from raffed.results.runfile import sealed
from raffed.runs.folder import check_unedited, run_config
from raffed.runtime.record_codec import load_record, load_server
from raffed.search.folder import SweepFolder, stored_request
from tests.fuzz.cases import (
    LEAF,
    archives,
    check_leaf,
    check_partition,
    check_split,
    check_toml,
    experiments,
    splits,
)
from tests.fuzz.harness import Source, exits_cleanly, refused_or_done
from tests.fuzz.mutations import as_json, changed, damaged, values

METHOD = build_method("scamap")  # of the run that is damaged
QUICK, CASES = 8, int(os.environ.get("RAFFED_FUZZ", "3000"))
REPORTS = CASES // 20  # a report draws figures: about a second each


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
    refused_or_done(lambda: load_server(run / "checkpoints/round-000002/server.safetensors", METHOD))
    refused_or_done(lambda: load_record(client_state, ClientState, METHOD.records))


def fuzz_resume(data: st.DataObject, source: Source) -> None:
    """A damaged run that was stopped after two of three rounds is resumed, by the command."""
    run = source.fresh()
    about = json.loads((run / "run.json").read_text()) | {"state": "stopped"}
    (run / "run.json").write_text(json.dumps(sealed(about)))
    wounded(data, run)
    exits_cleanly(["resume", str(run), "--quiet", "--execution", "serial"])  # whatever run.json says


def fuzz_verify(data: st.DataObject, source: Source) -> None:
    run = source.fresh()
    wounded(data, run)
    exits_cleanly(["verify", str(run), "--rounds", "1"])


REQUEST = {
    **{"methods": ["fedavg"], "protocol": "validation", "select": "global", "grid": {}, "args": {}},
    **{"seeds": 1, "trials": None, "scheduler": "fifo", "search": "grid"},
    "base": {"data": {"validation": 0.2}},
}
CHOSEN = {"name": "mu=0.1", "settings": {"mu": 0.1}, "state": "done", "score": 0.5}
FEDAVG = {
    "budget": 1,
    "space": {"mu": [0.1]},
    "cost": {"trials": 1, "rounds": 2, "seconds": 3.0},
    "trials": [{**CHOSEN, "rounds": 2, "seconds": 3.0, "error": None}],
    "chosen": CHOSEN,
    "final": [{"seed": 1, "folder": "fedavg/final/seed-1", "state": "finished"}],
}
SWEEP = {"schema": 1, "state": "finished", "meaning": "x", "request": REQUEST, "methods": {"fedavg": FEDAVG}}
ITEM = {
    **{"schema": 1, "paper": "map", "name": "table1", "title": "Table", "measure": "accuracy_last"},
    **{"scale": "full", "meaning": "x", "unit": "%", "margin": 1.0, "baseline": "FedAvg", "note": ""},
    "left_out": [],
    "cells": [
        {"row": "FedAvg", "column": "a", "printed": {"table": "1"}, "runs": ["run"]},
        {"row": "MAP", "column": "a", "printed": {}, "runs": ["run"]},
    ],
    "averages": [{"column": "mean", "of": ["a"], "printed": {}}],
}


def spoilt(whole: dict[str, Any]) -> st.SearchStrategy[bytes]:
    """A JSON file in which some places, or the bytes, are something else."""
    return changed(whole).map(as_json) | damaged(as_json(whole)) | values.map(as_json)


def fuzz_sweep(data: st.DataObject, source: Source) -> None:
    """What `raffed tune --resume` reads before it starts Ray: the request, the trials and the runs they
    ask for.
    """
    path = source.room() / "sweep.json"
    path.write_bytes(data.draw(spoilt(SWEEP)))

    def work() -> None:
        request = stored_request(path.parent)
        folder = SweepFolder(path.parent, request, resume=True)
        for method in request.methods:
            for trial in folder.trials(method):
                request.config(method, trial.settings)
            seed = request.final_seeds()[0] if request.final_seeds() else None
            request.config(method, folder.chosen(method) or {}, seed=seed)

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
        path.write_bytes(data.draw(spoilt(whole)))
    exits_cleanly(["report", str(run.parent), "--out", str(source.work / "report")])


Fuzz = Callable[[st.DataObject, Source], None]
KINDS: dict[str, tuple[Fuzz, int]] = {  # what is fuzzed, cases of the slow profile
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
            # Odd numbers make numpy and matplotlib warn; the property is about the end
            warnings.simplefilter("ignore")
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
