"""Machines on slow lines, for real in small: network namespaces on a switch, each on a line of its own.

A line carries RATE bits a second in each direction and delays what its machine sends by DELAY seconds. The 20
ms are one way, which is what `tc qdisc add dev NIC root netem delay 20ms` on every machine does: a question
and its answer take 40 ms. What waits for a line is at most QUEUE frames, as with netem; the rest is dropped.

Where the kernel has `sch_netem`, the switch is a bridge and the lines are veth pairs under `tc netem`. On a
kernel that was built without it (Firecracker's) the lines are TAP devices, and the switch is a process that
does to each frame what netem does: `python -m tests.cluster.netem`.
"""

from __future__ import annotations

import contextlib
import fcntl
import heapq
import itertools
import json
import os
import select
import shutil
import struct
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

RATE, DELAY, QUEUE = 100e6, 0.02, 1000
# What tc does at a line's two ends, that of the switch and that of the machine; None for TAP devices
SHAPES: tuple[str, str] | None = (
    f"netem rate {RATE:.0f}bit limit {QUEUE}",
    f"netem rate {RATE:.0f}bit limit {QUEUE} delay {DELAY * 1000:.0f}ms",
)
TAP = 0x0002 | 0x1000  # IFF_TAP, IFF_NO_PI
SET = 0x400454CA  # TUNSETIFF
SWITCH = [sys.executable, "-m", "tests.cluster.netem"]


@dataclass(frozen=True)
class Host:
    """A machine: the words before a command that is to run there, its address and its namespace."""

    name: str
    address: str

    @property
    def prefix(self) -> list[str]:
        return ["ip", "netns", "exec", self.name]

    def traffic(self) -> tuple[int, int]:
        """Return the bytes that its line has brought and taken away, frames with their headers."""
        (link,) = json.loads(_ip(f"-n {self.name} -s -j link show dev line"))
        return int(link["stats64"]["rx"]["bytes"]), int(link["stats64"]["tx"]["bytes"])

    def cut(self) -> None:
        """Take the line away, so that not even the end of a connection reaches the others."""
        _ip(f"-n {self.name} link set line down")


def _ip(words: str) -> str:
    return subprocess.run(["ip", *words.split()], capture_output=True, text=True, check=True).stdout


def obstacle() -> str:
    """Return why no machines can be made here, or nothing."""
    if os.getuid() or not all(map(shutil.which, ("ip", "tc"))):
        return "needs root and iproute2"
    name = f"rfn{os.getpid()}"
    if subprocess.run(["ip", "netns", "add", name], capture_output=True).returncode:
        return "network namespaces are not permitted here"
    _ip(f"netns delete {name}")
    return ""


