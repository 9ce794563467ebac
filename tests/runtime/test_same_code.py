"""The code of a node beside the code of the process that sends it work."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from raffed.errors import UsageError
from raffed.runtime.ray import nodes
from raffed.runtime.ray.nodes import check_same, code_versions, hash_of


def test_the_hash_follows_contents_and_names_of_modules_of_the_package_in_use(tmp_path: Path) -> None:
    """A wheel also holds analysis/ and its like inside the package; bytecode and data files say nothing."""
    package = Path(shutil.copytree(nodes.PACKAGE, tmp_path / "raffed"))
    (package / "core/__pycache__").mkdir(exist_ok=True)
    (package / "core/__pycache__/more.cpython-311.pyc").write_bytes(b"\0")
    (package / "core/_sums.abi3.so").write_bytes(b"\0")
    (package / "analysis").mkdir()
    (package / "analysis/__init__.py").write_text("x = 1\n")
    found = [hash_of(package)]
    assert found == [code_versions().raffed]
    text = (package / "core/seeds.py").read_text()
    (package / "core/seeds.py").write_text(text[:-1])
    found.append(hash_of(package))
    (package / "core/seeds.py").rename(package / "core/seed.py")
    found.append(hash_of(package))
    (package / "core/more.py").touch()
    found.append(hash_of(package))
    assert len(set(found)) == 4


def test_other_code_is_refused_and_the_same_is_not() -> None:
    check_same(code_versions())
    check_same(None)
    with pytest.raises(UsageError, match=r"node [\d.]+: NumPy is .* there and 1\.0 here; all nodes need"):
        check_same(code_versions()._replace(numpy="1.0"))
