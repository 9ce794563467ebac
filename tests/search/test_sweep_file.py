"""sweep.json of a stranger, or damaged: one line that names the place, exit code 2, before Ray is started
and nothing joined.
"""

from __future__ import annotations

import contextlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from raffed import Data, Federation, RunConfig, Runtime
from raffed.errors import RunFolderError
from raffed.results.runfile import sealed
from raffed.results.sweep_file import read_sweep
from raffed.runtime.ray import session
from raffed.search.folder import SweepFolder, Trial, stored_request
from raffed.search.request import Request
from tests.cli.conftest import Cli
from tests.params import one_in

BASE = RunConfig(data=Data(validation=0.2), federation=Federation(rounds=2))
REQUEST = Request(BASE, ("fedmr",), grid={"mu1": [0.1, 1.0], "mu2": [0.1]}, seeds=1)


@pytest.fixture
def sweep(tmp_path: Path) -> Path:
    """A sweep over two settings of FedMR, of which one is finished and chosen."""
    path, settings = tmp_path / "sweep", {"mu1": 0.1, "mu2": 0.1}
    folder = SweepFolder(path, REQUEST, resume=False)
    reports = ((1, 0.5), (2, 0.75))
    first = Trial("mu1=0.1,mu2=0.1", settings, "finished", 2, 1.5, 0.75, reports=reports)
    second = Trial("mu1=1.0,mu2=0.1", {"mu1": 1.0, "mu2": 0.1}, "failed", error="no", number=1)
    folder.note(
        "fedmr",
        {
            "space": {"mu1": [0.1, 1.0], "mu2": [0.1]},
            "budget": 2,
            "chosen": first.as_dict(),
            "trials": [first.as_dict(), second.as_dict()],
            "cost": {"trials": 2, "rounds": 2, "seconds": 1.5},
            "final": [{"seed": 1, "folder": "fedmr/final/seed-1", "state": "finished"}],
        },
    )
    return path


@pytest.fixture
def no_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    """A command that starts Ray or joins one fails the test."""

    def refuse(self: object, address: str | None) -> None:
        raise AssertionError(f"Ray is started, or joined at {address}")

    monkeypatch.setattr(session.RaySession, "__init__", refuse)


def edited(sweep: Path, place: str, value: Any) -> None:
    """Put another value at a place such as methods.fedmr.trials.0.score into sweep.json; ... leaves the
    key out.
    """
    about = json.loads((sweep / "sweep.json").read_text())
    *above, last = place.split(".")
    inner = about
    for key in above:
        inner = inner[int(key)] if isinstance(inner, list) else inner[key]
    if value is ...:
        del inner[last]
    else:
        inner[int(last) if isinstance(inner, list) else last] = value
    (sweep / "sweep.json").write_text(json.dumps(sealed(about)))


def refused(cli: Cli, sweep: Path, why: str) -> None:
    done = cli("tune", "--resume", "--out", sweep)
    assert done.code == 2, done.err
    assert why in done.err
    assert len(done.err.strip().splitlines()) == 1
    assert "Traceback" not in done.err


def test_what_raffed_writes_is_read(sweep: Path) -> None:
    about = read_sweep(sweep)
    trials = about["methods"]["fedmr"]["trials"]
    assert [Trial.from_dict(one).as_dict() for one in trials] == trials
    assert stored_request(sweep).grid == {"mu1": [0.1, 1.0], "mu2": [0.1]}


WRONG = {  # place → values that do not belong there
    "schema": [..., 99],
    "request.base": [[], {"data": {"validation": "a"}}, {"runtime": {"address": "10.0.0.1:6379"}}],
    "request.methods": [..., ["../../etc"]],
    "request.grid": [{"mu1": 3}, {"runtime.address": ["10.0.0.1:6379"]}],
    "request.seeds": [0],
    "request.more": [1],
    "methods.fedmr.trials.0.score": ["x", True],
    "methods.fedmr.final": [None, [{"seed": 1, "folder": "../../x", "state": "finished"}]],
}


def read_both(sweep: Path) -> None:
    read_sweep(sweep)
    stored_request(sweep)


@pytest.mark.usefixtures("no_ray")
@pytest.mark.parametrize("place", one_in(2, WRONG))
def test_a_value_that_does_not_belong_there_is_refused_before_ray_is_joined(
    place: str, sweep: Path, cli: Cli
) -> None:
    """Nor is the address of a cluster ever taken from a folder."""
    whole = (sweep / "sweep.json").read_bytes()
    for value in WRONG[place]:
        (sweep / "sweep.json").write_bytes(whole)
        edited(sweep, place, value)
        with pytest.raises(RunFolderError, match=r"sweep\.json: "):
            read_both(sweep)
    refused(cli, sweep, "sweep.json: ")


def test_of_the_runtime_a_sweep_remembers_what_its_bits_depend_on_and_nothing_else(tmp_path: Path) -> None:
    """Resumed with other threads its trials would be other runs."""
    runtime = Runtime(execution="serial", threads=2, address="10.0.0.1:6379", actors=0)
    request = Request(replace(BASE, runtime=runtime), ("fedmr",))
    SweepFolder(tmp_path / "a", request, resume=False)
    stored = stored_request(tmp_path / "a")
    assert (stored.base.runtime.threads, stored.base.runtime.address) == (2, None)
    assert "address" not in (tmp_path / "a" / "sweep.json").read_text()
    assert stored.same(request)
    assert not stored.same(replace(request, base=BASE))


@pytest.mark.usefixtures("no_ray")
@pytest.mark.parametrize("link", ["fedmr", "fedmr/damaged", "fedmr/trials/mu1=0.1,mu2=0.1"])
def test_links_that_lead_out_of_the_folder_are_refused_and_nothing_there_is_touched(
    link: str, sweep: Path, tmp_path: Path, cli: Cli
) -> None:
    outside = tmp_path / "precious"
    (outside / "trials").mkdir(parents=True)
    (outside / "run.json").write_text("mine")
    (sweep / link).parent.mkdir(parents=True, exist_ok=True)
    (sweep / link).symlink_to(outside)
    refused(cli, sweep, "leads out of")
    assert (outside / "run.json").read_text() == "mine"
    assert sorted(path.name for path in outside.rglob("*")) == ["run.json", "trials"]


@pytest.mark.parametrize("name", [".sweep.json.tmp", "sweep.json"])
def test_sweep_json_is_never_written_through_a_link(name: str, sweep: Path, tmp_path: Path) -> None:
    outside = tmp_path / "precious"
    if name == "sweep.json":
        (sweep / name).rename(outside)
    else:
        outside.write_text("mine")
    before = outside.read_bytes()
    (sweep / name).symlink_to(outside)
    with contextlib.suppress(RunFolderError):  # what leads out is not read either
        SweepFolder(sweep, REQUEST, resume=True)
    assert outside.read_bytes() == before
