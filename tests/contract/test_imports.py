"""The layers: imports point downwards, no two files import each other, and Ray is imported where Ray is used.

Every import counts: at the top of a file, inside a function, and under `TYPE_CHECKING`.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections import defaultdict
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import raffed
from tests.warm import python

ROOT = Path(__file__).parents[2]
# Raffed.analysis and so on, which stand beside raffed/ in the repository
BESIDE = ("analysis", "cluster", "reproductions", "tune_spaces")
FOUNDATION = {"errors", "config.validation", "core.seeds"}  # free of torch when imported
ABOVE_RUNS = {
    *("errors", "own", "config", "core", "federation", "methods", "models", "data", "results"),
    *("runtime", "tune_spaces", "runs", "adopted"),
}
BELOW: dict[
    str, set[str]
] = {  # layer → the layers that it may import; a dotted name is one module of a layer
    "errors": set(),
    "own": {"errors"},
    "config": {"errors", "own"},
    "core": {"errors", "own", "config"},
    "federation": {"errors", "own", "config", "core", "results"},
    "methods": {"errors", "own", "config", "core", "adopted"},
    "models": {"errors", "own", "config", "core"},
    "data": FOUNDATION | {"own"},
    "results": FOUNDATION | {"own.gate"},
    "runtime": {"errors", "own", "config", "core", "federation", "methods", "models", "data"},
    "attacks": {"errors", "own", "config", "core", "methods", "models", "data", "runtime"},
    "tune_spaces": {"errors", "config"},
    "trackers": {"errors", "results", "runs"},
    "runs": ABOVE_RUNS - {"runs"},
    "testing": {
        *("errors", "own", "config", "core", "federation", "methods", "models", "data"),
        *("results", "runtime", "runs", "tables"),
    },
    "search": ABOVE_RUNS,
    "tables": ABOVE_RUNS | {"search"},
    "bundles": ABOVE_RUNS | {"search", "tables"},
    "adopted": {"errors", "own.gate", "results"},
    # all but the command line
    "api": ABOVE_RUNS | {"search", "tables", "bundles", "analysis", "testing", "adopted"},
    "analysis": {"results", "own.gate"},
    "cluster": set(),
    "budget": {"errors"},
    "scratch": set(),
}
for _name in BELOW.keys() - {"errors", "cluster", "budget", "scratch"}:
    BELOW[_name] = BELOW[_name] | {"budget", "scratch"}
RAY_PACKAGES = ("raffed.runtime.ray", "raffed.search")


def name_of(path: Path) -> str:
    """The dotted name under which a file is imported."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    parts = parts[:-1] if parts[-1] == "__init__" else parts
    return ".".join(parts if parts[0] == "raffed" else ("raffed", *parts))


FILES = {name_of(path): path for top in ("raffed", *BESIDE) for path in sorted((ROOT / top).rglob("*.py"))}


def base_of(name: str, path: Path, node: ast.ImportFrom) -> str:
    """The module that `from … import` names, also where it is relative."""
    if not node.level:
        return str(node.module)
    package = name.split(".") if path.name == "__init__.py" else name.split(".")[:-1]
    kept = package[: len(package) - node.level + 1]
    return ".".join([*kept, node.module] if node.module else kept)


HOMES = raffed._HOMES  # public name of raffed → its module


@cache
def tree(name: str) -> ast.Module:
    return ast.parse(FILES[name].read_text(encoding="utf-8"))


