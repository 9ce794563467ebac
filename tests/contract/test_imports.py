"""The layers (style.md §5): imports point one way, and Ray is imported where Ray is used and nowhere else."""

from __future__ import annotations

import ast
import subprocess
import sys
from functools import lru_cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BELOW: dict[str, set[str]] = {  # layer → raffed's layers it may import
    "core": {"core"},
    "methods": {"core", "methods"},
    "models": {"core", "models"},
    "data": {"core", "data"},
    "results": {"core", "results"},
    "runtime": {"core", "methods", "models", "data", "runtime"},
    "attacks": {"core", "methods", "models", "attacks"},
    "studies": {"core", "methods", "models", "data", "results", "runtime", "attacks", "studies"},
    "experiments": {"core", "methods", "models", "data", "results", "runtime", "studies", "experiments"},
}
SOURCES = sorted((ROOT / "raffed").rglob("*.py"))


@lru_cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


@lru_cache
def imported(path: Path) -> set[str]:
    """Dotted names of everything a file imports anywhere in it: at the top, in functions, for type checking."""
    names: set[str] = set()
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            # What a wheel takes in under another name imports its own files by their place; raffed by their full name.
            assert node.level == 0 or not path.is_relative_to(ROOT / "raffed"), f"{path}: relative import"
            names |= {f"{node.module}.{alias.name}" for alias in node.names} if node.module == "raffed" else {str(node.module)}
    return names


def layer(path: Path) -> str:
    inside = path.relative_to(ROOT / "raffed").parts
    return inside[0] if len(inside) > 1 else ""


def roots(path: Path) -> set[str]:
    return {name.partition(".")[0] for name in imported(path)}


def test_every_file_of_the_package_was_looked_at() -> None:
    """A gate counts what it checked."""
    assert len(SOURCES) >= 60
    assert set(BELOW) | {"cli", ""} == {layer(p) for p in SOURCES}
    assert all(sum(layer(p) == name for p in SOURCES) >= 5 for name in BELOW)


@pytest.mark.parametrize("name", BELOW)
def test_a_layer_imports_nothing_above_it(name: str) -> None:
    checked = 0
    for path in (p for p in SOURCES if layer(p) == name):
        for target in (t for t in imported(path) if t.partition(".")[0] == "raffed"):
            assert target.split(".")[1] in BELOW[name], f"{path.relative_to(ROOT)} imports {target}"
        checked += 1
    assert checked >= 5


def test_ray_is_imported_in_the_ray_runtime_and_the_tune_spaces_only() -> None:
    users = {p.relative_to(ROOT).as_posix() for p in SOURCES if "ray" in roots(p)}
    assert users
    assert all(u.startswith("raffed/runtime/ray_") for u in users), users
    assert not any("ray" in roots(p) for p in (ROOT / "analysis").rglob("*.py"))
    assert any("ray" in roots(p) for p in (ROOT / "tune_spaces").rglob("*.py"))


def test_the_kernel_imports_torch_numpy_and_the_standard_library_only() -> None:
    """core/ is pure PyTorch: no Ray, no files, no clock. typing_extensions comes with torch."""
    allowed = set(sys.stdlib_module_names) | {"torch", "numpy", "raffed", "typing_extensions"}
    for path in (p for p in SOURCES if layer(p) in ("core", "methods")):
        assert roots(path) <= allowed, f"{path.relative_to(ROOT)}: {roots(path) - allowed}"
    for path in (p for p in SOURCES if layer(p) == "core"):
        assert not roots(path) & {"os", "pathlib", "time", "datetime", "socket", "random"}, path


def test_the_analysis_imports_no_torch_no_ray_and_of_raffed_the_reading_of_json_files_alone() -> None:
    files = sorted((ROOT / "analysis").rglob("*.py"))
    allowed = {"raffed.results.json_files", "raffed.results.sweep_file"}
    assert len(files) >= 8
    for path in files:
        assert not roots(path) & {"torch", "ray"}, path
        assert {name for name in imported(path) if name.startswith("raffed")} <= allowed, path


def test_nothing_seeds_a_global_generator_or_reads_it() -> None:
    """House rule 10, by name: torch.manual_seed and its like appear in core/seeds.py alone."""
    words = ("torch.manual_seed", "np.random.seed", "random.seed(", "default_generator", "cuda.manual_seed")
    users = {p.relative_to(ROOT).as_posix() for p in SOURCES if any(word in p.read_text() for word in words)}
    assert users == {"raffed/core/seeds.py"}


@pytest.mark.parametrize(
    "module", ["raffed", "raffed.methods", "raffed.models", "raffed.core.config", "raffed.core.errors", "raffed.studies"]
)
def test_listing_names_loads_neither_torch_nor_ray(module: str) -> None:
    heavy = "{'torch', 'ray', 'torchvision', 'pandas'}"
    code = f"import sys, {module}; found = {heavy} & set(sys.modules); sys.exit(str(found) if found else 0)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
