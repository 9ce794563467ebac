"""What runs on several nodes need: a place for the driver, folders that all see, and the same code."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import logging
import uuid
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

import ray
from ray import ObjectRef
from ray.exceptions import RayTaskError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from raffed.errors import RunFolderError, UsageError
from raffed.own.user_code import BESIDE
from raffed.runtime.ray.own_ray import OwnRay, Patience

# Whether the processes of a Ray have the same raffed, torch and NumPy as the process that gives them work.
#
# A Ray that this process starts has its Python and its files. A cluster's nodes have environments of their
# own. Ray compares its own version and Python's there, but nothing else. Clients that train with other code
# than the rest of their round would change the result without a sign of it, so they are refused.


PACKAGE = Path(__file__).parents[2]
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
    digest = hashlib.sha256()
    files = {path.relative_to(package).as_posix(): path for path in package.rglob("*.py")}
    for name, path in sorted(files.items()):
        if name.partition("/")[0] not in BESIDE:
            content = path.read_bytes()
            digest.update(f"{name} {len(content)}\n".encode())
            digest.update(content)
    return digest.hexdigest()


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
    if sent is not None and (why := difference(code_versions(), sent)):
        address: str = ray.util.get_node_ip_address()  # type: ignore[no-untyped-call]
        raise UsageError(f"node {address}: {why}; {MEND}")


def difference(there: CodeVersions, here: CodeVersions) -> str | None:
    """Return in words how the code of a node differs from the sender's, or None if it does not."""
    told = [
        f"{WHAT[name]} {theirs[:SHOWN]} there and {ours[:SHOWN]} here"
        for name, theirs, ours in zip(there._fields, there, here, strict=True)
        if theirs != ours
    ]
    return ", ".join(told) or None


log = logging.getLogger(__name__)


class NodeAnswer(NamedTuple):
    """What a node says: its id, whether it sees a file or folder, and what code it has."""

    node: str
    seen: bool
    code: CodeVersions


def beside_this_process() -> dict[str, NodeAffinitySchedulingStrategy]:
    """Return options that start an actor on the node of this process, which has the run's folder on its disk.

    In a placement group (a trial of a sweep) there are none. The actor belongs to the group, and all nodes
    see the folder of a sweep.
    """
    if ray.util.get_current_placement_group() is not None:
        return {}
    here = ray.get_runtime_context().get_node_id()
    return {"scheduling_strategy": NodeAffinitySchedulingStrategy(here, soft=False)}


def check_shared(folder: Path, what: str) -> None:
    """Check that every node of the cluster has the same raffed and sees `folder`, which is made if needed.

    A single node always does.

    Args:
        folder: The folder.
        what: Who needs it, for the message.

    Raises:
        UsageError: A node has other code than this process.
        RunFolderError: A node does not see the folder.
    """
    nodes = _nodes()
    if len(nodes) < 2:
        return
    created = [parent for parent in (folder, *folder.parents) if not parent.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    sign = folder / f".seen-{uuid.uuid4().hex}"
    sign.touch()
    try:
        answers = _answers(nodes, sign)
    finally:
        sign.unlink()
        with contextlib.suppress(OSError):  # another command has begun to use the folder
            for parent in created:  # restore the state before, since the folder is checked when it is opened
                parent.rmdir()
    for answer in answers:
        if why := difference(answer.code, code_versions()):
            raise UsageError(f"node {nodes[answer.node]}: {why}; {MEND}")
    blind = [answer.node[:12] for answer in answers if not answer.seen]
    if blind:
        raise RunFolderError(
            f"{folder} cannot be seen by {len(blind)} of {len(nodes)} nodes ({', '.join(blind[:3])}): {what} "
            f"needs a file system "
            "that all nodes mount; give such a path, or for a URL set RAFFED_SCRATCH to one"
        )


def different_nodes() -> tuple[int, dict[str, str]]:
    """Return how many nodes the cluster has, and the address of each with other code → what differs.

    Raises:
        UsageError: A node cannot say what code it has.
    """
    nodes = _nodes()
    differences = [(nodes[a.node], difference(a.code, code_versions())) for a in _answers(nodes, PACKAGE)]
    return len(nodes), {address: what for address, what in differences if what is not None}


def _nodes() -> dict[str, str]:
    """Return the id of each node that is alive → its address."""
    return {
        node["NodeID"]: node["NodeManagerAddress"]
        for node in ray.nodes()  # type: ignore[no-untyped-call]
        if node["Alive"]
    }


def _answers(nodes: Mapping[str, str], path: Path) -> list[NodeAnswer]:
    """Return the nodes' answers.

    A node may have no room for another process. So a line is logged if they take long.
    """
    asked = [_asked(node, path) for node in nodes]
    patience = Patience()
    while len(ray.wait(asked, num_returns=len(asked), timeout=1.0)[0]) < len(asked):
        if waited := patience.due():
            log.warning(
                "waiting for %d nodes to say whether they see %s, %s", len(asked), path.parent, waited
            )
    try:
        return ray.get(asked)
    except RayTaskError as error:  # such as a module that an older raffed does not have
        why = f"{type(error.cause).__name__}: {error.cause}".partition("\n")[0]
        raise UsageError(f"a node cannot be asked what code it has ({why}); {MEND}") from error


@ray.remote(num_cpus=0)
def _answer(node: str, path: str) -> NodeAnswer:
    return NodeAnswer(node, Path(path).exists(), code_versions())


def _asked(node: str, path: Path) -> ObjectRef[NodeAnswer]:
    """Ask a node whether it sees a file or folder, and what code it has."""
    there = NodeAffinitySchedulingStrategy(node, soft=False)
    return _answer.options(scheduling_strategy=there).remote(node, str(path))
