"""Ignore files mean what git says they mean."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from raffed.errors import UsageError
from raffed.runtime.ignore_files import ignore_rules

TREE = [
    "a.log",
    "b.txt",
    "sub/a.log",
    "sub/deep/a.log",
    "sub/keep.log",
    "build/x",
    "sub/build/x",
    "build.txt",
    "x/y/z/w.txt",
    "foo/a/b/bar",
    "foo/bar",
    "#hash",
    "!bang",
    "sp ace ",
    "a1",
    "a2",
    "ab",
    "abc/d",
    "Sub/e.LOG",
    "q[1].txt",
    "star*.txt",
    "starry.txt",
    "docs/a/b.md",
    "docs/b.md",
    "dash-1",
    "back\\slash",
]
PATTERNS = [
    "*.log",
    "/a.log",
    "build/",
    "/build",
    "build",
    "sub/*.log",
    "sub/**",
    "**/a.log",
    "foo/**/bar",
    "x/**/w.txt",
    "a?",
    "a[0-9]",
    "a[!0-9]",
    "a[^12]",
    "\\#hash",
    "\\!bang",
    "# comment",
    "*.log\n!keep.log",
    "!a.log",
    "sp ace\\ ",
    "q\\[1\\].txt",
    "star\\*.txt",
    "star*",
    "docs/*.md",
    "docs/**/*.md",
    "*",
    "/*\n!/docs",
    "*.l[o]g   ",
    "sub/\n!sub/keep.log",
    "**",
    "[a-z]1",
    "x/y/",
    "y/z",
    "",
    "dash[-]1",
    "b.tx[]t]",
]


def walked(root: Path) -> set[str]:
    """The files that are left where folders that are named are not entered."""
    names = ignore_rules(root)[".gitignore"]
    left = set()
    for folder, below, files in os.walk(root):
        base = Path(folder).relative_to(root).as_posix() + "/"
        base = "" if base == "./" else base
        below[:] = [one for one in below if one != ".git" and not names(f"{base}{one}/")]
        left |= {f"{base}{one}" for one in files if not names(f"{base}{one}")}
    return left - {".gitignore"}


@pytest.mark.skipif(shutil.which("git") is None, reason="compares with git")
def test_what_is_left_of_a_tree_is_what_git_would_add(tmp_path: Path) -> None:
    for name in TREE:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    compared = 0
    for pattern in PATTERNS:
        (tmp_path / ".gitignore").write_text(pattern + "\n")
        command = [
            "git",
            "-C",
            str(tmp_path),
            "-c",
            "core.excludesFile=",
            "ls-files",
            "-z",
            "--others",
            "--exclude-standard",
        ]
        said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        assert walked(tmp_path) == set(said.split("\0")) - {"", ".gitignore"}, pattern
        compared += 1
    assert compared == len(PATTERNS)


def test_a_list_of_patterns_that_cannot_be_read_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / ".gitignore").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match="gitignore: cannot be read"):
        ignore_rules(tmp_path)
