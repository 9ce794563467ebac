"""Whether the processes of a Ray have the same raffed, torch and NumPy as the process that gives them work.

A Ray that this process starts has its Python and its files. A cluster's nodes have environments of their own.
Ray compares its own version and Python's there, but nothing else. Clients that train with other code than the
rest of their round would change the result without a sign of it, so they are refused.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
from functools import cache
from pathlib import Path
from typing import NamedTuple

from raffed.errors import UsageError
from raffed.runtime.ray.own_ray import OwnRay

PACKAGE = Path(__file__).parents[2]
# Beside raffed/ in a checkout and inside it in a wheel. Nothing that trains is among them
BESIDE = frozenset({"analysis", "cluster", "reproductions", "tune_spaces"})
SHOWN = 12  # characters of a hash or a version in a message
WHAT = {"raffed": "the hash of raffed's files is", "torch": "torch is", "numpy": "NumPy is"}
MEND = "all nodes need the same environment: the same image, or one on a file system that all nodes mount"


class CodeVersions(NamedTuple):
    """What decides bits besides the run itself.

    Attributes:
        raffed: Hash of raffed's files, because two states of a checkout have one version.
        torch: Version of torch without the build (`+cpu`), which follows from the machine.
        numpy: Version of NumPy.
    """

    raffed: str
    torch: str
    numpy: str


@cache
def code_versions() -> CodeVersions:
    """Return what this process has. It reads all files of raffed once, which takes some 10 ms."""
    return CodeVersions(
        hash_of(PACKAGE),
        importlib.metadata.version("torch").partition("+")[0],
        importlib.metadata.version("numpy"),
    )


def hash_of(package: Path) -> str:
    """Return the SHA-256 of the names and contents of a package's Python files.

    A checkout and a wheel that was made of it have the same.
    """
    found = hashlib.sha256()
    files = {path.relative_to(package).as_posix(): path for path in package.rglob("*.py")}
    for name, path in sorted(files.items()):
        if name.partition("/")[0] not in BESIDE:
            content = path.read_bytes()
            found.update(f"{name} {len(content)}\n".encode())
            found.update(content)
    return found.hexdigest()


def versions_to_send() -> CodeVersions | None:
    """Return what other processes of this Ray must have, or None if this process started it."""
    return code_versions() if OwnRay.up is None else None


def check_same(sent: CodeVersions | None) -> None:
    """Check that this process, on a node of a cluster, has what the sender of its work has.

    Args:
        sent: What the sender has; None if it cannot differ.

    Raises:
        UsageError: Something differs.
    """
    if sent is not None and (found := difference(code_versions(), sent)):
        import ray

        address: str = ray.util.get_node_ip_address()  # type: ignore[no-untyped-call]
        raise UsageError(f"node {address}: {found}; {MEND}")


def difference(there: CodeVersions, here: CodeVersions) -> str | None:
    """Return in words how the code of a node differs from the sender's, or None if it does not."""
    told = [
        f"{WHAT[name]} {theirs[:SHOWN]} there and {ours[:SHOWN]} here"
        for name, theirs, ours in zip(there._fields, there, here, strict=True)
        if theirs != ours
    ]
    return ", ".join(told) or None


__all__ = ["MEND", "CodeVersions", "check_same", "code_versions", "difference", "hash_of", "versions_to_send"]
