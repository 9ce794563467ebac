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

from tests.analysis.conftest import runs_into
from tests.browser.chromium import Chromium, Tab, find_chromium

HOSTILE = '<img src=x onerror="document.title=1">'
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
    write = runs_into(folder / "runs")
    for number, method in enumerate(("fedavg", "fedprox", "map", HOSTILE)):
        curve = accuracies(0.9 - 0.1 * number, 10)
        write(f"r{number}", curve, personal=curve[::-1], method=method, classes=4)
    return write_report([folder / "runs"], folder / "out")


@pytest.fixture(scope="session")
def sixty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of sixty runs that end close together. Names of methods are as long as those of papers."""
    folder = tmp_path_factory.mktemp("sixty")
    write = runs_into(folder / "runs")
    for number in range(60):
        method = f"a method with a long name, {number}" if number % 7 == 0 else f"method{number}"
        curve = accuracies(0.5 + 0.006 * number, 8)
        write(f"r{number}", curve, personal=curve, method=method, classes=4)
    return write_report([folder / "runs"], folder / "out")
