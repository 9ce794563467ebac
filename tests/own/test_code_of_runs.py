"""run.json records own code, that of a notebook's cells as well; resume and verify refuse other code, and go
on with it only if told to.
"""

from __future__ import annotations

import hashlib
import subprocess
import textwrap
from pathlib import Path

import pytest

from raffed.results.runfile import read_run
from tests.cli.conftest import QUICK, Cli, shell
from tests.own.conftest import PROX
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


# Executes cells as a notebook does: in __main__, with the source in linecache under the kernel's file names,
# which are made of the text. What a magic such as %%time executes is not in linecache.
KERNEL = """
import linecache, sys

def cell(text):
    if text.startswith("%%time"):
        exec(compile(text.partition(chr(10))[2], "<timed exec>", "exec"), sys.modules["__main__"].__dict__)
        return
    file = f"/tmp/ipykernel_1/{hash(text)}.py"
    linecache.cache[file] = (len(text), None, text.splitlines(True), file)
    exec(compile(text, file, "exec"), sys.modules["__main__"].__dict__)
"""


def notebook(folder: Path, *cells: str, ends: str) -> subprocess.CompletedProcess[str]:
    """Run cells and then a line in a process of its own."""
    texts = [textwrap.dedent(one).lstrip("\n") for one in cells]
    calls = "".join(f"cell({text!r})\n" for text in texts)
    show = "from raffed.own.carried import module_source\n"
    return python(["-c", KERNEL + calls + show + ends], cwd=folder)


CELLS = (
    """
    import math
    import os.path as where
    from collections import OrderedDict as Ordered
    RATE = 0.5
    NAMES = ("a", "b")
    """,
    """
    class Base:
        scale: float = RATE

    def half(x):
        return x * Base.scale
    """,
    """
    class Child(Base):
        def value(self, x: "Base") -> float:
            return math.sqrt(half(x)) + len(NAMES)

    def build(x=8.0):
        assert where.basename("/a/b") == "b" and Ordered() == {}
        return Child().value(x)
    """,
)


def test_a_function_brings_the_imports_constants_and_classes_that_it_uses(tmp_path: Path) -> None:
    done = notebook(tmp_path, *CELLS, ends="print(module_source([build], globals()))")
    assert done.returncode == 0, done.stderr
    names: dict[str, object] = {}
    exec(done.stdout, names)  # a module of its own, in another process than the notebook
    assert names["build"]() == 4.0  # type: ignore[operator]  # √(8 · ½) + 2


ONE, TWO = "def rate():\n    return 1\n", "def rate():\n    return 2\n"
CLASSES = [f"class Step:\n    def rate(self):\n        return {rate}\n" for rate in (1, 2)]
WRAP = "def twice(f):\n    return functools.wraps(f)(lambda: 2 * f())\nrate = twice(rate)\n"
TIMED, DATA = f"%%time\n{TWO}", "import dataclasses\n@dataclasses.dataclass\n"


@pytest.mark.parametrize(
    "cells",
    [
        (ONE, TWO),
        (ONE, TWO, ONE),  # the first cell is executed again
        (ONE, f"{ONE}again = rate\n", TWO, ONE),
        (CLASSES[0], CLASSES[1], CLASSES[0]),
        (f"{DATA}{CLASSES[0]}", f"{DATA}{CLASSES[1]}", f"{DATA}{CLASSES[0]}"),
        (f"import functools\n@functools.cache\n{ONE}", f"@functools.cache\n{TWO}"),
    ],
)
def test_what_is_collected_does_what_the_notebook_does(tmp_path: Path, cells: tuple[str, ...]) -> None:
    use = f"def use():\n    return {'Step().rate()' if 'Step' in cells[0] else 'rate()'}\n"
    ends = "print(module_source([use], globals()))\nprint('# live:', use())"
    done = notebook(tmp_path, *cells, use, ends=ends)
    assert done.returncode == 0, done.stderr
    names: dict[str, object] = {}
    exec(done.stdout, names)
    assert names["use"]() == int(done.stdout.rpartition("# live:")[2])  # type: ignore[operator]


@pytest.mark.parametrize("cells", [(TIMED,), (ONE, TIMED), (ONE, f"import functools\n{WRAP}")])
def test_what_no_cell_defines_as_it_is_now_is_refused(tmp_path: Path, cells: tuple[str, ...]) -> None:
    done = notebook(tmp_path, *cells, ends="module_source([rate], globals())")
    assert "UsageError: the source of rate is not known; define it in a notebook cell" in done.stderr


@pytest.mark.parametrize("live", ["open('x', 'w')", "object()", "[object()]", "iter([])"])
def test_a_live_object_is_refused_by_its_name(tmp_path: Path, live: str) -> None:
    done = notebook(
        tmp_path, f"table = {live}\n\ndef f():\n    return table\n", ends="module_source([f], globals())"
    )
    assert "UsageError: f uses table, a " in done.stderr


RUN_CELLS = """
import raffed
done = []
config = raffed.RunConfig(
    method=myprox, args={"mu": 0.5}, data=raffed.Data(split="p4c5"), federation=raffed.Federation(2),
    local=raffed.Local(epochs=1), runtime=raffed.Runtime(execution="serial", checkpoint_every=1),
)
assert config.method == "notebook:myprox"
raffed.run(config, out="run", watch=done.append, stop=lambda: len(done) == 1)
"""


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An account of its own, with what it has written."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path


def raffed(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return python(["-m", "raffed", *words], cwd=cwd)


@pytest.fixture
def stopped_cells(home: Path) -> Path:
    """A run of a notebook's method after 1 of 2 rounds."""
    made = notebook(home, PROX, ends=RUN_CELLS)
    assert made.returncode == 0, made.stderr
    return home / "run"


def test_the_run_goes_on_in_another_process_in_another_folder(stopped_cells: Path, home: Path) -> None:
    (home / "elsewhere").mkdir()
    done = raffed("resume", str(stopped_cells), "--quiet", cwd=home / "elsewhere")
    assert done.returncode == 0, done.stderr
    assert raffed("verify", str(stopped_cells), cwd=home / "elsewhere").returncode == 0


def test_strange_code_is_not_executed(
    stopped_cells: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(home / "other"))
    for command in ("resume", "verify"):
        done = raffed(command, str(stopped_cells), cwd=home)
        assert done.returncode == 2
        assert "this account has not begun a run with it" in done.stderr
    assert raffed("resume", str(stopped_cells), "--quiet", "--accept-changed-code", cwd=home).returncode == 0


@pytest.mark.parametrize(("factor", "code"), [("2", 0), ("3", 1)])
def test_the_same_notebook_alone_goes_on(stopped_cells: Path, home: Path, factor: str, code: int) -> None:
    cell = PROX.replace("self.mu / 2", f"self.mu / {factor}")
    done = notebook(home, cell, ends="import raffed\nraffed.resume('run')\n")
    assert done.returncode == code, done.stderr
    assert ("notebook.py has changed" in done.stderr) == bool(code)
