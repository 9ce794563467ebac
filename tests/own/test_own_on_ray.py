"""An own method on a local Ray: the same bits as serial, and errors that name the user's file and line."""

from __future__ import annotations

from pathlib import Path

import pytest

from raffed.results import read_run
from tests.cli.conftest import shell

SAID = ["--method", "./prox.py:myprox", "--rounds", 2, "--epochs", 1, "--split", "p4c5", "--quiet"]
ON_RAY = ["--execution", "ray", "--actors", 2]


@pytest.mark.slow
def test_an_own_method_has_the_same_bits_on_ray_resumes_there_and_names_errors(lab: Path) -> None:
    for out, where in (("serial", ["--execution", "serial"]), ("ray", ON_RAY)):
        done = shell("run", *SAID, *where, "--out", out, cwd=lab)
        assert done.returncode == 0, done.stderr
    assert read_run(lab / "serial")["hashes"] == read_run(lab / "ray")["hashes"]
    source = (lab / "prox.py").read_text(encoding="utf-8").replace("return self.mu / 2", "return nowhere / 2")
    (lab / "prox.py").write_text(source, encoding="utf-8")
    line = source[: source.index("nowhere")].count("\n") + 1
    done = shell("run", *SAID, *ON_RAY, "--out", "wrong", cwd=lab)
    assert done.returncode == 1
    assert f"{lab / 'prox.py'}:{line}: NameError: name 'nowhere' is not defined" in done.stderr
    assert "Traceback" not in done.stderr
    (lab / "prox.py").write_text(source.replace("nowhere", "self.mu"), encoding="utf-8")
    done = shell("resume", "wrong", "--quiet", "--accept-changed-code", cwd=lab)
    assert done.returncode == 0, done.stderr
    assert read_run(lab / "wrong")["hashes"]["weights"] == read_run(lab / "ray")["hashes"]["weights"]
