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
from tests.search.traps import plant

GOOD, OTHER = "mu1=0.01,local.lr=0.05", "mu1=0.1,local.lr=0.05"
WHAT = ("number", "name", "state", "rounds", "score")
pytestmark = [pytest.mark.usefixtures("ray_here"), pytest.mark.more]


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


def test_the_traps_go_off_when_they_are_opened(tmp_path: Path) -> None:
    """Else the tests below would show nothing."""
    sprung = tmp_path / "sprung"
    pickled, *_ = plant(tmp_path / "a", sprung)
    pickle.loads(pickled.read_bytes())
    assert sprung.exists()
    sprung.unlink()
    state = next((tmp_path / "a").glob("experiment_state*"))
    pickle.loads(
        bytes.fromhex(json.loads(state.read_text())["stats"]["value"])
    )  # as Tune's decoder does when it is told to
    assert sprung.exists()


def test_a_damaged_run_one_that_is_gone_and_a_copy_of_another_seed_s_are_named_and_carried_out_again(
    swept: Path, tmp_path: Path, cli: Cli, caplog: pytest.LogCaptureFixture
) -> None:
    sweep = Path(shutil.copytree(swept, tmp_path / "a"))
    without_fedavg(sweep)
    gone, copy = sweep / "fedmr" / "final" / "seed-1", sweep / "fedmr" / "final" / "seed-2"
    shutil.rmtree(copy)
    gone.rename(copy)
    (sweep / "fedmr" / "trials" / GOOD / "run.json").write_text("[" * 100_000)
    done = cli("tune", "--resume", "--at-once", 1, "--out", sweep)
    assert done.code == 0, done.err
    assert f"{copy}: holds another run" in caplog.text
    assert f"{gone} is gone" in caplog.text
    assert {path.name for path in (sweep / "fedmr" / "damaged").iterdir()} == {GOOD, "seed-2"}
    assert outcome(sweep) == {what: found for what, found in outcome(swept).items() if "fedmr" in what}


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


def test_nothing_of_tune_s_is_left_in_the_folder_of_a_sweep(swept: Path) -> None:
    names = {path.name for path in swept.rglob("*")}
    assert not {name for name in names if name.endswith(".pkl") or "state-" in name}
    left = {path.name for path in (swept / "fedmr").iterdir()}
    assert left == {"trials", "final"}


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
