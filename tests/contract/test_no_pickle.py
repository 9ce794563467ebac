"""Nothing that is read from a path or a URL is unpickled: unpickling runs what the file says."""

from __future__ import annotations

import ast
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch

import raffed
from tests.cli.conftest import Cli, cli  # noqa: F401
from tests.tiny import digits

ROOT = Path(__file__).parents[2]
SOURCES = [
    path
    for folder in ("raffed", "analysis", "reproductions", "tune_spaces", "cluster")
    for path in (ROOT / folder).rglob("*.py")
]
UNPICKLERS = {"pickle", "cPickle", "_pickle", "dill", "cloudpickle", "joblib", "shelve", "marshal"}
HARMLESS = {"PickleBuffer"}  # a view of memory; it reads nothing
RESTRICTED = {
    # Needs the class of the error that torch.load(weights_only=True) raises
    "raffed/runtime/initial_weights.py",
    # Checks that a method equals its copy: it pickles and reads its own bytes
    "raffed/testing/methods.py",
}
# Folders of PFLlib, read only if the user has named them; tests/fuzz/test_budget.py sets a trap
BY_WORD_ONLY = ROOT / "raffed/data/importers/client_folders.py"
# The state of an author's engine: only its own process reads it, with this account's signature
SIGNED_ONLY = ROOT / "raffed/adopted/driver.py"
READERS = {"load", "read_pickle", "fromfile", "restore"}  # of torch, numpy, pandas, Tune


def imports(tree: ast.AST) -> set[str]:
    names = [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
    names += [
        node.module or ""
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and not {alias.name for alias in node.names} <= HARMLESS
    ]
    return {name.partition(".")[0] for name in names}


def calls(tree: ast.AST) -> list[tuple[str, dict[str, Any]]]:
    """(owner.name, keyword constants) of every call of one of READERS."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in READERS:
            constants = {
                word.arg: word.value.value
                for word in node.keywords
                if word.arg and isinstance(word.value, ast.Constant)
            }
            found.append((ast.unparse(node.func), constants))
    return found


@pytest.mark.more
def test_no_source_imports_a_module_that_unpickles() -> None:
    assert len(SOURCES) > 150
    users = {
        path.relative_to(ROOT).as_posix()
        for path in SOURCES
        if imports(ast.parse(path.read_text())) & UNPICKLERS
    }
    assert users == RESTRICTED


@pytest.mark.more
def test_every_call_that_could_unpickle_forbids_it_or_is_known() -> None:
    seen: dict[str, set[str]] = {}
    assert len(calls(ast.parse(BY_WORD_ONLY.read_text()))) == 1  # LEAF's reader beside it has none
    for path in SOURCES:
        for call, constants in calls(ast.parse(path.read_text())):
            owner = call.rpartition(".")[0]
            if owner in ("np", "numpy"):
                assert constants.get("allow_pickle") is (path == BY_WORD_ONLY), f"{path}: {call}"
            if owner == "torch" and path != SIGNED_ONLY:
                assert constants.get("weights_only") is True, f"{path}: {call}"
            if owner in ("np", "torch", "pd", "tune.Tuner"):
                seen.setdefault(call, set()).add(path.relative_to(ROOT).as_posix())
    assert seen == {
        "np.load": {
            "raffed/data/array_cache.py",
            "raffed/data/files.py",
            "raffed/data/importers/arrays.py",
            BY_WORD_ONLY.relative_to(ROOT).as_posix(),
        },
        "torch.load": {
            "raffed/models/own/factories.py",
            "raffed/runtime/initial_weights.py",
            SIGNED_ONLY.relative_to(ROOT).as_posix(),
        },
    }


def test_resuming_verifying_and_reporting_unpickle_nothing(
    cli: Cli,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = digits("iid:3", 4, local_test=0.2, method="scamap", federation=raffed.Federation(rounds=3))
    done: list[object] = []
    raffed.run(config, tmp_path / "run", watch=done.append, stop=lambda: len(done) == 2)

    def refuse(*given: object, **named: object) -> None:
        raise AssertionError("something is unpickled")

    for name in ("load", "loads", "Unpickler"):
        monkeypatch.setattr(pickle, name, refuse)
    monkeypatch.setattr(torch, "load", refuse)
    again = raffed.Data(split=f"file:{tmp_path / 'run' / 'partition.npz'}")
    assert raffed.resume(tmp_path / "run").state == "finished"
    assert (
        raffed.run(raffed.RunConfig(data=again, federation=config.federation, runtime=config.runtime)).state
        == "finished"
    )
    assert cli("verify", tmp_path / "run").code == 0
    assert cli("report", tmp_path / "run", "--out", tmp_path / "report").code == 0
