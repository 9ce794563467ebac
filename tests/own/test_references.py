"""A reference names the same object in every process, also where the code has travelled, and a wrong one is
refused in a line that helps.
"""

from __future__ import annotations

import os
import pickle
import py_compile
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from safetensors.numpy import load_file

from raffed.config.run import RunConfig
from raffed.errors import UsageError
from raffed.own.carried import packed
from raffed.own.gate import note_toml
from raffed.own.located import changed, is_reference
from raffed.own.names import reference_to
from raffed.own.resolve import load, sources_of, stored_module
from raffed.own.user_code import UserCodeError
from raffed.results.runfile import read_run
from raffed.runtime.setup import prepare_run
from tests.cli.conftest import QUICK, Cli
from tests.forging import forget_references
from tests.warm import python


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(textwrap.dedent(text), encoding="utf-8")
    return path


def package(root: Path, name: str = "mylab") -> Path:
    """A package whose `methods` imports `pulls` and, by way of it, `deep.maths`; `other` is not imported."""
    write(root / name / "__init__.py", "")
    write(root / name / "methods.py", "from .pulls import pull\n\ndef prox():\n    return pull()\n")
    imports = f"import numpy\nimport {name}.deep.maths as maths\n"
    write(root / name / "pulls.py", f"{imports}\ndef pull():\n    return 3\n")
    write(root / name / "deep" / "__init__.py", "")
    write(root / name / "deep" / "maths.py", "ONE = 1\n")
    write(root / name / "other.py", "TWO = 2\n")
    return root / name


def test_the_code_of_a_file_is_that_of_its_source_whatever_python_has_compiled(lab: Path) -> None:
    """Python compares sizes and seconds: an edit within a second that keeps the size goes unnoticed."""
    file = write(lab / "a.py", "def f():\n    return 1\n")
    py_compile.compile(str(file))
    before = file.stat()
    write(file, "def f():\n    return 2\n")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    found = load("./a.py:f")
    assert callable(found)
    assert found() == 2


def test_texts_with_a_module_or_a_file_and_a_name_are_references_and_others_are_not() -> None:
    texts = ("mylab.methods:prox", "mylab:prox", "./a.py:f", "/x/y.py:A.b", "c:\\d.py:f")
    assert all(map(is_reference, texts))
    others = ("fedprox", "dirichlet-client:100:1.0", "a b:c", "./a.txt:f", "x:", ":x", "x.y:1")
    assert not any(map(is_reference, others))


def test_the_reference_to_a_loaded_object_is_the_reference_as_typed(lab: Path) -> None:
    package(lab, "lab_b")
    write(lab / "prox.py", "def prox():\n    return 1\n")
    for text in ("lab_b.methods:prox", "./prox.py:prox"):
        assert reference_to(load(text)) == text
        assert stored_module(load(text).__module__) == text.rpartition(":")[0]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("./none.py:f", "no such file"),
        ("nolab.methods:f", "no module 'nolab'"),
        ("lab_c.nothing:f", "no module 'lab_c.nothing'"),
        ("lab_c.methods:porx", "it has prox, pull"),
        ("./prox.py:numbr", "it has Context, Doc, Forward, Method, NUMBER, Private, Pull"),
        ("prox", "not a reference"),
    ],
)
def test_a_wrong_reference_is_refused_with_what_to_do(lab: Path, text: str, words: str) -> None:
    package(lab, "lab_c")
    with pytest.raises(UsageError, match=words):
        load(text)


def test_an_error_while_importing_begins_with_the_users_file_and_line(lab: Path) -> None:
    write(lab / "prox.py", "def broken():\n    return 1 / 0\n\nbroken()\n")
    with pytest.raises(UserCodeError, match=r"^\S*prox\.py:2: ZeroDivisionError"):
        load("./prox.py:f")
    write(lab / "worse.py", "x = (\n")
    with pytest.raises(UserCodeError, match=r"^\S*worse\.py:1: SyntaxError"):
        load("./worse.py:f")
    write(lab / "worse.py", "X = 1\nimport not_a_library\n")  # a file that failed is executed anew
    with pytest.raises(UserCodeError, match=r"worse\.py:2: ModuleNotFoundError: .*not_a_library"):
        load("./worse.py:f")


