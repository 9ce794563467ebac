"""`raffed tune --resume` on folders of strangers and damaged ones: no pickle is opened, and the sweep
ends as it would have.
"""

from __future__ import annotations

import json
import os
import pickle
import shutil
from pathlib import Path
from typing import Any

import pytest

from raffed.results.runfile import read_run, sealed
from raffed.results.sweep_file import read_sweep
from tests.cli.conftest import Cli
from tests.fuzz.strangers import Trap

GOOD, OTHER = "mu1=0.01,local.lr=0.05", "mu1=0.1,local.lr=0.05"
NAMES = (
    "tuner.pkl",
    "trainable.pkl",
    "searcher-state-x.pkl",
    "experiment_state-x.json",
)  # pickles of Ray Tune
WHAT = ("number", "name", "state", "rounds", "score")
pytestmark = [pytest.mark.usefixtures("ray_here"), pytest.mark.more]


def plant(sweep: Path, sprung: Path) -> list[Path]:
    """Put traps where Tune could have left something in a sweep over FedMR; `sprung` is what they make."""
    planted = [place / name for place in (sweep, sweep / "fedmr", sweep / "fedmr/trials") for name in NAMES]
    for path in planted:
        path.write_bytes(pickle.dumps(Trap(sprung)))
    pickle.loads(planted[0].read_bytes())
    assert sprung.exists(), "a trap goes off when it is opened"
    sprung.unlink()
    return planted


def outcome(sweep: Path) -> dict[str, Any]:
    """What a sweep found, and the hashes of its final runs."""
    found: dict[str, Any] = {}
    for method, about in read_sweep(sweep)["methods"].items():
        found[method] = [[trial[name] for name in WHAT] for trial in about["trials"]], about["chosen"]["name"]
        found[f"{method} finals"] = [read_run(sweep / one["folder"])["hashes"] for one in about["final"]]
    return found


def without_fedavg(sweep: Path) -> None:
    """The sweep was asked for FedMR alone."""
    about = json.loads((sweep / "sweep.json").read_text())
    about["request"]["methods"] = ["fedmr"]
    del about["methods"]["fedavg"]
    (sweep / "sweep.json").write_text(json.dumps(sealed(about)))


@pytest.mark.slow
def test_damaged_runs_are_put_aside_and_carried_out_again_and_no_pickle_of_the_folder_is_opened(
    swept: Path, tmp_path: Path, cli: Cli, caplog: pytest.LogCaptureFixture
) -> None:
    sweep, sprung = tmp_path / "a", tmp_path / "sprung"
    shutil.copytree(swept, sweep)
    planted = plant(sweep, sprung)
    without_fedavg(sweep)
    trials, final = sweep / "fedmr" / "trials", sweep / "fedmr" / "final" / "seed-1"
    diverged = next(path for path in trials.glob("mu1=0.1,*") if path.name != OTHER)
    (trials / GOOD / "run.json").write_text("[" * 100_000)
    (trials / OTHER / "run.json").unlink()
    (diverged / "run.json").unlink()
    os.mkfifo(diverged / "run.json")
    shutil.rmtree(final / "metrics")
    done = cli("tune", "--resume", "--at-once", 1, "--out", sweep)
    assert done.code == 0, done.err
    assert outcome(sweep) == {what: found for what, found in outcome(swept).items() if "fedmr" in what}
    put_aside = {path.name for path in (sweep / "fedmr" / "damaged").iterdir()}
    assert put_aside == {GOOD, OTHER, diverged.name, "seed-1"}
    # Nothing is deleted
    assert (sweep / "fedmr" / "damaged" / GOOD / "run.json").read_text() == "[" * 100_000
    assert caplog.text.count("put aside") == 4
    assert not sprung.exists()
    assert all(path.exists() for path in planted)


def test_a_diverged_trial_is_not_carried_out_again(swept: Path, tmp_path: Path, cli: Cli) -> None:
    """It would diverge again: the same seed gives the same bits."""
    sweep = tmp_path / "a"
    shutil.copytree(swept, sweep)
    lost = [path for path in (sweep / "fedmr" / "trials").iterdir() if path.name.endswith("local.lr=900")]
    before = [path.stat().st_mtime_ns for path in sorted(sweep.rglob("run.json"))]
    assert [read_run(path)["state"] for path in lost] == ["failed", "failed"]
    done = cli("tune", "--resume", "--at-once", 1, "--out", sweep)
    assert done.code == 0, done.err
    assert [path.stat().st_mtime_ns for path in sorted(sweep.rglob("run.json"))] == before
    assert outcome(sweep) == outcome(swept)


def test_data_are_not_downloaded_because_a_folder_says_so(swept: Path, tmp_path: Path, cli: Cli) -> None:
    sweep, elsewhere = tmp_path / "a", tmp_path / "elsewhere"
    sweep.mkdir()
    about = json.loads((swept / "sweep.json").read_text())
    about["request"]["base"]["data"] |= {"dataset": "cifar10", "root": str(elsewhere), "download": True}
    (sweep / "sweep.json").write_text(json.dumps(sealed({**about, "methods": {}})))
    done = cli("tune", "--resume", "--out", sweep)
    assert done.code == 2
    assert "--download" in done.err
    assert not elsewhere.exists()
