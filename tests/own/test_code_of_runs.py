"""run.json records own code; resume and verify refuse other code, and go on with it only if told to."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from raffed.results.runfile import folder_name, read_run, write_json
from raffed.results.sweep_file import read_sweep
from tests.cli.conftest import QUICK, Cli, contents, shell
from tests.warm import python

SAID = ["--method", "./prox.py:myprox", "--rounds", 4, "--checkpoint-every", 2, *QUICK]
STOP = """
import sys, raffed
raffed.run(raffed.RunConfig(method="./prox.py:myprox", data=raffed.Data(split="p4c5"),
    federation=raffed.Federation(4), local=raffed.Local(epochs=1),
    runtime=raffed.Runtime(execution="serial", checkpoint_every=1)),
    out="run", watch=lambda event: done.append(event), stop=lambda: len(done) >= 2)
"""


def changed(source: Path, text: str = "EDITED = True\n") -> tuple[str, str]:
    before = source.read_bytes()
    source.write_bytes(before + text.encode())
    return hashlib.sha256(before).hexdigest(), hashlib.sha256(before + text.encode()).hexdigest()


@pytest.fixture
def stopped(lab: Path) -> Path:
    """A run of the own method that was stopped after 2 of 4 rounds, in a process of its own."""
    made = python(["-c", "done = []\n" + STOP], cwd=lab)
    assert made.returncode == 0, made.stderr
    return lab / "run"


def test_run_json_names_the_code_and_the_hashes_of_its_files(lab: Path, cli: Cli) -> None:
    (lab / "prox.py").write_text("import extra\n" + (lab / "prox.py").read_text(encoding="utf-8"), "utf-8")
    (lab / "extra.py").write_text("ONE = 1\n", encoding="utf-8")
    assert cli("run", *SAID, "--rounds", 1, "--quiet", "--out", "run").code == 0
    (code,) = read_run(lab / "run")["code"]
    files = {name: hashlib.sha256((lab / name).read_bytes()).hexdigest() for name in ("prox.py", "extra.py")}
    place = {"package": "", "file": str(lab / "prox.py"), "root": str(lab), "files": files}
    assert code == {"role": "method", "reference": "./prox.py:myprox", **place}
    assert cli("run --rounds 1 --quiet --out plain", *QUICK).code == 0
    assert "code" not in read_run(lab / "plain")


def test_client_states_are_named_by_the_reference_as_typed(stopped: Path) -> None:
    files = list(stopped.rglob("vaults/*.safetensors"))
    assert files
    assert all(b"./prox.py:Rounds" in one.read_bytes() for one in files)
    assert not any(b"raffed_file_" in one.read_bytes() for one in files)


@pytest.mark.more
def test_a_run_is_resumed_from_another_folder_to_the_same_bits(stopped: Path, tmp_path: Path) -> None:
    words = ["run", *SAID, "--checkpoint-every", 1, "--quiet", "--out", tmp_path / "whole"]
    whole = shell(*words, cwd=stopped.parent)
    assert whole.returncode == 0, whole.stderr
    (tmp_path / "elsewhere").mkdir()
    done = shell("resume", stopped, "--quiet", cwd=tmp_path / "elsewhere", fresh=True)
    assert done.returncode == 0, done.stderr
    assert read_run(stopped)["hashes"] == read_run(tmp_path / "whole")["hashes"]
    assert shell("verify", stopped, cwd=tmp_path / "elsewhere").returncode == 0


@pytest.mark.parametrize("command", ["resume", "verify"])
def test_changed_code_is_refused_by_its_file_before_it_runs(stopped: Path, cli: Cli, command: str) -> None:
    changed(stopped.parent / "prox.py", "raise SystemExit(7)\n")
    done = cli(command, stopped)
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert "prox.py has changed" in done.err
    assert "--accept-changed-code" in done.err


def test_accepted_code_is_recorded_with_both_hashes_and_verify_takes_it(stopped: Path) -> None:
    before, now = changed(stopped.parent / "prox.py")
    done = shell("resume", stopped, "--quiet", "--accept-changed-code", cwd=stopped.parent)
    assert done.returncode == 0, done.stderr
    about = read_run(stopped)
    assert about["segments"][-1]["accepted"] == {"prox.py": [before, now]}
    assert about["code"][0]["files"]["prox.py"] == now
    assert f"prox.py {before[:8]} → {now[:8]}" in " ".join(about["segments"][-1]["said"])
    assert shell("verify", stopped, cwd=stopped.parent).returncode == 0


@pytest.mark.more
@pytest.mark.parametrize("command", ["fork", "extend"])
def test_code_accepted_by_a_fork_or_an_extension_is_recorded(lab: Path, cli: Cli, command: str) -> None:
    said = ["--method", "./prox.py:myprox", "--rounds", 2, "--checkpoint-every", 1, *QUICK]
    assert cli("run", *said, "--quiet", "--out", "run").code == 0
    before, now = changed(lab / "prox.py")
    asked = ["fork", "run", "--at", 1, "--out", "other"] if command == "fork" else ["extend", "run"]
    asked += ["--rounds", 3, "--quiet"]
    refused = cli(*asked)
    assert (refused.code, "prox.py has changed" in refused.err) == (2, True)
    done = cli(*asked, "--accept-changed-code")
    assert done.code == 0, done.err
    about = read_run(lab / ("other" if command == "fork" else "run"))
    assert about["code"][0]["files"]["prox.py"] == now
    assert about["segments"][-1]["accepted"] == {"prox.py": [before, now]}


def test_missing_code_is_refused_with_what_and_where_it_was(stopped: Path, cli: Cli) -> None:
    (stopped.parent / "prox.py").unlink()
    done = cli("resume", stopped)
    assert done.code == 2
    assert "./prox.py:myprox" in done.err
    assert str(stopped.parent / "prox.py") in done.err


def test_an_error_in_the_user_s_code_names_its_file_and_line_first(lab: Path, cli: Cli) -> None:
    source = (lab / "prox.py").read_text(encoding="utf-8").replace("return self.mu / 2", "return nowhere / 2")
    (lab / "prox.py").write_text(source, encoding="utf-8")
    line = source[: source.index("nowhere")].count("\n") + 1
    done = cli("run", *SAID, "--out", "run")
    assert done.code == 1
    assert f"{lab / 'prox.py'}:{line}: NameError: name 'nowhere' is not defined" in done.err
    assert "Traceback" not in done.err
    about = read_run(lab / "run")
    assert about["state"] == "failed"
    (lab / "prox.py").write_text(source.replace("nowhere", "self.mu"), encoding="utf-8")
    again = shell("resume", "run", "--accept-changed-code", "--quiet", cwd=lab)
    assert again.returncode == 0, again.stderr
    assert read_run(lab / "run")["state"] == "finished"


@pytest.mark.more
def test_compare_runs_own_methods_beside_raffed_s_in_folders_of_safe_names(lab: Path, cli: Cli) -> None:
    names = ["fedavg", "./prox.py:myprox", "./prox.py:plain"]
    asked = [word for name in names for word in ("--method", name)]
    said = ["--rounds", 1, "--quiet", *QUICK, "--set", "./prox.py:myprox.mu=0.0"]
    done = cli("compare", *asked, *said, "--out", "both")
    assert (done.code, done.err) == (0, "")
    weights = {name: read_run(lab / "both" / folder_name(name))["hashes"]["weights"] for name in names}
    assert weights["fedavg"] == weights["./prox.py:myprox"] != weights["./prox.py:plain"]
    assert "./prox.py:plain" in (lab / "both" / "report" / "summary.csv").read_text(encoding="utf-8")


@pytest.mark.more
@pytest.mark.parametrize(
    "asked", ["compare --method fedavg", "compare --method fedavg --seeds 1", "run --seeds 1"]
)
def test_a_repeated_command_keeps_no_run_of_other_code_unless_told_to(
    lab: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch, asked: str
) -> None:
    """A finished run of the earlier code would stand beside runs of the new one in one report."""
    monkeypatch.setattr("raffed.api.many_runs.in_processes", lambda runs: False)
    said = [f"{asked} --method ./prox.py:myprox --rounds 1 --quiet --out out", *QUICK]
    assert cli(*said).code == 0
    before, source = contents(lab / "out"), (lab / "prox.py").read_bytes()
    changed(lab / "prox.py")
    refused = cli(*said)
    assert refused.code == 2
    assert "prox.py has changed since the run was begun" in refused.err
    assert cli(*said, "--accept-changed-code").code == 0
    kept = {name: text for name, text in contents(lab / "out").items() if name.endswith("run.json")}
    assert kept == {name: text for name, text in before.items() if name.endswith("run.json")}
    (lab / "prox.py").write_bytes(source)
    assert cli(*said).code == 0


@pytest.mark.slow
def test_tune_takes_the_space_of_the_decorator_or_a_grid_and_refuses_changed_code(lab: Path) -> None:
    said = ["--method", "./prox.py:myprox", "--rounds", 1, "--epochs", 1, "--split", "p4c5", "--seeds", 1]
    for out, grid, wanted in (("space", [], [0.01, 0.1]), ("grid", ["--grid", "mu=0.5,0.2"], [0.5, 0.2])):
        done = shell("tune", *said, *grid, "--out", out, cwd=lab)
        assert done.returncode == 0, done.stderr
        about = read_sweep(lab / out)["methods"]["./prox.py:myprox"]
        assert [one["settings"]["mu"] for one in about["trials"]] == wanted
        assert {one["state"] for one in about["trials"] + about["final"]} == {"finished"}
    changed(lab / "prox.py")
    done = shell("tune", "--resume", "--out", "grid", cwd=lab)
    assert done.returncode == 2
    assert "prox.py has changed" in done.stderr
    done = shell("tune", "--resume", "--accept-changed-code", "--out", "grid", cwd=lab)
    assert done.returncode == 0, done.stderr


def test_a_change_that_was_accepted_before_a_killed_part_stays_recorded(stopped: Path) -> None:
    """A part of a run that ended before its first round leaves no segment, but the code had changed."""
    before, now = changed(stopped.parent / "prox.py")
    about = read_run(stopped)
    begun = {**about["segments"][-1], "from": 3, "to": 2, "accepted": {"prox.py": [before, now]}}
    about["segments"].append(begun)
    about["code"][0]["files"]["prox.py"] = now
    write_json(stopped / "run.json", about)
    done = shell("resume", stopped, "--quiet", cwd=stopped.parent)
    assert done.returncode == 0, done.stderr
    (first, last) = read_run(stopped)["segments"]
    assert "accepted" not in first
    assert last["accepted"] == {"prox.py": [before, now]}
