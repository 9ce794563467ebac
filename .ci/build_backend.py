"""setuptools' build backend, with the list of an sdist's further files beside this file, and with the commit.

setuptools looks for MANIFEST.in at the top of the repository and offers no setting for another place.

A wheel and an sdist record the commit that they are built from as raffed/_commit.txt (`raffed --version`).
The same commit gives the same bytes. An sdist has no history, so a wheel from it takes over what the sdist
recorded.
"""

import subprocess
from pathlib import Path

from setuptools.build_meta import *  # noqa: F403
from setuptools.command.build_py import build_py
from setuptools.command.egg_info import manifest_maker
from setuptools.command.sdist import sdist

manifest_maker.template = ".ci/MANIFEST.in"
RECORDED = Path("raffed", "_commit.txt")


def commit() -> str:
    """The commit of the working tree, with a + if it was changed; that of the sdist; or an empty text."""
    if not Path(".git").exists():
        return RECORDED.read_text(encoding="ascii") if RECORDED.exists() else ""
    words = (["rev-parse", "HEAD"], ["status", "--porcelain"])
    try:
        head, dirty = (
            subprocess.run(["git", *one], capture_output=True, check=True, timeout=60).stdout.strip()
            for one in words
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return head.decode("ascii") + ("+" if dirty else "")


def _recorded(folder: str) -> None:
    text, path = commit(), Path(folder) / RECORDED
    if text and path.parent.is_dir():
        path.write_text(text, encoding="ascii")


_build, _release = build_py.run, sdist.make_release_tree


def _run(self: build_py) -> None:
    _build(self)
    if not self.editable_mode:  # a checkout is asked itself
        _recorded(self.build_lib)


def _make(self: sdist, base_dir: str, files: list[str]) -> None:
    _release(self, base_dir, files)
    _recorded(base_dir)


build_py.run, sdist.make_release_tree = _run, _make
