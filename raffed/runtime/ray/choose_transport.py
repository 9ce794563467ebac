"""Choose the transport of a run: `--transport auto`, `ray` or `socket`."""

from __future__ import annotations

import logging
from collections.abc import Collection

from raffed.errors import UsageError
from raffed.runtime.ray.ray_calls import RayCalls
from raffed.runtime.ray.shared_memory import SHARES
from raffed.runtime.ray.socket_calls import SocketCalls
from raffed.runtime.ray.transport import Transport

REMEDY = "use --transport auto or --transport ray, which give the same result"
log = logging.getLogger(__name__)


def opened(wanted: str, through_ray: RayCalls, near: Collection[int], far: Collection[int]) -> Transport:
    """Return the transport for the actors of a pool, and log which one it is.

    Args:
        wanted: The setting `runtime.transport`. "auto" opens a socket to each actor where that is possible.
        through_ray: Calls all actors through Ray.
        near: Numbers of the actors on the driver's node.
        far: Numbers of the actors on other nodes.

    Raises:
        UsageError: Sockets are demanded, and an actor cannot have one.
    """
    if wanted == "ray":
        log.info("client actors are called through Ray")
        return through_ray
    if wanted == "socket" and far:
        raise UsageError(
            f"--transport socket: {len(far)} of {len(near) + len(far)} client actors are on other machines "
            f"than the driver; {REMEDY}"
        )
    made = SocketCalls(through_ray, near)
    if made.without:
        what = f"no socket could be opened to client actors {', '.join(map(str, sorted(made.without)))}"
        if wanted == "socket":
            raise UsageError(f"--transport socket: {what}; {REMEDY}")
        log.warning("%s: they are called through Ray, which is slower", what)
    reached = sum(map(made.reaches, near))
    log.info("%d client actors are called by socket, %d through Ray", reached, len(near) + len(far) - reached)
    return made


def pays(size: int, inline: int) -> bool:
    """Return whether sockets are faster than Ray for broadcasts of this size.

    Without shared memory, a large broadcast would be copied for every actor.

    Args:
        size: Bytes of a broadcast.
        inline: Bytes up to which Ray does not use its object store.
    """
    return SHARES or size <= inline
