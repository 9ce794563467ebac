"""A real notebook in a Jupyter kernel: own method in a cell, run, iterate, compare, tune, resume and report.

A kernel executes its cells inside a running asyncio loop.
"""

from __future__ import annotations

from pathlib import Path

import pytest

nbclient = pytest.importorskip("nbclient")
nbformat = pytest.importorskip("nbformat")
pytest.importorskip("ipykernel")
pytestmark = pytest.mark.slow

CELLS = [
    """
import asyncio
from dataclasses import replace

import raffed
from raffed import Data, Federation, Local, Method, Model, RunConfig, Runtime, Term

asyncio.get_running_loop()
""",
    """
class Pull(Term):
    mu: float

    def loss(self, f, k):
        return self.mu / 2 * (f.w - k.w0).sq_norm()

@raffed.method(title="MyProx", source="a cell", space={"mu": [0.1, 1.0]})
def myprox(mu: float = 0.1) -> Method:
    return Method("MyProx", terms=(Pull(mu),))
""",
    """
base = RunConfig(
    method=myprox,
    data=Data(split="iid:4", samples=200),
    model=Model("mlp", {"hidden": [8]}),
    local=Local(lr=0.05, epochs=1),
    federation=Federation(rounds=2),
    runtime=Runtime(execution="serial"),
)
serial = raffed.run(base, out="runs/serial")
""",
    """
on_ray = raffed.run(replace(base, runtime=Runtime(execution="ray", actors=2)), out="runs/ray")
assert on_ray.hashes == serial.hashes
""",
    """
for event in raffed.iterate(base, out="runs/left"):
    break
assert raffed.resume("runs/left").hashes == serial.hashes
""",
    """
both = raffed.compare(["fedavg", myprox], base, out="runs/both")
both.report.table
""",
    """
found = raffed.tune(myprox, base, out="sweep", grid={"mu": [0.1, 1.0]}, seeds=1)
assert len(found.trials) == 2
found.table
""",
    """
apart = await asyncio.to_thread(raffed.run, base)
assert apart.hashes == serial.hashes
assert raffed.verify("runs/serial").ok
raffed.report("runs", "report").table
""",
]


def shown(cell: dict) -> str:
    """The text of everything below a cell."""
    outputs = [out for out in cell["outputs"] if "data" in out]
    return "\n".join(str(out["data"].get("text/plain", "")) for out in outputs)


def test_a_notebook_runs_from_top_to_bottom_with_progress_below_its_cells(tmp_path: Path) -> None:
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(one.strip()) for one in CELLS])
    where = {"metadata": {"path": str(tmp_path)}}
    nbclient.NotebookClient(book, timeout=600, kernel_name="python3", resources=where).execute()
    by_source = {cell["source"].split("(")[0].split("=")[-1].strip(): cell for cell in book.cells}
    assert "round 2/2" in shown(by_source["raffed.compare"])
    assert "accuracy" in shown(by_source["raffed.compare"])
    assert "chosen" in shown(by_source["raffed.tune"]).lower()
    assert (tmp_path / "report" / "report.html").stat().st_size > 10_000
    assert (tmp_path / "runs" / "serial" / "code" / "notebook.py").exists()
