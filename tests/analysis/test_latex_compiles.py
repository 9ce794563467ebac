"""pdflatex prints the tables of reports with no other package than booktabs."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from raffed.analysis.loading import load_runs
from raffed.analysis.metrics.summary import summary, to_latex
from raffed.analysis.render.cells import for_latex
from raffed.analysis.render.latex_characters import LATEX
from raffed.analysis.reproduction.matrix import Matrix, MatrixCell
from raffed.analysis.reproduction.matrix_text import matrix_latex
from raffed.analysis.table import TextTable, as_latex

from tests.analysis.conftest import WriteRun

NAMES = ["[a]", "*", "50 % & more", "θ < 1 | ‖w‖² > ½ η₀", "Šimon", "a_b\\c^2~{d}#$", "‘1’ “2”"]


def compiles(folder: Path, table: str) -> str:
    """Compile a document with nothing but a table, and return the log."""
    document = rf"\documentclass{{article}}\usepackage{{booktabs}}\begin{{document}}{table}\end{{document}}"
    (folder / "table.tex").write_text(document, encoding="utf-8")
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "table.tex"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300, errors="replace")
    assert done.returncode == 0, [line for line in done.stdout.splitlines() if line.startswith("!")]
    return done.stdout


def test_signs_that_the_usual_font_prints_as_others_are_written_as_commands() -> None:
    assert for_latex("a < b | c > d") == r"a \textless{} b \textbar{} c \textgreater{} d"
    assert for_latex("θ₁ → ∞") == r"$\theta$$_{1}$ $\rightarrow$ $\infty$"


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="needs pdflatex (texlive-latex-recommended)")
def test_pdflatex_prints_every_character_and_every_kind_of_table(tmp_path: Path, write_run: WriteRun) -> None:
    every = TextTable(["Name", "Cell"], [[name, f"1 {name} 2"] for name in [*LATEX, *NAMES]])
    assert "Missing character" not in compiles(tmp_path, rf"\tiny {as_latex(every)}")
    for seed, method in enumerate(("fedavg", "fedprox")):
        write_run(method, [0.5], method=method, seed=seed)
    compiles(tmp_path, rf"\tiny {to_latex(summary(load_runs([tmp_path])))}")
    cells = [MatrixCell("86.20 ± 0.40", "+1.90", "agrees"), MatrixCell("", "88.40", "–", note="a")]
    matrix = Matrix(
        "Ours, 50 % printed", ["FedAvg", "α & β"], ["FaMnist MLPNet", "FaMnist LeNet"], [cells, cells], {}, {}
    )
    compiles(tmp_path, matrix_latex(matrix, "Table I, 100 %"))
