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
    left = sorted(path.name for path in page.parent.iterdir())
    assert left == ["curves.png", "report.html", "summary.csv", "summary.md"], "nothing half-written stays"


def test_a_url_cannot_be_watched(cli: Cli, tmp_path: Path) -> None:
    refused = cli("report", "s3://bucket/runs", "--out", tmp_path, "--watch")
    assert refused.code == 2
    assert "--watch needs folders of this machine" in refused.err
    assert len(refused.err.strip().splitlines()) == 1


def test_what_no_report_reads_is_no_change_and_a_folder_that_is_not_there_yet_is_an_empty_one(
    tmp_path: Path,
) -> None:
    run = tmp_path / "a"
    for name in ("run.json", "metrics/part-1-1.parquet"):
        (run / name).parent.mkdir(parents=True, exist_ok=True)
        before = checking.snapshot([tmp_path])
        (run / name).write_text("x")
        assert checking.snapshot([tmp_path]) != before
    before = checking.snapshot([tmp_path])
    for name in ("report.html", "curves.png", "run.log", "metrics/.part-2.parquet", "checkpoints/run.json"):
        (run / name).parent.mkdir(exist_ok=True)
        (run / name).write_text("x")
    assert checking.snapshot([tmp_path]) == before
    assert checking.snapshot([tmp_path / "later"]) == frozenset()


def test_a_change_during_a_writing_is_seen_at_the_next_look(tmp_path: Path) -> None:
    seen: list[int] = []

    def write() -> None:
        seen.append(len(seen))
        if len(seen) == 1:
            (tmp_path / "run.json").write_text("it went on meanwhile")

    stopped = iter([False, False, False, True])
    look = lambda: checking.snapshot([tmp_path])  # noqa: E731
    checking.repeat(write, look, lambda: None, lambda: next(stopped))
    assert seen == [0, 1]
