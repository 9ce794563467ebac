"""What a terminal, a log, a program and a page that loads itself show of runs, the last warnings, and what is
shown of a machine and of data of one's own.
"""

from __future__ import annotations

import io
import json
import logging
import os
import re
import shutil
import signal
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from rich.console import Console

from raffed.api.running import Run
from raffed.cli import checking
from raffed.cli.messages import count_warning, repeated_warnings
from raffed.cli.screen import BarScreen, LineScreen, Overall, Screen, make_screen
from raffed.config.run import RunConfig
from raffed.data.catalogue import DATASETS
from raffed.data.datasets import load_dataset
from tests.cli.conftest import Cli
from tests.docs.code_blocks import ROOT

BEGIN = {"event": "begin", "title": "a run", "rounds": 2000}
ROUND = {
    **{"event": "round", "round": 1234, "rounds": 2000, "loss": 2.3014, "accuracy": 0.1234},
    **{"personal": 0.5678, "participants": 10, "seconds": 0.5},
}
ERROR = "raffed: fedavg, seed 1: the loss is nan"


def two_runs_are_shown(screen: Screen) -> None:
    """The first finishes, the second fails."""
    several = [
        Run(f"fedavg, seed {k}", RunConfig(seed=k), Path(f"out/seed-{k}"), {"method": "fedavg", "seed": k})
        for k in range(2)
    ]
    for run in several:
        screen.show({**BEGIN, "title": run.title}, run=run)
        screen.show({**ROUND, "round": 500, **run.about}, run=run)
    finished = {"folder": "out/seed-0", "accuracy": 0.5, "personalization": None}
    screen.show({"event": "finished", **several[0].about, **finished}, run=several[0])
    screen.show({"event": "failed", **several[1].about, "message": "the loss is nan"}, run=several[1])


@pytest.mark.parametrize("kind", [LineScreen, BarScreen])
def test_several_runs_end_with_a_line_each(
    kind: type[LineScreen], capsys: pytest.CaptureFixture[str]
) -> None:
    screen = kind()
    screen.overall = Overall(61)
    two_runs_are_shown(screen)
    screen.close()
    told = capsys.readouterr()
    assert "fedavg, seed 0: done  aggregation 50.0 %  personalization –" in told.out
    assert ERROR in told.out + told.err
    assert ("fedavg, seed 0: round 500/2000  loss 2.301" in told.out) == (kind is LineScreen)
    assert re.fullmatch(r"run 2 of 61, about [\d:]+ left", screen.overall.text)


def test_a_program_gets_every_event_and_a_quiet_person_folders(capsys: pytest.CaptureFixture[str]) -> None:
    with make_screen(as_json=True) as screen:
        two_runs_are_shown(screen)
        print("a library's notice")
    told = capsys.readouterr()
    events = [json.loads(line) for line in told.out.splitlines()]
    assert [(event["event"], event["method"], event["seed"]) for event in events] == [
        ("round", "fedavg", 0),
        ("round", "fedavg", 1),
        ("finished", "fedavg", 0),
        ("failed", "fedavg", 1),
    ]
    assert told.err.splitlines() == [ERROR, "a library's notice"]
    two_runs_are_shown(make_screen(as_json=False, quiet=True))
    assert capsys.readouterr() == ("out/seed-0\n", f"{ERROR}\n")


def test_warnings_of_all_processes_are_repeated_at_the_end(capsys: pytest.CaptureFixture[str]) -> None:
    log = logging.getLogger("raffed.runs.run")
    with repeated_warnings(["compare"]):
        log.warning("only %d", 1)
        log.info("no warning")
        log.error("an error is shown by itself")
        count_warning("only 1")
        count_warning("of another process")
    last = capsys.readouterr().err.splitlines()[-3:]
    assert last == ["raffed: 3 warnings:", "  only 1 (2 times)", "  of another process"]


