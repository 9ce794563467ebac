"""What runs on several nodes need: a place for the driver, and folders that all nodes see."""

from __future__ import annotations

import contextlib
import logging
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import ray
from ray.exceptions import RayTaskError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from raffed.errors import RunFolderError, UsageError
from raffed.runtime.ray.patience import Patience
from raffed.runtime.ray.same_code import MEND, PACKAGE, CodeVersions, code_versions, difference

if TYPE_CHECKING:
    from ray import ObjectRef

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
    made = [parent for parent in (folder, *folder.parents) if not parent.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    sign = folder / f".seen-{uuid.uuid4().hex}"
    sign.touch()
    try:
        answers = _answers(nodes, sign)
    finally:
        sign.unlink()
        with contextlib.suppress(OSError):  # another command has begun to use the folder
            for parent in made:  # restore the state before, since the folder is checked when it is opened
                parent.rmdir()
    for answer in answers:
        if found := difference(answer.code, code_versions()):
            raise UsageError(f"node {nodes[answer.node]}: {found}; {MEND}")
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
    found = [(nodes[one.node], difference(one.code, code_versions())) for one in _answers(nodes, PACKAGE)]
    return len(nodes), {address: what for address, what in found if what is not None}


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
