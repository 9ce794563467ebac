"""A reference names the same object in every process, and a wrong one is refused in a line that helps."""

from __future__ import annotations

import os
import py_compile
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from raffed.errors import UsageError
from raffed.own.located import CodeLocation, changed, is_reference
from raffed.own.names import reference_to
from raffed.own.resolve import load, place_of, sources_of, stored_module
from raffed.own.user_code import UserCodeError


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of the user's, which is the current folder; what was imported from it is forgotten after."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    known = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - known:
        del sys.modules[name]


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


def test_the_code_of_a_file_is_that_of_its_source_whatever_python_has_compiled(here: Path) -> None:
    """Python compares sizes and seconds: an edit within a second that keeps the size goes unnoticed."""
    file = write(here / "a.py", "def f():\n    return 1\n")
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


def test_a_file_reference_may_import_its_neighbours(here: Path) -> None:
    write(here / "code" / "neighbour.py", "VALUE = 5\n")
    write(here / "code" / "prox.py", "import neighbour\n\ndef prox():\n    return neighbour.VALUE\n")
    assert load("./code/prox.py:prox")() == 5


def test_two_files_of_one_name_are_two_modules(here: Path) -> None:
    for folder, value in (("a", 1), ("b", 2)):
        write(here / folder / "prox.py", f"def prox():\n    return {value}\n")
    assert (load("./a/prox.py:prox")(), load("./b/prox.py:prox")()) == (1, 2)


def test_the_reference_to_a_loaded_object_is_the_reference_as_typed(here: Path) -> None:
    package(here, "lab_b")
    write(here / "prox.py", "def prox():\n    return 1\n")
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
        ("prox", "not a reference"),
    ],
)
def test_a_wrong_reference_is_refused_with_what_to_do(here: Path, text: str, words: str) -> None:
    package(here, "lab_c")
    with pytest.raises(UsageError, match=words):
        load(text)


def test_an_error_while_importing_begins_with_the_users_file_and_line(here: Path) -> None:
    write(here / "prox.py", "def broken():\n    return 1 / 0\n\nbroken()\n")
    with pytest.raises(UserCodeError, match=r"^\S*prox\.py:2: ZeroDivisionError"):
        load("./prox.py:f")
    write(here / "worse.py", "x = (\n")
    with pytest.raises(UserCodeError, match=r"^\S*worse\.py:1: SyntaxError"):
        load("./worse.py:f")
    write(here / "worse.py", "X = 1\nimport not_a_library\n")  # a file that failed is executed anew
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


def test_the_place_of_a_module_is_the_folder_that_holds_its_top_package(here: Path) -> None:
    package(here, "lab_e")
    assert place_of("lab_e.deep.maths:ONE") == CodeLocation(
        "lab_e.deep.maths", str(here / "lab_e" / "deep" / "maths.py"), str(here)
    )
    assert place_of("lab_e:x").root == str(here)


def test_the_hash_covers_what_the_file_imports_from_its_package_and_nothing_else(here: Path) -> None:
    package(here, "lab_f")
    names = set(sources_of("lab_f.methods:prox").files)
    files = ("__init__.py", "methods.py", "pulls.py", "deep/__init__.py", "deep/maths.py")
    assert names == {f"lab_f/{name}" for name in files}


def test_editing_a_helper_names_that_helper(here: Path) -> None:
    lab = package(here, "lab_g")
    before = sources_of("lab_g.methods:prox")
    write(lab / "other.py", "TWO = 22\n")
    assert changed(before, sources_of("lab_g.methods:prox")) == []
    write(lab / "deep" / "maths.py", "ONE = 1.0\n")
    assert changed(before, sources_of("lab_g.methods:prox")) == ["lab_g/deep/maths.py"]


def test_the_neighbours_that_a_file_imports_are_covered(here: Path) -> None:
    write(here / "helper.py", "VALUE = 5\n")
    write(here / "unrelated.py", "VALUE = 6\n")
    write(here / "prox.py", "def prox():\n    from helper import VALUE\n    return VALUE\n")
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


def test_what_a_decorator_refuses_is_reported_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where another file of the user imports that one."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "gaps.py").write_text(
        "import raffed\n\n@raffed.metric(better='best')\ndef gap(logits, labels):\n    return 0.0\n"
    )
    (tmp_path / "outer.py").write_text("\n\nfrom gaps import gap\n")
    for home in ("./gaps.py:gap", "./outer.py:gap"):
        with pytest.raises(UsageError, match="unknown better 'best'") as refused:
            load(home)
        assert str(refused.value).count(".py:") == 1
        assert str(refused.value).startswith(f"{tmp_path / 'gaps.py'}:3: ")
