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


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=pytest.mark.more if n in OWN_RECORDS else pytest.mark.slow) for n in METHODS],
)
def test_a_process_of_its_own_reads_the_states_that_another_has_written(name: str, tmp_path: Path) -> None:
    """Stop a run after two of three rounds in this process, and go on with it in others."""
    method, run, begun = build_method(name), tmp_path / "run", []
    config = replace(small(name, 3, checkpoint_every=1), args=SHORT.get(name, {}))
    raffed.run(config, run, watch=begun.append, stop=lambda: len(begun) == 2)
    commands = [
        ["resume", run, "--quiet"],
        ["verify", run, "--rounds", 1],
        ["fork", run, "--at", 2, "--rounds", 4, "--out", tmp_path / "fork", "--quiet"],
    ]
    if method.has_global or method.personal is None or not method.personal.predicts:
        client = [] if method.has_global else ["--client", 1]
        commands.append(["export", run, "--out", tmp_path / "weights.pt", *client])
    if name == "scamap" or name not in OWN_RECORDS:  # those that read rows and no states
        commands += [
            ["bundle", run, "--out", tmp_path / "run.zip"],
            ["replay", tmp_path / "run.zip", "--out", tmp_path / "again", "--rounds", 1],
            ["report", run, "--out", tmp_path / "report"],
            ["runs", "list", tmp_path],
        ]
    for words in [*commands, ["extend", run, "--rounds", 4, "--quiet"]]:
        done = shell(*words)
        by_its_nature = words[0] == "extend" and "depend on the total number of rounds" in done.stderr
        assert done.returncode == 0 or by_its_nature, f"{words[0]}: {done.stderr}"
