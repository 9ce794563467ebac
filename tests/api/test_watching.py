"""`raffed report --watch` with a clock of the test: every wait is one event in the life of the runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from raffed.cli.checking import repeat, snapshot


def run_file(folder: Path, text: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "run.json").write_text(text)


def writings(place: Path, events: list[Callable[[], object]]) -> list[int]:
    """The numbers of the waits after which `repeat` wrote, where wait number i is the i-th event."""
    found: list[int] = []
    waits = iter(events)
    waited = 0

    def wait() -> None:
        nonlocal waited
        next(waits)()
        waited += 1

    repeat(lambda: found.append(waited), lambda: snapshot([place]), wait, lambda: waited == len(events))
    return found


def test_it_writes_at_once_and_then_after_changes_alone(tmp_path: Path) -> None:
    run_file(tmp_path / "a", "1")
    part = tmp_path / "a" / "metrics" / "part-1-1.parquet"

    def rows() -> None:
        part.parent.mkdir()
        part.write_bytes(b"rows")

    events: list[Callable[[], object]] = [
        lambda: None,
        lambda: run_file(tmp_path / "b", "a new run"),
        lambda: None,
        rows,
        lambda: run_file(tmp_path / "a", "another length"),
        part.unlink,
        lambda: None,
    ]
    assert writings(tmp_path, events) == [0, 2, 4, 5, 6]


def test_what_no_report_reads_is_no_change(tmp_path: Path) -> None:
    run_file(tmp_path / "a", "1")

    def others() -> None:
        for name in (
            "report.html",
            "curves.png",
            "run.log",
            "metrics/.part-2.parquet",
            "checkpoints/run.json",
        ):
            file = tmp_path / "a" / name
            file.parent.mkdir(exist_ok=True)
            file.write_text("x")

    assert writings(tmp_path, [others, lambda: None]) == [0]


def test_a_change_during_a_writing_is_seen_at_the_next_look(tmp_path: Path) -> None:
    run_file(tmp_path / "a", "1")
    count = 0

    def write() -> None:
        nonlocal count
        count += 1
        if count == 1:
            run_file(tmp_path / "a", "it went on meanwhile")

    waits = iter(range(3))
    left = [3]

    def wait() -> None:
        left[0] -= next(waits) >= 0

    repeat(write, lambda: snapshot([tmp_path]), wait, lambda: not left[0])
    assert count == 2


def test_a_folder_that_is_not_there_yet_is_an_empty_one(tmp_path: Path) -> None:
    assert snapshot([tmp_path / "later"]) == frozenset()
