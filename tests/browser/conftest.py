"""One Chromium for all tests of pages, and pages of runs with made-up numbers. Nothing is trained.

Without Chromium these tests are skipped, unless RAFFED_BROWSER=required says that they must run, as in
.ci/run.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from raffed.analysis import write_report
from raffed.analysis.loading import load_runs
from raffed.analysis.report import find_items, write_loaded

from raffed.results.runfile import write_json
from tests.analysis.conftest import WriteRun
from tests.browser.chromium import Chromium, Tab, find_chromium

PROGRAMS = (
    '<img src=x onerror="window.sprung=1">',
    "</script><script>window.sprung=1</script>",
    '"><svg onload="window.sprung=1">',
    "' onmouseover='window.sprung=1' x='",
    "javascript:window.sprung=1",
    "]]><!--<iframe src=javascript:window.sprung=1>",
    "{{ 7 * 7 }}${window.sprung=1}",
)
ITEM = f"The item {PROGRAMS[0]}"
OpenPage = Callable[..., Tab]


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    program = find_chromium()
    if program is None:
        if os.environ.get("RAFFED_BROWSER") == "required":
            pytest.fail("there is no Chromium, and RAFFED_BROWSER=required; install the package chromium")
        pytest.skip("there is no Chromium; install the package chromium")
    with Chromium(program, tmp_path_factory.mktemp("profile")) as found:
        yield found


@pytest.fixture
def tab(browser: Chromium) -> Iterator[OpenPage]:
    """tab(page, width=1280, dark=False, script=True) opens a page in a tab until the end of the test."""
    opened: list[Tab] = []

    def open_page(page: Path, width: int = 1280, dark: bool = False, script: bool = True) -> Tab:
        opened.append(Tab(browser, width, dark, script))
        return opened[-1].open(page)

    yield open_page
    for one in opened:
        one.close()


def accuracies(top: float, rounds: int) -> list[float]:
    """A curve that rises to `top`."""
    return [round(top * (1 - math.exp(-3 * number / rounds)), 4) for number in range(1, rounds + 1)]


@pytest.fixture(scope="session")
def four(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of four runs. One method's name is markup."""
    folder = tmp_path_factory.mktemp("four")
    write = WriteRun(folder / "runs")
    for number, method in enumerate(("fedavg", "fedprox", "map", PROGRAMS[0])):
        curve = accuracies(0.9 - 0.1 * number, 10)
        write(f"r{number}", curve, personal=curve[::-1], method=method, classes=4)
    return write_report([folder / "runs"], folder / "out")


@pytest.fixture(scope="session")
def strangers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of runs and an item, of which every name is a program for a browser that obeys it."""
    folder = tmp_path_factory.mktemp("strangers")
    write = WriteRun(folder / "runs")
    for number, name in enumerate(PROGRAMS):
        more: dict[str, object] = {
            "title": name,
            "error": name,
            "commit": name,
            "note": name,
            "tags": [name],
            "class_names": [name] * 4,
        }
        more |= {"hardware": {"cpus": name, name: name}, "versions": {"torch": name, name: name}}
        more |= {"client_names": [name, name], "clients": 2, "execution": name, "run_id": name}
        write(
            f"{number}{name.replace('/', '∕').replace(':', '∶')}",  # the gate refuses both
            accuracies(0.9 - 0.1 * number, 10),
            personal=accuracies(0.8 - 0.1 * number, 10),
            method=name,
            split=name,
            dataset=name,
            args={name: name},
            classes=4,
            **more,
        )
    cells = [
        {"row": name, "column": name, "printed": {"method": name}, "runs": [path.name]}
        for name, path in zip(PROGRAMS, sorted((folder / "runs").iterdir()), strict=True)
    ]
    about = {
        "paper": "mpfedcon",
        "name": PROGRAMS[0],
        "title": ITEM,
        "measure": "accuracy_last",
        "scale": "full",
    }
    about |= {"unit": "", "margin": 1, "baseline": PROGRAMS[0], "note": PROGRAMS[3], "cells": cells}
    about |= {"averages": [], "left_out": [f"{PROGRAMS[0]}: {PROGRAMS[1]}"], "picture": ""}
    write_json(folder / "runs" / "item.json", about)
    runs = [folder / "runs"]
    return write_loaded(load_runs(runs), folder / "out", items=find_items(runs))


def unlike_page(folder: Path, runs: int) -> Path:
    """The page of runs that end close together. Every other one is of another partition than the rest, and
    names are so long that charts cut them.
    """
    write = WriteRun(folder / "runs")
    for number in range(runs):
        curve = accuracies(0.5 + 0.006 * number, 8)
        method, digest = f"method number {number} with a name that is cut in charts", "ab"[number % 2] * 64
        write(f"r{number}", curve, personal=curve, method=method, classes=4, partition_sha256=digest)
    return write_report([folder / "runs"], folder / "out")


@pytest.fixture(scope="session")
def unlike(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unlike_page(tmp_path_factory.mktemp("unlike"), 4)


@pytest.fixture(scope="session")
def sixty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unlike_page(tmp_path_factory.mktemp("sixty"), 60)
