"""A run.json, a sweep.json or a TOML file may come from a stranger. What it names is not executed unasked."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import raffed
from raffed.errors import RunFolderError
from raffed.own import gate
from raffed.results.runfile import read_run
from raffed.runs.folder import run_config
from raffed.runtime.ray import session
from raffed.search.folder import stored_request
from raffed.search.request import Request
from tests.cli.conftest import QUICK, Cli, cli
from tests.forging import edited, forget_references
from tests.params import one_in
from tests.tiny import digits

__all__ = ["cli"]

STRANGE = """
from pathlib import Path
Path({trap!r}).touch()
import raffed

def method(mu: float = 0.1) -> raffed.Method: ...
def net(num_classes=10): ...
def split(labels, clients=2): ...
def pick(round, sizes, count, generator) -> "list[int]": ...
def ce(logits, labels): ...
def rate(done: int, total: int) -> float: ...
def right(scores, labels): ...
def data() -> raffed.Dataset: ...
"""
RATE = "def rate(done: int, total: int) -> float:\n    return {rate}\n"
ROLES = {
    "method": "method",
    "model.name": "net",
    "data.split": "split",
    "federation.selection": "pick",
    "loss": "ce",
    "local.schedule": "rate",
    "federation.metrics": "right",
    "data.dataset": "data",
}
HOMES = ("./strange.py", "strange", "pkg.strange", "../beside/strange.py")
LIBRARIES = ("antigravity:geohash", "idlelib.idle:idlelib", "torch.fx.graph_module:reduce_graph_module")
COMMANDS = {
    "resume": ["resume", "run"],
    "verify": ["verify", "run"],
    "export": ["export", "finished", "--out", "weights.pt"],
    "fork": ["fork", "run", "--out", "forked", "--lr", "0.5"],
    "extend": ["extend", "run", "--rounds", "9"],
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a plain run of two rounds that was stopped after the first, and one that is finished."""
    folder = tmp_path_factory.mktemp("made")
    done: list[object] = []
    config = replace(
        digits("iid:2", local=raffed.Local(epochs=0.1)),
        runtime=raffed.Runtime(execution="serial", checkpoint_every=1),
    )
    raffed.run(config, folder / "run", watch=done.append, stop=lambda: len(done) == 1)
    raffed.run(config, folder / "finished")
    return folder


