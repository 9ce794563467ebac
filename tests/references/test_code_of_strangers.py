"""A run's folder may come from a stranger, and so may what it names: nothing of it runs unasked."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

import raffed
from raffed.data.own_data import load_own
from raffed.errors import RaffedError, RunFolderError, UsageError
from raffed.methods import build_method
from raffed.models.own.factories import factory_of


@pytest.mark.parametrize(
    "name", ["os:system", "subprocess:run", "shutil:rmtree", "builtins:exec", "numpy:save"]
)
def test_no_function_of_python_or_a_library_is_called_because_a_name_says_so(name: str, lab: Path) -> None:
    with pytest.raises(UsageError):
        build_method(name, {})
    with pytest.raises(UsageError):
        factory_of(name)
    with pytest.raises(RaffedError):
        load_own(name)
    assert os.listdir(lab) == ["prox.py"]


def test_a_file_that_came_with_a_folder_is_not_executed_unasked(
    lab: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder was made under another account, and the file lies where its run.json says."""
    monkeypatch.setenv("XDG_STATE_HOME", str(lab / "theirs"))
    config = raffed.RunConfig(
        method="./prox.py:myprox",
        data=raffed.Data(split="iid:2"),
        federation=raffed.Federation(rounds=2),
        runtime=raffed.Runtime(execution="serial"),
    )
    done: list[object] = []
    raffed.run(config, "run", watch=done.append, stop=lambda: len(done) == 1)
    monkeypatch.setenv("XDG_STATE_HOME", str(lab / "mine"))
    with pytest.raises(RunFolderError, match=r"prox\.py would be executed.*--accept-changed-code"):
        raffed.resume("run")
    monkeypatch.setenv("XDG_STATE_HOME", str(lab / "theirs"))
    assert raffed.resume("run").state == "finished"
    assert json.loads(Path("run/run.json").read_text())["state"] == "finished"
