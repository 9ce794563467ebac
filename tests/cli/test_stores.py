"""`raffed runs list`, and exported splits."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

import raffed
from raffed.cli import main
from raffed.cli.app import app
from raffed.errors import UsageError


def said(*words: str) -> str:
    found = CliRunner().invoke(app, list(words), catch_exceptions=False)
    assert found.exit_code == 0, found.output
    return found.output


def test_the_verb_cache_says_where_the_arrays_are(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["cache", "list"])
    assert "delete files of ~/.cache/raffed/arrays" in capsys.readouterr().err


def test_runs_are_listed_with_state_rounds_and_accuracy(tmp_path: Path) -> None:
    config = raffed.RunConfig(
        federation=raffed.Federation(rounds=2), runtime=raffed.Runtime(execution="serial"), seed=7
    )
    result = raffed.run(config, tmp_path / "deep" / "a")
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "run.json").write_text("{")
    text = said("runs", "list", str(tmp_path))
    row = next(line for line in text.splitlines() if "deep/a" in line)
    cells = ["deep/a", "fedavg", "digits", "p10c2", "7", "finished", "2/2"]
    assert row.split() == [*cells, f"{100 * result.accuracy:.1f}", "%"]
    assert "unreadable" in text
    assert "2 runs in" in text
    lines = [json.loads(line) for line in said("runs", "list", str(tmp_path), "--json").splitlines()]
    assert [line["state"] for line in lines] == ["unreadable", "finished"]
    assert lines[1]["accuracy"] == pytest.approx(result.accuracy)


def test_a_folder_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such folder"):
        said("runs", "list", str(tmp_path / "nowhere"))


def test_a_split_goes_to_pfllib_and_comes_back_as_the_same_clients(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAFFED_CACHE", str(tmp_path / "cache"))
    place = tmp_path / "out"
    text = said("splits", "p10c2", "--local-test", "0.2", "--export", f"pfllib:{place}")
    assert f"exported: {place}" in text.replace("\n", "")
    again = said("splits", "natural", "--dataset", f"pfllib:{place}")
    rows = [
        [line.split()[:3] for line in one.splitlines() if line.strip()[:1].isdigit()] for one in (text, again)
    ]
    assert rows[0] == rows[1]
    assert len(rows[0]) == 10


def test_an_export_without_a_split_is_refused() -> None:
    with pytest.raises(UsageError, match="need a split"):
        said("splits", "--export", "csv:a.csv")
