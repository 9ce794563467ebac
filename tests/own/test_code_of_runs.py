"""run.json records own code; resume and verify refuse other code, and go on with it only if told to."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from raffed.results.runfile import read_run
from tests.cli.conftest import QUICK, Cli, shell
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
