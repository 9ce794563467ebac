"""`reproductions/` uses raffed as a user can, and raffed finds it by entry points alone."""

from __future__ import annotations

import re

from tests.contract.test_imports import FILES, ROOT, imported, in_layer

# What reproductions/ imports and no user is told of. This list only becomes shorter.
NOT_YET_PUBLIC = """
config.portable config.search_axis config.validation core.aggregation.uploads
core.losses core.messages core.round core.seeds core.training.network core.training.session
core.training.sgd core.training.task data.preparation data.splits data.transforms errors methods
models own.gate results.files results.runfile results.rows results.storage results.text
results.writer runtime.machine runtime.setup_model runtime.scoring runtime.setup tables.catalogue
tables.items tables.search tune_spaces
"""
SHOWN = re.compile(r"(?:from|import|:::) (raffed(?:\.\w+)*)")


def public() -> set[str]:
    """The modules that the documentation shows to users, by an import or by their reference."""
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    return {name for page in pages for name in SHOWN.findall(page.read_text(encoding="utf-8"))}


def test_reproductions_import_what_the_documentation_shows_to_users() -> None:
    files = in_layer("reproductions")
    assert len(files) >= 10
    used = {name for file in files for name in imported(file) if name.partition(".")[0] == "raffed"}
    own = ("raffed.reproductions", "raffed.analysis")
    hidden = {name for name in used - public() if not name.startswith(own)}
    assert {name.removeprefix("raffed.") for name in hidden} == set(NOT_YET_PUBLIC.split())


def test_nothing_else_imports_reproductions() -> None:
    others = FILES.keys() - in_layer("reproductions")
    wrong = {
        f"{name} imports {target}"
        for name in others
        for target in imported(name)
        if target.startswith("raffed.reproductions")
    }
    assert wrong == set()
