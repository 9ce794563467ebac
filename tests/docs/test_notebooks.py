"""The notebooks are those of tests/docs/notebooks.py, and every cell of theirs can be executed."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest

from tests.docs.notebooks import CODE, FOLDER, NOTEBOOKS, notebook


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_is_the_one_that_its_cells_make_and_has_no_outputs(name: str) -> None:
    text = (FOLDER / f"{name}.ipynb").read_text(encoding="utf-8")
    assert text == notebook(NOTEBOOKS[name])
    assert [one for one in json.loads(text)["cells"] if one.get("outputs")] == []


def test_there_is_no_other_notebook() -> None:
    assert {path.stem for path in FOLDER.iterdir()} == set(NOTEBOOKS)


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_the_code_of_a_notebook_compiles(name: str) -> None:
    for kind, text in NOTEBOOKS[name]:
        if kind == CODE:
            lines = text.splitlines(keepends=True)
            compile("".join(line for line in lines if not line.startswith("%%")), name, "exec")


@pytest.mark.slow
@pytest.mark.parametrize("name", NOTEBOOKS)
def test_every_cell_of_a_notebook_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a kernel of this Python, which `make extras` installs."""
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    path = tmp_path / f"{name}.ipynb"
    shutil.copy(FOLDER / path.name, path)
    spec = {"argv": [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]}
    spec |= {"display_name": "Python 3", "language": "python"}
    kernel = tmp_path / "jupyter" / "kernels" / "python3"
    kernel.mkdir(parents=True)
    (kernel / "kernel.json").write_text(json.dumps(spec), encoding="utf-8")
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path / "jupyter"))
    book = nbformat.read(path, as_version=4)
    client = nbclient.NotebookClient(book, timeout=600, resources={"metadata": {"path": str(tmp_path)}})
    client.execute()
    outputs = [out for cell in book.cells if cell.cell_type == CODE for out in cell.outputs]
    assert outputs
    assert [out for out in outputs if out.output_type == "error"] == []