@cache
def imported(name: str) -> frozenset[str]:
    """Dotted names of the modules that a file imports, anywhere in it."""
    path, found = FILES[name], set()
    for node in ast.walk(tree(name)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = base_of(name, path, node)
            inner = {f"{base}.{alias.name}" for alias in node.names}
            found |= (inner & FILES.keys()) | ({base} if inner - FILES.keys() else set())
    return frozenset(found - {name})


@cache
def ours(name: str) -> set[str]:
    """The modules of raffed that a file imports, also those behind the public names of raffed."""
    behind = {
        HOMES[alias.name]
        for node in ast.walk(tree(name))
        if isinstance(node, ast.ImportFrom) and base_of(name, FILES[name], node) == "raffed"
        for alias in node.names
        if alias.name in HOMES
    }
    return {target for target in imported(name) if target in FILES} | (behind - {name})


def roots(name: str) -> set[str]:
    return {target.partition(".")[0] for target in imported(name)}


def layer(name: str) -> str:
    """`core` for raffed.core.params; "" for raffed itself and for what starts it."""
    parts = name.split(".")
    return parts[1] if len(parts) > 1 and parts[-1] != "__main__" else ""


def in_layer(wanted: str) -> list[str]:
    return [name for name in FILES if layer(name) == wanted]


@pytest.mark.parametrize("name", BELOW)
def test_a_layer_imports_nothing_above_it(name: str) -> None:
    wrong = []
    for file in in_layer(name):
        for target in ours(file) - {"raffed"}:
            inside = target.removeprefix("raffed.")
            allowed = layer(target) in (BELOW[name] | {name}) or inside in BELOW[name]
            wrong += [] if allowed else [f"{file} imports {target}"]
    assert wrong == []


def test_no_two_files_import_each_other_not_even_by_way_of_others() -> None:
    TopologicalSorter({name: ours(name) for name in FILES}).prepare()  # raises CycleError with the circle


def test_ray_is_imported_in_its_two_packages_only() -> None:
    users = {name for name in FILES if "ray" in roots(name)}
    assert len(users) >= 5
    assert [name for name in sorted(users) if not name.startswith(RAY_PACKAGES)] == []


def test_the_kernel_imports_torch_numpy_and_the_standard_library_only() -> None:
    """core/ is pure PyTorch: no Ray, no files, no clock. typing_extensions comes with torch."""
    allowed = set(sys.stdlib_module_names) | {"torch", "numpy", "raffed", "typing_extensions"}
    for name in in_layer("core") + in_layer("methods"):
        assert roots(name) <= allowed, f"{name}: {roots(name) - allowed}"
    for name in in_layer("core"):
        assert not roots(name) & {"os", "pathlib", "time", "datetime", "socket", "random"}, name


def test_the_analysis_imports_neither_torch_nor_ray() -> None:
    files = in_layer("analysis")
    assert len(files) >= 30
    for name in files:
        assert not roots(name) & {"torch", "ray"}, name


def test_only_what_stands_checkout_raffed_imports_by_its_place() -> None:
    """A wheel takes analysis/ and tune_spaces/ in as raffed.analysis and raffed.tune_spaces; raffed's own
    files use full names.
    """
    for name in FILES:
        relative = [n for n in ast.walk(tree(name)) if isinstance(n, ast.ImportFrom) and n.level]
        assert not relative or name.split(".")[1] in BESIDE, f"{name}: relative import"


def test_nothing_seeds_a_global_generator_or_reads_it() -> None:
    """House rule 10, by name: torch.manual_seed and its like appear in core/seeds.py alone.

    The driver of authors' engines is a program for another process, whose generators theirs are.
    """
    words = ("torch.manual_seed", "np.random.seed", "random.seed(", "default_generator", "cuda.manual_seed")
    users = {
        name
        for name, path in FILES.items()
        if any(word in path.read_text(encoding="utf-8") for word in words)
    }
    assert users <= {"raffed.core.seeds", "raffed.adopted.driver"}


# The last one so that Ray starts while torch is imported
LIGHT = """raffed raffed.methods raffed.models raffed.config.run raffed.errors raffed.tune_spaces
    raffed.reproductions.studies raffed.runs.run"""
LIST_NAMES = """
import importlib, sys
for name in sys.argv[1].split():
    importlib.import_module(name)
    if found := {'torch', 'ray', 'torchvision', 'pandas'} & set(sys.modules):
        sys.exit(f"{name} loads {found}")
"""


def test_listing_names_loads_neither_torch_nor_ray() -> None:
    done = subprocess.run(
        [sys.executable, "-c", LIST_NAMES, LIGHT], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr


RUN = """
import sys, raffed
raffed.run(raffed.RunConfig(
    method="fedmr", data=raffed.Data(split="p4c5"), federation=raffed.Federation(1),
    local=raffed.Local(epochs=1), model=raffed.Model({model}),
    numerics=raffed.Numerics(cohort={cohort}), runtime=raffed.Runtime(execution="serial"),
))
print([name for name in ("torch._dynamo", "sympy") if name in sys.modules])
"""


@pytest.mark.parametrize(("cohort", "model"), [(0, "'mlpnet', {'head_bias': True}"), (2, "'mlp'")])
def test_a_run_does_not_import_torch_s_compiler(cohort: int, model: str, tmp_path: Path) -> None:
    """Its import takes longer than torch's own, and every client actor would do it.

    A network with arguments is counted on the device "meta" first, whose rule for `normal_` imports it.
    """
    done = python(["-c", RUN.format(cohort=cohort, model=model)], cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr


def test_no_two_public_classes_share_a_name() -> None:
    """One word, one thing."""
    homes: dict[str, list[str]] = defaultdict(list)
    for name in FILES:
        for node in tree(name).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes[node.name].append(name)
    assert {name: files for name, files in homes.items() if len(files) > 1} == {}
