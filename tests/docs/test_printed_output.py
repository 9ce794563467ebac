"""The table of a search that docs/tuning.md shows has the shape of what its command prints today.

Scores and times are those of one machine and are not compared. Everything else is: titles, rows, and what was
tried and chosen. `--plan` lists the trials without training.
"""

from __future__ import annotations

import re
import shlex
from collections import defaultdict
from pathlib import Path

from raffed.analysis.sweeps import Sweep, tuning_table

from tests.cli.conftest import Cli, cli
from tests.docs.code_blocks import BLOCK, ROOT

__all__ = ["cli"]  # a fixture


def columns(line: str) -> list[str]:
    return re.split(r"\s{2,}", line.strip())


def test_the_table_of_a_search_has_today_s_titles_and_the_trials_of_its_command(
    tmp_path: Path, cli: Cli
) -> None:
    blocks = BLOCK.findall((ROOT / "docs" / "tuning.md").read_text(encoding="utf-8"))
    command = next(text for language, text in blocks if language == "sh" and text.startswith("raffed tune"))
    table = next(text for language, text in blocks if language == "text" and text.startswith("Method  "))
    title, _, *lines = table.splitlines()
    words = shlex.split(command.splitlines()[0])
    titles = list(tuning_table(Sweep(tmp_path, {"request": {"select": "global"}, "methods": {}})).titles)
    assert columns(title) == titles
    done = cli(*words[1:], "--plan", "--json")
    assert done.code == 0, done.err
    settings = defaultdict[str, list[str]](list)
    for row in done.events[0]["rows"]:
        settings[row["method"]].append(row["setting"])
    shown = [dict(zip(titles, columns(line), strict=True)) for line in lines]
    assert [row["Method"] for row in shown] == list(settings)
    rounds = int(words[words.index("--rounds") + 1])
    for row in shown:
        tried = settings[row["Method"]]
        assert row["Trials"] == f"{len(tried)}/{len(tried)}"
        assert int(row["Rounds to choose"]) == len(tried) * rounds
        assert row["Chosen"].replace(" ", "") in tried
