"""A folder may hold a file with the name of any module. No command and none of its processes imports it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(sys.executable).parent / "raffed"
NAMES = ("raffed", "torch", "ray", "numpy", "pyarrow", "typer", "json", "psutil", "analysis", "tune_spaces")
SMALL = "--rounds 2 --epochs 0.1 --split iid:2 --checkpoint-every 1 --execution"
COMMANDS = (
    f"run {SMALL} ray --actors 1 --out ray",
    f"run {SMALL} serial --out plain",
    "extend plain --rounds 3 --execution ray --actors 1",
    f"run {SMALL} serial --seeds 2 --out seeds",
    f"tune {SMALL} serial --method fedavg --grid local.lr=0.1,0.2 --seeds 1 --out sweep",
    "verify ray",
    "report ray --out report",
    "doctor --ray",
    "methods",
)


@pytest.mark.slow
def test_no_command_imports_a_file_of_the_current_folder(tmp_path: Path) -> None:
    """Every name that this process has imported, and those of Ray's workers, is a trap."""
    sprung = tmp_path / "sprung"
    sprung.mkdir()
    folder = tmp_path / "here"
    folder.mkdir()
    names = {name for name in (*sys.modules, *NAMES) if "." not in name and name.isidentifier()}
    for name in names - {"__main__", "tests"}:
        (folder / f"{name}.py").write_text(f"import os\nos.mkdir({str(sprung / name)!r})\n")
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    env.pop("PYTHONPATH", None)
    for words in COMMANDS:
        done = subprocess.run([PROGRAM, *words.split()], cwd=folder, env=env, capture_output=True, text=True)
        assert os.listdir(sprung) == [], words
        assert done.returncode == 0, f"{words}: {done.stdout[-500:]}{done.stderr[-1500:]}"