def test_what_no_other_process_can_import_is_refused_with_the_reason() -> None:
    def inner() -> None: ...

    with pytest.raises(UsageError, match="inside a function"):
        reference_to(inner)
    with pytest.raises(UsageError, match="lambda"):
        reference_to(lambda: 0)
    with pytest.raises(UsageError, match="is a dict"):
        reference_to({})


def test_editing_a_helper_names_that_helper(lab: Path) -> None:
    lab = package(lab, "lab_g")
    before = sources_of("lab_g.methods:prox")
    write(lab / "other.py", "TWO = 22\n")
    assert changed(before, sources_of("lab_g.methods:prox")) == []
    write(lab / "deep" / "maths.py", "ONE = 1.0\n")
    assert changed(before, sources_of("lab_g.methods:prox")) == ["lab_g/deep/maths.py"]


def test_the_neighbours_that_a_file_imports_are_covered(lab: Path) -> None:
    write(lab / "helper.py", "VALUE = 5\n")
    write(lab / "unrelated.py", "VALUE = 6\n")
    write(lab / "prox.py", "def prox():\n    from helper import VALUE\n    return VALUE\n")
    assert set(sources_of("./prox.py:prox").files) == {"prox.py", "helper.py"}


def test_a_script_refers_to_its_own_functions_by_its_file(tmp_path: Path) -> None:
    write(
        tmp_path / "script.py",
        """
        from raffed.own.names import reference_to
        from raffed.own.resolve import load, stored_module

        def prox(): ...
        class Memory: ...

        print(reference_to(prox), reference_to(Memory), stored_module("__main__"))
        print(load("./script.py:prox") is prox)
        """,
    )
    done = subprocess.run(
        [sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["./script.py:prox", "./script.py:Memory", "./script.py", "True"]


# A user-defined file imports what lies beside it, also where another folder holds a module of that name.

NET = """
from common import WIDTH
from torch import nn

class Net(nn.Module):
    def __init__(self, num_classes):
        super().__init__()
        self.hidden = nn.Linear(64, WIDTH)
        self.fc = nn.Linear(WIDTH, num_classes)

    def forward(self, x):
        return self.fc(self.hidden(x.flatten(1)).relu())
"""


def value_of(text: str) -> object:
    function = load(text)
    assert callable(function)
    return function()


@pytest.mark.parametrize("how", ["import common", "from common import VALUE", "import common as other"])
@pytest.mark.parametrize("late", [False, True])
def test_files_of_two_folders_each_get_the_module_beside_them(lab: Path, how: str, late: bool) -> None:
    name = {"from common import VALUE": "VALUE", "import common": "common.VALUE"}.get(how, "other.VALUE")
    for folder, value in (("a", 1), ("b", 2)):
        write(lab / folder / "common.py", "from deeper import VALUE\n")
        write(lab / folder / "deeper.py", f"VALUE = {value}\n")
        body = f"def f():\n    {how}\n    return {name}\n"
        within = body if late else f"{how}\n{body.replace(how, 'pass')}"
        write(lab / folder / "own.py", within)
    assert [value_of(f"./{folder}/own.py:f") for folder in "aba"] == [1, 2, 1]
    assert "common" not in sys.modules


def test_two_packages_of_one_name_are_refused(lab: Path) -> None:
    for folder in "ab":
        write(lab / folder / "tools" / "__init__.py", "VALUE = 1\n")
        write(lab / folder / "own.py", "from tools import VALUE\ndef f():\n    return VALUE\n")
    assert value_of("./a/own.py:f") == 1
    with pytest.raises(UsageError, match=r"b/own.py:1: ./b/own.py imports tools, and .*another name"):
        load("./b/own.py:f")


def test_what_ran_is_what_is_recorded_for_a_method_and_a_network(lab: Path, cli: Cli) -> None:
    """Both import a module called common. The hidden layer is as wide as the network's own says."""
    write(lab / "methods" / "common.py", "WIDTH = 1\n")
    source = (lab / "prox.py").read_text(encoding="utf-8")
    write(lab / "methods" / "prox.py", f"{source}\nimport common\nassert common.WIDTH == 1\n")
    write(lab / "nets" / "common.py", "WIDTH = 12\n")
    write(lab / "nets" / "net.py", NET)
    named = ["--method", "./methods/prox.py:myprox", "--model", "./nets/net.py:Net"]
    done = cli("run", "--rounds", 1, *QUICK, *named, "--quiet", "--out", "run")
    assert done.code == 0, done.err
    (file,) = (lab / "run").rglob("final.safetensors")
    assert next(v for name, v in load_file(file).items() if name.endswith("hidden.bias")).shape == (12,)
    files = {one["role"]: set(one["files"]) for one in read_run(lab / "run")["code"]}
    assert files == {"method": {"prox.py", "common.py"}, "model": {"net.py", "common.py"}}
    assert cli("verify", "run").code == 0


USE = "import pickle; code = pickle.load(open({file!r}, 'rb')); from raffed.own.resolve import load; "


def elsewhere(folder: Path, file: Path, ends: str, **before: str) -> str:
    folder.mkdir(exist_ok=True)
    for name, text in before.items():
        write(folder / f"{name}.py", text)
    done = python(["-c", USE.format(file=str(file)) + ends], cwd=folder)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture
def away(lab: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder on what stands for another machine, with temporary files of its own."""
    place = lab / "away"
    place.mkdir()
    (place / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(place / "tmp"))
    return place


def test_the_original_place_is_used_while_it_holds_the_same_files(lab: Path, away: Path) -> None:
    (lab / "code").write_bytes(pickle.dumps(packed({"method": "./prox.py:myprox"})))
    shown = elsewhere(away, lab / "code", "print(load('./prox.py:myprox').__code__ and code.parts[0].role)")
    assert shown == "method"
    assert list((away / "tmp").iterdir()) == []


@pytest.mark.parametrize("what", ["removed", "edited"])
def test_a_file_that_is_not_there_travels_with_its_neighbours(lab: Path, away: Path, what: str) -> None:
    write(lab / "beside.py", "VALUE = 5\n")
    write(lab / "own.py", "import beside\n\ndef value():\n    return beside.VALUE\n")
    (lab / "code").write_bytes(pickle.dumps(packed({"method": "./own.py:value"})))
    if what == "removed":
        (lab / "beside.py").unlink()
    else:
        write(lab / "beside.py", "VALUE = 6\n")
    for _ in range(2):  # the second process finds what the first one wrote
        assert elsewhere(away, lab / "code", "print(load('./own.py:value')())") == "5"
    (folder,) = (away / "tmp").iterdir()
    assert folder.stat().st_mode & 0o077 == 0
    assert len(list(folder.iterdir())) == 1


@pytest.mark.parametrize("away_has", ["another", "none"])
@pytest.mark.parametrize("named", ["typed", "in a file.toml"])
def test_a_package_that_travels_comes_before_another_version_of_it(
    lab: Path, away: Path, named: str, away_has: str
) -> None:
    package(lab, "lab_t")
    forget_references()
    if named != "typed":
        note_toml(lab, {"method": "lab_t.methods:prox"})
    (lab / "code").write_bytes(pickle.dumps(packed({"method": "lab_t.methods:prox"})))
    if away_has == "another":
        other = package(away, "lab_t")
        write(other / "pulls.py", "def pull():\n    return 4\n")
    assert elsewhere(away, lab / "code", "print(load('lab_t.methods:prox')())") == "3"
    forget_references()


def test_a_setup_brings_its_code_along_before_anything_else_is_read(lab: Path, away: Path) -> None:
    setup = prepare_run(RunConfig(method="./prox.py:myprox"))
    (lab / "code").write_bytes(pickle.dumps(setup))
    (lab / "prox.py").unlink()
    assert elsewhere(away, lab / "code", "print(code.method.name)") == "MyProx"
