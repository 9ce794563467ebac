"""Find out where a process and its descendants accept connections, from Linux's /proc."""

from __future__ import annotations

import ipaddress
import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

LISTENING = "0A"  # code of this state in /proc/net/tcp


class ListeningSocket(NamedTuple):
    """One listening TCP socket, with an address such as 127.0.0.1 or ::."""

    pid: int
    address: str
    port: int

    @property
    def loopback(self) -> bool:
        """Whether only this machine can reach it."""
        return ipaddress.ip_address(self.address).is_loopback


def listening(root: int, proc: str = "/proc") -> list[ListeningSocket]:
    """Return all sockets on which process `root` and its descendants listen.

    Only Linux is supported; on other systems there are none.
    """
    folder = Path(proc)
    if not (folder / "net" / "tcp").exists():
        return []
    sockets = {
        inode: (address, port)
        for name in ("tcp", "tcp6")
        for inode, address, port in _sockets(folder / "net" / name)
    }
    found = [
        ListeningSocket(pid, *sockets[one])
        for pid in family(root, proc)
        for one in _inodes(folder / str(pid))
        if one in sockets
    ]
    return sorted(set(found))


def family(root: int, proc: str = "/proc") -> list[int]:
    """Return a process and all its descendants."""
    children: dict[int, list[int]] = {}
    for path in Path(proc).glob("[0-9]*/stat"):
        try:
            parent = int(path.read_text(errors="replace").rpartition(")")[2].split()[1])
        except (OSError, IndexError):  # the process has ended
            continue
        children.setdefault(parent, []).append(int(path.parent.name))
    found = [root]
    for pid in found:  # the list grows while the loop runs
        found += children.get(pid, [])
    return found


def _sockets(path: Path) -> Iterator[tuple[str, str, int]]:
    """Yield (inode, address, port) of the listening sockets in one table of the kernel."""
    try:
        lines = path.read_text(encoding="ascii").splitlines()[1:]
    except OSError:
        return
    for parts in map(str.split, lines):
        if parts[3] == LISTENING:
            address, _, port = parts[1].partition(":")
            # Each word in the byte order of this machine
            words = [int(address[at : at + 8], 16) for at in range(0, len(address), 8)]
            yield parts[9], str(_plain(struct.pack(f"={len(words)}I", *words))), int(port, 16)


def _plain(address: bytes) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """Return an IPv4 address that is written as an IPv6 address as IPv4."""
    found = ipaddress.ip_address(address)
    mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
    return mapped or found


def _inodes(process: Path) -> Iterator[str]:
    """Yield the sockets that a process has open.

    There are none if it has ended or belongs to another user.
    """
    try:
        names = os.listdir(process / "fd")
    except OSError:
        return
    for name in names:
        try:
            target = os.readlink(process / "fd" / name)
        except OSError:
            continue
        if target.startswith("socket:["):
            yield target[8:-1]
