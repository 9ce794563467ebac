"""`raffed report --watch` from its first page to Ctrl-C. Each nap is an event of the test, so none waits."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from raffed.cli import checking
from tests.cli.conftest import Cli


@pytest.fixture
def naps(monkeypatch: pytest.MonkeyPatch) -> Callable[[Iterator[None]], None]:
    """naps(events) makes every nap the next step of `events`, and the last one a Ctrl-C."""

    def use(events: Iterator[None]) -> None:
        monkeypatch.setattr(
            checking, "nap", lambda _: next(events, None) or os.kill(os.getpid(), signal.SIGINT)
        )

    return use


def test_the_page_is_written_again_and_loads_itself_until_ctrl_c(
    cli: Cli, finished: Path, tmp_path: Path, naps: Callable[[Iterator[None]], None]
) -> None:
    runs, page = tmp_path / "runs", tmp_path / "out" / "report.html"
    seen: list[str] = []
    naps_left = [
        lambda: seen.append("no page yet" if not page.exists() else "a page"),
        lambda: shutil.copytree(finished, runs / "a"),
        lambda: seen.append(page.read_text(encoding="utf-8")),
        lambda: shutil.copytree(finished, runs / "b"),
        lambda: seen.append(page.read_text(encoding="utf-8")),
    ]

    def events() -> Iterator[bool]:
        for one in naps_left:
            one()
            yield True

    naps(events())
    done = cli("report", runs, "--out", tmp_path / "out", "--watch")
    assert done.code == 0, "Ctrl-C is how it ends"
    assert "Traceback" not in done.err
    assert seen[0] == "no page yet"
    assert 'data-reload="5.0"' in seen[1]
    assert "<b>1</b> run<" in seen[1]
    assert "<b>2</b> runs<" in seen[2]
    last = page.read_text(encoding="utf-8")
    assert "data-reload" not in last.split("<script>", 1)[0]
    assert last == seen[2].replace(' data-reload="5.0"', "", 1)
    assert "written again" in done.out
    assert done.err.count("waiting") == 1
    assert sorted(path.name for path in page.parent.iterdir()) == [
        "curves.png",
        "report.html",
        "summary.csv",
        "summary.md",
    ], "nothing half-written stays"


def test_a_url_cannot_be_watched(cli: Cli, tmp_path: Path) -> None:
    refused = cli("report", "s3://bucket/runs", "--out", tmp_path, "--watch")
    assert refused.code == 2
    assert "--watch needs folders of this machine" in refused.err
    assert len(refused.err.strip().splitlines()) == 1


def test_without_watch_a_page_never_loads_itself(cli: Cli, finished: Path, tmp_path: Path) -> None:
    assert cli("report", finished, "--out", tmp_path / "out").code == 0
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert "data-reload" not in page.split("<script>", 1)[0]
