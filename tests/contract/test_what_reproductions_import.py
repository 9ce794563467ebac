"""`reproductions/` uses raffed as a user can, and raffed finds it by entry points alone."""

from __future__ import annotations

import re

from tests.contract.test_imports import FILES, ROOT, imported, in_layer

SHOWN = re.compile(r"(?:from|import|:::) (raffed(?:\.\w+)*)")
LISTED = re.compile(r"^\| `(raffed[.\w]+)` \|", re.MULTILINE)


def public() -> set[str]:
    """The modules that the documentation shows to users, by an import, by their reference, or in the list of
    modules below the public names.
    """
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    listed = LISTED.findall((ROOT / "docs/reference/python/modules.md").read_text(encoding="utf-8"))
    return {name for page in pages for name in SHOWN.findall(page.read_text(encoding="utf-8"))} | set(listed)


def test_reproductions_import_what_the_documentation_shows_to_users() -> None:
    files = in_layer("reproductions")
    assert len(files) >= 10
    used = {name for file in files for name in imported(file) if name.partition(".")[0] == "raffed"}
    own = ("raffed.reproductions", "raffed.analysis")
    assert {name for name in used - public() if not name.startswith(own)} == set()


def test_nothing_else_imports_reproductions() -> None:
    others = FILES.keys() - in_layer("reproductions")
    wrong = {
        f"{name} imports {target}"
        for name in others
        for target in imported(name)
        if target.startswith("raffed.reproductions")
    }
    assert wrong == set()
