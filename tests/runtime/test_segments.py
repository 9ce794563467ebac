"""A run that was resumed says by what each part of it was computed, and a resume under other conditions
says so. Another revision of its method continues and verifies nothing.
"""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path

import pytest

import raffed
from raffed.errors import RunFolderError
from raffed.methods import METHODS
from raffed.results.runfile import read_run
from raffed.runs.verify import verify
from tests.forging import edited
from tests.params import one_in


def spans(run: Path) -> list[tuple[int, int]]:
    return [(one["from"], one["to"]) for one in read_run(run)["segments"]]


@pytest.mark.parametrize(
    ("part", "name", "there"),
    one_in(
        3,
        [
            ("versions", "torch", "1.0"),
            ("versions", "raffed", "0.0.1"),
            ("hardware", "vectors", "AVX9"),
        ],
    ),
)
def test_a_resume_under_other_conditions_says_so_in_one_line_and_keeps_both(
    stopped: Path, part: str, name: str, there: str, caplog: pytest.LogCaptureFixture
) -> None:
    edited(stopped / "run.json", lambda about: about["segments"][0][part].update({name: there}))
    raffed.resume(stopped)
    first, second = read_run(stopped)["segments"]
    lines = [one.message for one in caplog.records if "resumed under other conditions" in one.message]
    assert len(lines) == 1
    assert f"{name} {there} → {second[part][name]};" in lines[0]
    assert (first[part][name], second["said"]) == (there, lines)
    assert spans(stopped) == [(1, 3), (4, 4)]


@pytest.mark.parametrize(
    ("lost", "segments"),
    [("checkpoints/round-000003", [(1, 2), (3, 4)]), ("checkpoints", [(1, 4)])],
    ids=["the last checkpoint", "all of them"],
)
def test_rounds_that_are_computed_again_belong_to_the_segment_that_did_it(
    stopped: Path, lost: str, segments: list[tuple[int, int]]
) -> None:
    shutil.rmtree(stopped / lost)
    raffed.resume(stopped)
    assert spans(stopped) == segments


def test_a_run_of_an_earlier_revision_is_refused_by_resume_and_verify(
    stopped: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any method: here one that has had a single meaning, and gets a second one."""
    assert read_run(stopped)["method_revision"] == 1
    assert verify(stopped).ok
    monkeypatch.setitem(METHODS, "scamap", dataclasses.replace(METHODS["scamap"], revision=2))
    for command in (raffed.resume, verify):
        with pytest.raises(RunFolderError, match="revision 1 of scamap, and this raffed has revision 2"):
            command(stopped)
