"""pyproject.toml names every package, so that a wheel is complete. The slow tests beside this build one."""

from __future__ import annotations

from raffed.config.toml import parse_toml
from tests.packaging.clean import ROOT

BESIDE = ("analysis", "cluster", "reproductions", "tune_spaces")
TREES = {"raffed": "raffed", **{f"raffed.{name}": name for name in BESIDE}}
NOT_SHIPPED = {"raffed.reproductions.records", "raffed.cluster.launcher"}  # the latter is shipped as data


def test_pyproject_names_every_folder_of_modules_as_a_package() -> None:
    settings = parse_toml((ROOT / "pyproject.toml").read_text(encoding="utf-8"), "pyproject.toml")
    named = set(settings["tool"]["setuptools"]["packages"])
    found = {
        ".".join([package, *file.parent.relative_to(ROOT / folder).parts])
        for package, folder in TREES.items()
        for file in (ROOT / folder).rglob("*.py")
    }
    assert len(found) > 40
    assert found - NOT_SHIPPED == named
