"""Where a process and its descendants take connections, as Linux tells it in /proc."""

from __future__ import annotations

import ipaddress
import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

LISTENING = "0A"  # the state in /proc/net/tcp


class ListeningSocket(NamedTuple):
    """One listening socket of TCP. address: such as 127.0.0.1 or ::."""

    pid: int
    address: str
    port: int

    @property
    def loopback(self) -> bool:
        """Whether only this machine reaches it."""
        return ipaddress.ip_address(self.address).is_loopback


def listening(root: int, proc: str = "/proc") -> list[ListeningSocket]:
    """All places where process `root` and its descendants listen; none where the system does not say (not
    Linux).
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
    """A process and all its descendants."""
    children: dict[int, list[int]] = {}
    for path in Path(proc).glob("[0-9]*/stat"):
        try:
            parent = int(path.read_text(errors="replace").rpartition(")")[2].split()[1])
        except (OSError, IndexError):  # it has ended
            continue
        children.setdefault(parent, []).append(int(path.parent.name))
    found = [root]
    for pid in found:  # grows while it is walked
        found += children.get(pid, [])
    return found


def _sockets(path: Path) -> Iterator[tuple[str, str, int]]:
    """(inode, address, port) of what listens, of one table of the kernel's."""
    try:
        lines = path.read_text(encoding="ascii").splitlines()[1:]
    except OSError:
        return
    for parts in map(str.split, lines):
        if parts[3] == LISTENING:
            address, _, port = parts[1].partition(":")
            words = [
                int(address[at : at + 8], 16) for at in range(0, len(address), 8)
            ]  # each as this machine stores it
            yield parts[9], str(_plain(struct.pack(f"={len(words)}I", *words))), int(port, 16)


def _plain(address: bytes) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """An address of IPv4 that is written as one of IPv6, as IPv4."""
    found = ipaddress.ip_address(address)
    mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
    return mapped or found


def _inodes(process: Path) -> Iterator[str]:
    """Sockets that a process has open; none where it has ended or is another user's."""
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
