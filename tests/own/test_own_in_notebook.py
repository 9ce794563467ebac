"""A method of a notebook cell becomes a module, runs, is kept in the run's folder and resumed from there."""

from __future__ import annotations

import subprocess
import textwrap
from pathlib import Path

import pytest

from tests.own.conftest import PROX
from tests.warm import python

# Executes cells as a notebook does: in __main__, with the source in linecache under the kernel's file names.
KERNEL = """
import linecache, sys

def cell(number, text):
    file = f"/tmp/ipykernel_1/{number}.py"
    linecache.cache[file] = (len(text), None, text.splitlines(True), file)
    exec(compile(text, file, "exec"), sys.modules["__main__"].__dict__)
"""


def notebook(folder: Path, *cells: str, ends: str) -> subprocess.CompletedProcess[str]:
    """Run cells and then a line in a process of its own."""
    texts = [textwrap.dedent(one).lstrip("\n") for one in cells]
    calls = "".join(f"cell({number}, {text!r})\n" for number, text in enumerate(texts))
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


@pytest.mark.parametrize("live", ["open('x', 'w')", "object()", "[object()]", "iter([])"])
def test_a_live_object_is_refused_by_its_name(tmp_path: Path, live: str) -> None:
    done = notebook(
        tmp_path,
        f"table = {live}\n\ndef f():\n    return table\n",
        ends="module_source([f], globals())",
    )
    assert "UsageError: f uses table, a " in done.stderr


RUN = """
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
def stopped(home: Path) -> Path:
    """A run of a notebook's method after 1 of 2 rounds."""
    made = notebook(home, PROX, ends=RUN)
    assert made.returncode == 0, made.stderr
    return home / "run"


def test_the_run_goes_on_in_another_process_in_another_folder(stopped: Path, home: Path) -> None:
    (home / "elsewhere").mkdir()
    done = raffed("resume", str(stopped), "--quiet", cwd=home / "elsewhere")
    assert done.returncode == 0, done.stderr
    assert raffed("verify", str(stopped), cwd=home / "elsewhere").returncode == 0


def test_strange_code_is_not_executed(stopped: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(home / "other"))
    for command in ("resume", "verify"):
        done = raffed(command, str(stopped), cwd=home)
        assert done.returncode == 2
        assert "this account has not begun a run with it" in done.stderr
    assert raffed("resume", str(stopped), "--quiet", "--accept-changed-code", cwd=home).returncode == 0


@pytest.mark.parametrize(("factor", "code"), [("2", 0), ("3", 1)])
def test_the_same_notebook_alone_goes_on(stopped: Path, home: Path, factor: str, code: int) -> None:
    cell = PROX.replace("self.mu / 2", f"self.mu / {factor}")
    done = notebook(home, cell, ends="import raffed\nraffed.resume('run')\n")
    assert done.returncode == code, done.stderr
    assert ("notebook.py has changed" in done.stderr) == bool(code)