@pytest.fixture
def here(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The current folder, which came from a stranger; this process knows nothing of earlier tests."""
    folder = tmp_path / "here"
    shutil.copytree(made, folder)
    (folder / "pkg").mkdir()
    (tmp_path / "beside").mkdir()
    text = STRANGE.format(trap=str(tmp_path / "sprung"))
    for place in (folder, folder / "pkg", folder / "run", tmp_path / "beside"):
        (place / "strange.py").write_text(text)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(sys, "path", list(sys.path))
    unload(*strange_modules())
    yield folder
    unload(*strange_modules())


def strange_modules() -> set[str]:
    return {name for name in sys.modules if "strange" in name and not name.startswith("tests.")}


def unload(*names: str) -> None:
    """Forget what was imported under names with one of these words, as a new process does."""
    for name in [one for one in sys.modules if one in names or one.startswith("raffed_file_")]:
        del sys.modules[name]


def name_code(
    run: Path, field: str, reference: str, records: list[dict[str, Any]] | None = None, state: str = "stopped"
) -> None:
    """Let run.json name code, as its own hashes have it."""
    config = raffed.RunConfig.from_dict(read_run(run)["config"]).changed({field: reference})
    forget_references()

    def change(about: dict[str, Any]) -> None:
        about["config"], about["identity"] = config.as_dict(), config.identity()
        about.update({} if records is None else {"code": records})

    edited(run / "run.json", change)


def run_of(command: str) -> str:
    return "finished" if command == "export" else "run"


def record(role: str, reference: str, file: Path, root: str) -> dict[str, Any]:
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    return {
        "role": role,
        "reference": reference,
        "package": "",
        "file": f"{root}/strange.py",
        "root": root,
        "files": {"strange.py": digest},
    }


@pytest.mark.parametrize("field", one_in(3, ROLES))
@pytest.mark.parametrize("command", COMMANDS)
def test_no_command_executes_code_that_a_run_names_without_a_record(
    here: Path, cli: Cli, tmp_path: Path, field: str, command: str
) -> None:
    home = HOMES[(list(ROLES).index(field) + list(COMMANDS).index(command)) % len(HOMES)]
    name_code(here / run_of(command), field, f"{home}:{ROLES[field]}")
    done = cli(*COMMANDS[command])
    assert done.code != 0 or (command, field) == ("export", "data.dataset")  # which needs no data
    assert not (tmp_path / "sprung").exists()
    assert not strange_modules()
    assert not (here / "forked").exists()


@pytest.mark.parametrize("root", one_in(2, ["/HERE", ".", "../pkg", "/BESIDE"]))
@pytest.mark.parametrize("field", ["method", "model.name", "federation.metrics"])
def test_a_record_is_no_permission(here: Path, cli: Cli, tmp_path: Path, field: str, root: str) -> None:
    role = {"model.name": "model", "federation.metrics": "metric ./strange.py:right"}.get(field, field)
    reference = f"./strange.py:{ROLES[field]}"
    place = root.replace("/HERE", str(here)).replace("/BESIDE", str(tmp_path / "beside"))
    for run in ("run", "finished"):
        name_code(here / run, field, reference, [record(role, reference, here / "strange.py", place)])
    for words in COMMANDS.values():
        forget_references()
        path = list(sys.path)
        done = cli(*words)
        assert done.code == 2, done.err
        assert sys.path == path
    assert not (tmp_path / "sprung").exists()


@pytest.mark.parametrize("reference", one_in(3, LIBRARIES))
@pytest.mark.parametrize(
    "words", one_in(4, [["run", "file.toml"], *COMMANDS.values()]), ids=lambda words: words[0]
)
def test_no_function_of_a_library_is_imported_because_a_file_names_it(
    here: Path, cli: Cli, reference: str, words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its annotation is no permission, and importing a module executes it. Nor are its files read."""
    module = reference.partition(":")[0]
    known = module in sys.modules
    monkeypatch.setattr(gate, "hashes_at", lambda place: pytest.fail("all files of a library are read"))
    name_code(here / run_of(words[0]), "model.name", reference)
    (here / "file.toml").write_text(f'[model]\nname = "{reference}"\n[model.args]\n_code = "x = 1"\n')
    done = cli(*words, *(["--out", "new", "--execution", "serial"] if words[0] == "run" else []))
    assert done.code == 2
    assert done.err.count("\n") == 1
    assert (module in sys.modules) == known
    assert "--trust-code" in done.err or "no record of its code" in done.err


@pytest.mark.more
@pytest.mark.parametrize("more", [[], ["--plan"]])
@pytest.mark.parametrize("field", ROLES)
def test_a_sweep_without_trials_executes_nothing(
    here: Path, cli: Cli, tmp_path: Path, field: str, more: list[str]
) -> None:
    shutil.rmtree(here / "run")
    reference = f"./strange.py:{ROLES[field]}"
    data = raffed.Data(split="iid:2", validation=0.2)
    config = raffed.RunConfig(data=data).changed({} if field == "method" else {field: reference})
    methods = [reference] if field == "method" else ["fedavg"]
    request = Request(config, tuple(methods), grid={"local.lr": [0.1, 0.2]}).as_dict()
    about = {"schema": 1, "request": request, "state": "running", "methods": {}}
    (here / "sweep.json").write_text(json.dumps(about))
    forget_references()
    done = cli("tune", "--resume", *more, "--out", ".")
    refused = done.code == 2 and "a file names it and not you" in done.err
    assert refused or (more and done.code == 0), done.err  # a plan may be made without the code
    assert not (tmp_path / "sprung").exists()


def test_trusted_code_is_listed_with_what_it_imports_and_runs_without_its_neighbours(
    here: Path, cli: Cli, tmp_path: Path
) -> None:
    """Trust is for these files: later imports do not come from their folder. An edit is asked for again."""
    (here / "helper.py").write_text("FACTOR = 1.0\n")
    (here / "bottleneck.py").write_text(f"open({str(tmp_path / 'sprung')!r}, 'w')\n")
    own = here / "own.py"
    own.write_text(f"from helper import FACTOR\n\n{RATE.format(rate='FACTOR')}")
    files = {one: hashlib.sha256((here / one).read_bytes()).hexdigest() for one in ("own.py", "helper.py")}
    config = raffed.RunConfig.from_dict(read_run(here / "run")["config"])
    done: list[object] = []
    shutil.rmtree(here / "run")
    config = config.changed({"local.schedule": "./own.py:rate"})
    raffed.run(config, here / "run", watch=done.append, stop=lambda: len(done) == 1)
    (tmp_path / "state" / "raffed" / "own-code").unlink()
    forget_references()
    unload("own", "helper")
    refused = cli("resume", "run")
    assert refused.code == 2
    for name, digest in files.items():
        assert f"{name} ({digest[:12]})" in refused.err
    forget_references()
    path = sys.path[:] = [one for one in sys.path if one != str(here)]
    resumed = cli("resume", "run", "--trust-code", "--quiet")
    assert resumed.code == 0, resumed.err
    assert all(f"{name} ({digest[:12]})" in resumed.err for name, digest in files.items())
    assert sys.path == path
    with pytest.raises(ImportError):
        __import__("bottleneck")
    forget_references()
    assert cli("verify", "run").code == 0  # this account trusts it from now on
    own.write_text(own.read_text() + "# edited\n")
    digest = hashlib.sha256(own.read_bytes()).hexdigest()
    edited(here / "run" / "run.json", lambda found: found["code"][0]["files"].update({"own.py": digest}))
    forget_references()
    assert cli("verify", "run").code == 2


@pytest.mark.parametrize(
    "words",
    [
        ["resume", "strange.py:method"],
        ["verify", "strange.py:method/"],
        ["fork", "run", "--out", "forked", "--lr", "0.5", "--data-root=strange.py:method"],
    ],
    ids=lambda words: words[0],
)
def test_the_name_of_a_folder_is_no_word_for_code(
    here: Path, cli: Cli, tmp_path: Path, words: list[str]
) -> None:
    """A shell completes such a name, or puts it in place of a star, and nobody has typed it."""
    name_code(here / "run", "method", "strange.py:method")
    shutil.copytree(here / "run", here / "strange.py:method")
    assert cli(*words).code != 0
    assert not (tmp_path / "sprung").exists()


def test_what_is_typed_or_stands_in_a_toml_file_of_the_user_s_own_runs(here: Path, cli: Cli) -> None:
    (here / "own.py").write_text(RATE.format(rate=1.0))
    said = ["--rounds", 1, *QUICK, "--quiet"]
    assert cli("run", "--schedule", "./own.py:rate", *said, "--out", "typed").code == 0
    (here / "own.py").write_text(RATE.format(rate=0.5))
    (here / "file.toml").write_text('[local]\nschedule = "./own.py:rate"\n')
    forget_references()
    assert cli("run", "file.toml", *said, "--out", "file").code == 0


def test_a_plain_run_needs_neither_record_nor_trust(here: Path, cli: Cli) -> None:
    assert cli("verify", "run").code == 0
    assert cli("resume", "run", "--quiet").code == 0


def test_a_folder_is_no_word_for_a_cluster_or_a_download(here: Path) -> None:
    def change(about: dict[str, Any]) -> None:
        about["config"]["data"]["download"] = True
        about["config"]["runtime"]["address"] = "auto"

    edited(here / "run" / "run.json", change)
    config = run_config(here / "run")
    assert (config.data.download, config.runtime.address) == (False, None)
    base = {"data": {"validation": 0.2}, "runtime": {"address": "auto"}}
    request = {"base": base, "methods": ["fedavg"], "protocol": "validation", "select": "global"}
    about = {"schema": 1, "request": request, "state": "running", "methods": {}}
    (here / "sweep.json").write_text(json.dumps(about))
    with pytest.raises(RunFolderError, match="does not write there"):
        stored_request(here)


def test_a_note_of_another_user_names_no_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    note = tmp_path / "ray_current_cluster"
    note.write_text("6.6.6.6:6379")
    assert session.is_trusted(str(note))
    monkeypatch.setattr(os, "getuid", lambda: 12345)  # the note is then another user's, or root's
    assert session.is_trusted(str(note)) == (note.stat().st_uid == 0)
    assert not session.is_trusted(str(tmp_path / "missing"))


@pytest.mark.parametrize(
    "words",
    [["verify", "run"], ["resume", "run", "--execution", "serial"], ["report", "run"], ["runs", "list", "."]],
    ids=" ".join,
)
def test_no_escape_sequence_of_a_folder_reaches_the_terminal(
    here: Path, cli: Cli, words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Versions, hardware, commits, names and warnings of a run.json are texts that anybody wrote."""
    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", [])  # pytest's; Python itself shows warnings, as in a new process
    odd = "9\x1b]0;owned\x07\x9b31m"

    def change(about: dict[str, Any]) -> None:
        for one in (about, *about["segments"]):
            one["versions"] = {name: text + odd for name, text in one["versions"].items()}
            one["hardware"] = {**one["hardware"], "processor": odd}
        about["segments"][0]["said"] = [f"said {odd}"]
        about["commit"], about["error"] = odd, odd

    edited(here / "run" / "run.json", change)
    done = cli(*words)
    for letter in "\x1b\x07\x9b":
        assert letter not in done.out + done.err
