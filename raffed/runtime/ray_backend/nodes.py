"""What runs on several nodes need: a place for the driver, and folders that all nodes see."""

from __future__ import annotations

import contextlib
import logging
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from raffed.errors import RunFolderError
from raffed.runtime.ray_backend.patience import Patience

if TYPE_CHECKING:
    from ray import ObjectRef

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
    """Check that every node of the cluster sees `folder`, which is made if needed. A single node always does.

    Args:
        folder: The folder.
        what: Who needs it, for the message.

    Raises:
        RunFolderError: A node does not see it.
    """
    nodes = [node["NodeID"] for node in ray.nodes() if node["Alive"]]  # type: ignore[no-untyped-call]
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
    blind = [node[:12] for node, seen in zip(nodes, answers, strict=True) if not seen]
    if blind:
        raise RunFolderError(
            f"{folder} cannot be seen by {len(blind)} of {len(nodes)} nodes ({', '.join(blind[:3])}): {what} "
            f"needs a file system "
            "that all nodes mount; give such a path, or for a URL set RAFFED_SCRATCH to one"
        )


def _answers(asked: list[ObjectRef[bool]], folder: Path) -> list[bool]:
    """Return the nodes' answers.

    A node may have no room for another process. So a line is logged if they take long.
    """
    patience = Patience()
    while len(ray.wait(asked, num_returns=len(asked), timeout=1.0)[0]) < len(asked):
        if waited := patience.due():
            log.warning("waiting for %d nodes to say whether they see %s, %s", len(asked), folder, waited)
    return ray.get(asked)


@ray.remote(num_cpus=0)
def _sees(path: str) -> bool:
    return Path(path).exists()


def _asked(node: str, sign: Path) -> ObjectRef[bool]:
    """Ask a node whether it sees a file."""
    return _sees.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False)).remote(
        str(sign)
    )