def test_the_page_is_written_again_and_loads_itself_until_ctrl_c(
    cli: Cli, finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs, page = tmp_path / "runs", tmp_path / "out" / "report.html"
    seen: list[str] = []
    steps = iter(
        [
            lambda: seen.append("a page" if page.exists() else "no page yet"),
            lambda: shutil.copytree(finished, runs / "a"),
            lambda: seen.append(page.read_text(encoding="utf-8")),
            lambda: shutil.copytree(finished, runs / "b"),
            lambda: seen.append(page.read_text(encoding="utf-8")),
            lambda: os.kill(os.getpid(), signal.SIGINT),
        ]
    )
    monkeypatch.setattr(checking, "nap", lambda _: next(steps)())
    done = cli("report", runs, "--out", tmp_path / "out", "--watch")
    assert done.code == 0, "Ctrl-C is how it ends"
    assert "Traceback" not in done.err
    assert seen[0] == "no page yet"
    assert 'data-reload="5.0"' in seen[1]
    assert "<b>1</b> run<" in seen[1]
    assert "<b>2</b> runs<" in seen[2]
    assert page.read_text(encoding="utf-8") == seen[2].replace(' data-reload="5.0"', "", 1)
    left = sorted(path.name for path in page.parent.iterdir())
    assert left == ["curves.png", "report.html", "summary.csv", "summary.md"], "nothing half-written stays"


@pytest.mark.parametrize("width", [24, 80, 120])
def test_a_narrow_terminal_keeps_the_number_of_the_round(
    width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    screen, shown = BarScreen(), io.StringIO()
    screen.show(BEGIN)
    screen.show(ROUND)
    assert screen.bar is not None
    Console(file=shown, width=width).print(screen.bar.get_renderable())
    screen.close()
    [line] = shown.getvalue().splitlines()
    assert len(line) <= width
    assert " 1234/2000 loss" in line
    assert ("━" in line, "20 clients/s" in line) == (width >= 100, width >= 80)


def test_a_machine_that_runs_these_tests_is_healthy(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAFFED_DATA", raising=False)
    done = cli("doctor")
    assert done.code == 0
    assert "raffed can run here" in done.out
    assert "digits          usable, 1,442 train, 355 test" in done.out
    assert "set RAFFED_DATA" in done.out


def test_json_has_a_finding_a_line_and_one_for_every_data_set(cli: Cli, tmp_path: Path) -> None:
    events = cli("doctor", "--data-root", tmp_path, "--json").events
    found = {event["what"]: event["state"] for event in events}
    assert {name: found[name] for name in DATASETS} == {
        name: "ok" if name == "digits" else "absent" for name in DATASETS
    }
    assert all(event["advice"] for event in events if event["state"] in ("note", "broken"))


def test_with_a_run_it_measures_a_client_and_says_how_to_place_it(cli: Cli) -> None:
    done = cli("doctor", "--split", "iid:20", "--batch-size", "16", "--epochs", "1", "--json")
    assert done.code == 0
    found = {event["what"]: event for event in done.events}
    assert "1.00 of one by one" in found["one by one"]["found"]
    assert "of one by one" in found["stacks of 8"]["found"]
    # 1,442 training samples, 72 a client, batches of 16
    assert found["a client"]["found"].startswith("5 steps")
    assert found["fastest here"]["advice"].startswith("--execution serial")
    assert kinds(measured_on_the_page()) == kinds(list(found)[list(found).index("one by one") :])


def measured_on_the_page() -> list[str]:
    """What stands before the findings in the output that docs/running.md shows."""
    page = (ROOT / "docs" / "running.md").read_text(encoding="utf-8")
    shown = page.partition("$ raffed doctor")[2].partition("```")[0]
    return re.findall(r"^✓ (\S.*?)\s{2,}", shown, re.MULTILINE)


def kinds(names: list[str]) -> list[str]:
    return list(dict.fromkeys(re.sub(r"\d+", "N", name) for name in names))


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RAFFED_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def every(here: None) -> dict[str, str]:
    """Rows of 2 classes as every kind of data that `--dataset` takes, with clients."""
    draws = np.random.RandomState(0)
    for part, label, number in np.ndindex(3, 2, 6):
        folder = Path("pictures") / ("Training", "val", "Testing")[part] / ("cat", "dog")[label]
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(draws.randint(0, 256, (8, 8, 3)).astype(np.uint8)).save(folder / f"{number}.png")
    rows = [f"{n / 4},{('red', 'blue')[n % 3 > 0]},{'xy'[n % 2]},{'ab'[n % 3 > 1]}" for n in range(12)]
    Path("t.csv").write_text("size,tint,y,site\n" + "\n".join(rows) + "\n")
    x, y, site = np.arange(24.0).reshape(12, 2), np.arange(12) % 2, (np.arange(12) % 3 > 1).astype(int)
    np.savez("a.npz", x=x, y=y, clients=site)
    for part in ("train", "test"):
        (Path("pfl") / part).mkdir(parents=True)
        for client in range(2):
            np.savez(f"pfl/{part}/{client}.npz", data=np.array({"x": x, "y": y}, dtype=object))
    Path("mine.py").write_text(
        "import numpy as np\nimport raffed\n\n\ndef load() -> raffed.Dataset:\n"
        "    y = np.arange(12) % 2\n"
        "    return raffed.Dataset.from_arrays(np.arange(24.0).reshape(12, 2), y, clients=y, test=0.25)\n"
    )
    return {
        "csv": "csv:t.csv?label=y&client=site",
        "npz": "npz:a.npz",
        "folder": "folder:pictures",
        "pfllib": "pfllib:pfl",
        "function": "./mine.py:load",
    }


@pytest.mark.parametrize(
    ("kind", "said"),
    {
        "csv": ["training part 10 rows", "test part 2 rows", "2, in column site", "red", "numbers (value - "],
        "npz": ["training part 10 samples", "one input 2 numbers (float32), 0 to 23", "clients 2"],
        "folder": ["training part 12 images", "one input 3x8x8 pixels", "cat", "not used: val (12)"],
        "pfllib": ["training part 24 samples", "test part 24 samples", "clients 2"],
        "function": ["training part 8 samples", "test part 4 samples", "clients 2"],
    }.items(),
)
def test_every_kind_of_own_data_is_shown(cli: Cli, every: dict[str, str], kind: str, said: list[str]) -> None:
    shown = cli("datasets", every[kind])
    assert shown.code == 0, shown.err
    words = " ".join(shown.out.split())
    assert [one for one in said if one not in words] == []
    assert f"training part {len(load_dataset(every[kind]).x)} " in words
    assert "a dataset" in cli("check", every[kind]).out
