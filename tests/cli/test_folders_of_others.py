"""Every command that reads a run's folder, each in a process that has made no method before.

The folder was written by another process. So a command that relies on what something else happened to import,
such as the classes of the records in a checkpoint, fails here.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import raffed
from raffed.methods import METHODS, build_method
from tests.cli.conftest import shell
from tests.runtime.conftest import small
from tests.tiny import SHORT

# Server, clients, or both keep records of classes in the method's own module
OWN_RECORDS = ("ccvr", "creff", "fedavgm", "feddbe", "scaffold", "scamap")


@pytest.mark.more
@pytest.mark.parametrize("name", OWN_RECORDS)
def test_a_process_of_its_own_reads_the_states_that_another_has_written(name: str, tmp_path: Path) -> None:
    read_by_each_command(name, tmp_path, reads_rows=name == "scamap")


@pytest.mark.slow
@pytest.mark.parametrize("name", [one for one in METHODS if one not in OWN_RECORDS])
def test_every_methods_folder_is_read_by_every_command(name: str, tmp_path: Path) -> None:
    read_by_each_command(name, tmp_path, reads_rows=True)


def read_by_each_command(name: str, place: Path, *, reads_rows: bool) -> None:
    """Stop a run after two of three rounds in this process, and go on with it in others.

    `reads_rows` asks also for the commands that read rows and no states.
    """
    method, run, begun = build_method(name), place / "run", []
    config = replace(small(name, 3, checkpoint_every=1), args=SHORT.get(name, {}))
    raffed.run(config, run, watch=begun.append, stop=lambda: len(begun) == 2)
    export = ["export", run, "--out", place / "weights.pt"]
    commands = [
        ["resume", run, "--quiet"],
        ["verify", run, "--rounds", 1],
        ["fork", run, "--at", 2, "--rounds", 4, "--out", place / "fork", "--quiet"],
    ]
    if method.has_global:
        commands.append(export)
    elif method.personal is None or not method.personal.predicts:
        commands.append([*export, "--client", 1])
    if reads_rows:
        commands += [
            ["bundle", run, "--out", place / "run.zip"],
            ["replay", place / "run.zip", "--out", place / "again", "--rounds", 1],
            ["report", run, "--out", place / "report"],
            ["runs", "list", place],
        ]
    for words in [*commands, ["extend", run, "--rounds", 4, "--quiet"]]:
        done = shell(*words)
        by_its_nature = words[0] == "extend" and "depend on the total number of rounds" in done.stderr
        assert done.returncode == 0 or by_its_nature, f"{words[0]}: {done.stderr}"