class Network:
    """So many machines; they, their lines and the switch are gone when the block is left.

    Attributes:
        hosts: The machines.
        by: What delays the lines: "tc netem", or "a switch in user space".
    """

    def __init__(self, machines: int) -> None:
        self._name = f"rf{os.getpid() % 100_000}"
        self.hosts = [Host(f"{self._name}n{i}", f"10.77.0.{i + 1}") for i in range(machines)]
        self.by = ""
        self._switch: subprocess.Popen[str] | None = None

    def __enter__(self) -> Network:
        try:
            for host in self.hosts:
                _ip(f"netns add {host.name}")
            try:
                self._by_tc()
            except subprocess.CalledProcessError:  # the kernel has no netem
                self._without_links()
                self._in_user_space()
            for number, host in enumerate(self.hosts):
                inside = f"-n {host.name}"
                _ip(f"{inside} link set {self._name}i{number} name line")
                _ip(f"{inside} address add {host.address}/24 dev line")
                _ip(f"{inside} link set line up")
                _ip(f"{inside} link set lo up")
        except BaseException:
            self.__exit__()
            raise
        return self

    def _by_tc(self) -> None:
        if SHAPES is None:
            self._in_user_space()
            return
        self.by = f"tc {SHAPES[1].split()[0]}"
        _ip(f"link add {self._name}b type bridge")
        _ip(f"link set {self._name}b up")
        for number, host in enumerate(self.hosts):
            out, line = f"{self._name}o{number}", f"{self._name}i{number}"
            _ip(f"link add {out} master {self._name}b type veth peer {line}")
            _ip(f"link set {out} up")
            for device, shape in zip((out, line), SHAPES, strict=True):
                _ip(f"link set {device} gso_max_segs 1")  # what it counts are frames
                words = f"tc qdisc add dev {device} root {shape}"
                subprocess.run(words.split(), capture_output=True, check=True)
            _ip(f"link set {line} netns {host.name}")

    def _in_user_space(self) -> None:
        self.by = "a switch in user space"
        lines = [f"{self._name}i{number}" for number in range(len(self.hosts))]
        self._switch = subprocess.Popen(
            [*SWITCH, str(RATE), str(DELAY), *lines],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[2],
        )
        assert self._switch.stdout is not None
        self._switch.stdout.readline()  # the devices are there
        for line, host in zip(lines, self.hosts, strict=True):
            _ip(f"link set {line} netns {host.name}")

    def _without_links(self) -> None:
        for number in range(len(self.hosts)):
            subprocess.run(["ip", "link", "delete", f"{self._name}o{number}"], capture_output=True)
        subprocess.run(["ip", "link", "delete", f"{self._name}b"], capture_output=True)

    def __exit__(self, *_: object) -> None:
        if self._switch is not None:
            self._switch.kill()
            self._switch.wait()
        for host in self.hosts:
            subprocess.run(["ip", "netns", "delete", host.name], capture_output=True)
        self._without_links()


class Line:
    """One direction of a line. It takes a frame after the other."""

    def __init__(self, rate: float) -> None:
        self._rate, self._free = rate, 0.0

    def through(self, now: float, size: int) -> float | None:
        """Return when a frame that comes now has passed; None if too much waits."""
        if (self._free - now) * self._rate > QUEUE * 1514 * 8:
            return None
        self._free = max(now, self._free) + size * 8 / self._rate
        return self._free


def switch(rate: float, delay: float, names: Sequence[str]) -> None:
    """Make the TAP devices and pass frames between them until stdin ends."""
    os.nice(-20)  # a switch does not wait for the machines' processes
    taps = []
    for name in names:
        taps.append(os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK))
        fcntl.ioctl(taps[-1], SET, struct.pack("16sH22x", name.encode(), TAP))
    print("ready", flush=True)
    out, into = {tap: Line(rate) for tap in taps}, {tap: Line(rate) for tap in taps}
    homes: dict[bytes, int] = {}  # address → line, as a switch learns them
    waiting: list[tuple[float, int, int, bool, bytes]] = []
    number = itertools.count()

    def take(line: Line, late: float, tap: int, arrives: bool, frame: bytes) -> None:
        if (passed := line.through(time.monotonic(), len(frame))) is not None:
            heapq.heappush(waiting, (passed + late, next(number), tap, arrives, frame))

    while True:
        wait = max(0.0, waiting[0][0] - time.monotonic()) if waiting else None
        ready, _, _ = select.select([0, *taps], [], [], wait)
        if 0 in ready:
            return
        for tap in ready:
            for _ in range(32):
                try:
                    frame = os.read(tap, 65536)
                except OSError:  # no more, or the device is down
                    break
                homes[frame[6:12]] = tap
                take(out[tap], delay, tap, False, frame)
        while waiting and waiting[0][0] <= time.monotonic():
            _, _, tap, arrives, frame = heapq.heappop(waiting)
            if arrives:
                with contextlib.suppress(OSError):  # the device is down
                    os.write(tap, frame)
                continue
            known = homes.get(frame[:6])
            for other in [known] if known is not None else [one for one in taps if one != tap]:
                take(into[other], 0.0, other, True, frame)


if __name__ == "__main__":
    switch(float(sys.argv[1]), float(sys.argv[2]), sys.argv[3:])
