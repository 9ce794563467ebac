"""The doctor looks at what is there, and says what to do."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from raffed.data.catalogue import DATASETS
from tests.cli.conftest import Cli
from tests.docs.code_blocks import ROOT


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
