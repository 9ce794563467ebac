"""What runs on several nodes need: a place for the driver, and folders that all nodes see."""

from __future__ import annotations

import contextlib
import logging
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from raffed.errors import RunFolderError, UsageError
from raffed.runtime.ray_backend.patience import Patience
from raffed.runtime.ray_backend.same_code import MEND, CodeVersions, code_versions, difference

if TYPE_CHECKING:
    from ray import ObjectRef

Answer = tuple[bool, CodeVersions]  # whether a node sees a file, and what code it has
log = logging.getLogger(__name__)


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
    addresses: dict[str, str] = {
        node["NodeID"]: node["NodeManagerAddress"]
        for node in ray.nodes()  # type: ignore[no-untyped-call]
        if node["Alive"]
    }
    nodes = list(addresses)
    if len(nodes) < 2:
        return
    made = [parent for parent in (folder, *folder.parents) if not parent.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    sign = folder / f".seen-{uuid.uuid4().hex}"
    sign.touch()
    try:
        answers = _answers([_asked(node, sign) for node in nodes], folder)
    finally:
        sign.unlink()
        with contextlib.suppress(OSError):  # another command has begun to use the folder
            for parent in made:  # restore the state before, since the folder is checked when it is opened
                parent.rmdir()
    for node, (_, code) in zip(nodes, answers, strict=True):
        if found := difference(code, code_versions()):
            raise UsageError(f"node {addresses[node]}: {found}; {MEND}")
    blind = [node[:12] for node, (seen, _) in zip(nodes, answers, strict=True) if not seen]
    if blind:
        raise RunFolderError(
            f"{folder} cannot be seen by {len(blind)} of {len(nodes)} nodes ({', '.join(blind[:3])}): {what} "
            f"needs a file system "
            "that all nodes mount; give such a path, or for a URL set RAFFED_SCRATCH to one"
        )


def _answers(asked: list[ObjectRef[Answer]], folder: Path) -> list[Answer]:
    """Return the nodes' answers.

    A node may have no room for another process. So a line is logged if they take long.
    """
    patience = Patience()
    while len(ray.wait(asked, num_returns=len(asked), timeout=1.0)[0]) < len(asked):
        if waited := patience.due():
            log.warning("waiting for %d nodes to say whether they see %s, %s", len(asked), folder, waited)
    return ray.get(asked)


@ray.remote(num_cpus=0)
def _sees(path: str) -> Answer:
    return Path(path).exists(), code_versions()


def _asked(node: str, sign: Path) -> ObjectRef[Answer]:
    """Ask a node whether it sees a file, and what code it has."""
    return _sees.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False)).remote(
        str(sign)
    )
