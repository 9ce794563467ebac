"""Find out where a process and its descendants accept connections."""

from __future__ import annotations

import contextlib
import ipaddress
from typing import NamedTuple

import psutil


class ListeningSocket(NamedTuple):
    """One listening TCP socket, with an address such as 127.0.0.1 or ::."""

    pid: int
    address: str
    port: int

    @property
    def loopback(self) -> bool:
        """Whether only this machine can reach it."""
        return ipaddress.ip_address(self.address).is_loopback


def family(root: int) -> list[psutil.Process]:
    """Return a process and all its descendants."""
    return [psutil.Process(root), *psutil.Process(root).children(recursive=True)]


def listening(root: int) -> list[ListeningSocket]:
    """Return all sockets on which process `root` and its descendants listen."""
    found = set()
    for process in family(root):
        with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            for one in process.net_connections("tcp"):
                if one.status == psutil.CONN_LISTEN:
                    plain = one.laddr.ip.removeprefix("::ffff:")  # IPv4, written as an IPv6 address
                    found.add(ListeningSocket(process.pid, plain, one.laddr.port))
    return sorted(found)
