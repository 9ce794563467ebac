"""A run's folder may come from a stranger, and so may what it names: nothing of it runs unasked."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

import raffed
from raffed.core.training.rates import schedule_of
from raffed.data.own_data import load_own
from raffed.errors import RaffedError, RunFolderError, UsageError
from raffed.methods import build_method
from raffed.models.own.factories import factory_of
from raffed.runtime.own_selection import own_selection
from tests.cli.conftest import Cli
from tests.forging import forget_references


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
    with pytest.raises(UsageError):
        own_selection(raffed.RunConfig(federation=raffed.Federation(selection=name)))
    with pytest.raises(UsageError):
        schedule_of(raffed.Local(schedule=name))
    assert os.listdir(lab) == ["prox.py"]


STRANGE = """
open("executed", "w").close()

def halves(labels, clients=2):
    return [range(0, 100), range(100, 200)]

def ce(logits, labels):
    return -logits.log_softmax(-1).gather(-1, labels[:, None])[:, 0]

def right(scores, labels):
    return (scores.argmax(-1) == labels).float().mean()
"""


@pytest.mark.parametrize(
    "changes",
    [
        {"data.split": "./strange.py:halves"},
        {"loss": "./strange.py:ce"},
        {"federation.metrics": "./strange.py:right"},
    ],
    ids=str,
)
def test_no_split_loss_or_metric_that_came_with_a_folder_is_executed_unasked(
    lab: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch, changes: dict[str, str]
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(lab / "theirs"))
    (lab / "strange.py").write_text(STRANGE, encoding="utf-8")
    config = raffed.RunConfig(
        data=raffed.Data(split="iid:2"),
        federation=raffed.Federation(rounds=2),
        local=raffed.Local(epochs=0.1),
        runtime=raffed.Runtime(execution="serial"),
    ).changed(changes)
    done: list[object] = []
    raffed.run(config, "run", watch=done.append, stop=lambda: len(done) == 1)
    monkeypatch.setenv("XDG_STATE_HOME", str(lab / "mine"))
    forget(lab)
    for command in ("resume", "verify"):
        refused = cli(command, "run")
        assert refused.code == 2
        assert "strange.py would be executed" in refused.err
    assert cli("report", "run", "--out", "report").code == 0
    assert not (lab / "executed").exists()


NETWORK = """
import torch

class Strange(torch.nn.Sequential):
    def __init__(self, num_classes=10):
        open("executed", "w").close()
        super().__init__(torch.nn.Flatten(), torch.nn.Linear(64, num_classes))
"""


def test_no_network_that_came_with_a_folder_is_executed_unasked_for_its_weights(
    lab: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(lab / "theirs"))
    (lab / "strange.py").write_text(NETWORK, encoding="utf-8")
    config = raffed.RunConfig(
        data=raffed.Data(split="iid:2"),
        model=raffed.Model("./strange.py:Strange"),
        federation=raffed.Federation(rounds=1),
        local=raffed.Local(epochs=0.1),
        runtime=raffed.Runtime(execution="serial"),
    )
    raffed.run(config, "run")
    monkeypatch.setenv("XDG_STATE_HOME", str(lab / "mine"))
    forget(lab)
    with pytest.raises(RunFolderError, match=r"strange\.py would be executed"):
        raffed.load_model("run")
    refused = cli("export", "run", "--out", "model.pt")
    assert (refused.code, "strange.py would be executed" in refused.err) == (2, True)
    assert not (lab / "executed").exists()
    assert cli("export", "run", "--out", "model.pt", "--trust-code").code == 0
    assert (lab / "model.pt").exists()


def forget(folder: Path) -> None:
    """Forget what was imported from strange.py and who has named it, as another process would not know it."""
    forget_references()
    (folder / "executed").unlink(missing_ok=True)
    for name in [
        name for name, one in sys.modules.items() if "strange.py" in str(getattr(one, "__file__", ""))
    ]:
        del sys.modules[name]


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
    forget(lab)
    with pytest.raises(RunFolderError, match=r"prox\.py would be executed.*--trust-code"):
        raffed.resume("run")
    monkeypatch.setenv("XDG_STATE_HOME", str(lab / "theirs"))
    assert raffed.resume("run").state == "finished"
    assert json.loads(Path("run/run.json").read_text())["state"] == "finished"
