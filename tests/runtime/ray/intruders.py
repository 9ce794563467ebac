"""Where an own Ray listens, and programs that try to enter it: through its ports, its sockets and the files
of its processes.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import psutil

NOBODY = 65534
# It comes after the imports: another user may not be let into the folder of this Python
BECOME = f"os.setgroups([]); os.setgid({NOBODY}); os.setuid({NOBODY})"
# Calls METHOD of the server at HOST:PORT without and with a wrong token; prints the code of each answer
GRPC = """
import grpc, os, sys
def call(host, port, method, token):
    with grpc.insecure_channel(f"{host}:{port}") as channel:
        metadata = [("authorization", f"Bearer {token}")] if token else []
        try:
            channel.unary_unary(method)(b"", metadata=metadata, timeout=10)
        except grpc.RpcError as error:
            return error.code().name
        return "OK"
call("127.0.0.1", "9", "/a/b", "")  # grpc imports more with its first call
# become
for port, method in zip(sys.argv[2::2], sys.argv[3::2]):
    for token in ("", "0" * 64):
        print(method, call(sys.argv[1], port, method, token))
"""
METHODS = {  # a call of each server of Ray's that speaks gRPC
    "GCS": "/ray.rpc.JobInfoGcsService/GetAllJobInfo",
    "NodeManagerPort": "/ray.rpc.NodeManagerService/GetNodeStats",
    "ObjectManagerPort": "/ray.rpc.ObjectManagerService/Pull",
    "MetricsAgentPort": "/ray.rpc.ReporterService/GetTraceback",
    "this process": "/ray.rpc.CoreWorkerService/PushTask",
}
# Connects to every HOST:PORT, opens every other path as a socket or as a file, and prints what came of it
KNOCK = """
import os, socket, sys
# become
for place in sys.argv[1:]:
    host, mark, port = place.rpartition(":")
    try:
        if mark:
            socket.create_connection((host, int(port)), timeout=5).close()
        elif place.startswith("/proc/"):
            open(place, "rb").read()
        else:
            socket.socket(socket.AF_UNIX).connect(place)
        print(place, "LET IN")
    except OSError as error:
        print(place, type(error).__name__)
"""
OUTSIDE = "10.213.9.1"


def family() -> list[psutil.Process]:
    """This process and all its descendants."""
    return [psutil.Process(), *psutil.Process().children(recursive=True)]


def listening() -> list[tuple[int, str, int]]:
    """(process, address, port) of every socket on which this process and its descendants listen."""
    found = set()
    for process in family():
        with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            for one in process.net_connections("tcp"):
                if one.status == psutil.CONN_LISTEN:  # IPv4 may be written as an IPv6 address
                    found.add((process.pid, one.laddr.ip.removeprefix("::ffff:"), one.laddr.port))
    return sorted(found)


def run(code: str, *words: str, as_nobody: bool = False, prefix: Sequence[str] = ()) -> list[list[str]]:
    """The words of every line that a program of another process prints."""
    whole = code.replace("# become", BECOME) if as_nobody else code
    command = [*prefix, sys.executable, "-c", whole, *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    return [line.split() for line in done.stdout.splitlines()]


def answers(node: dict[str, int], as_nobody: bool = False) -> list[list[str]]:
    """(method, code) of calls of every server without the token and with a wrong one."""
    words = [word for name, method in METHODS.items() for word in (str(node[name]), method)]
    found = run(GRPC, "127.0.0.1", *words, as_nobody=as_nobody)
    assert len(found) == 2 * len(METHODS)
    return found


@contextmanager
def another_network() -> Iterator[list[str]]:
    """How commands in a namespace that reaches this one at OUTSIDE begin; [] if none can be made."""
    name = f"rfn{os.getpid() % 100_000}"
    host, peer = f"{name}o", f"{name}i"
    made = _ip(f"netns add {name}", f"link add {host} type veth peer {peer}")
    if made:
        _ip(
            f"link set {peer} netns {name}",
            f"address add {OUTSIDE}/24 dev {host}",
            f"link set {host} up",
            f"-n {name} address add 10.213.9.2/24 dev {peer}",
            f"-n {name} link set {peer} up",
            f"-n {name} link set lo up",
        )
    try:
        yield ["ip", "netns", "exec", name] if made else []
    finally:
        _ip(f"link delete {host}", f"netns delete {name}")


def _ip(*commands: str) -> bool:
    with contextlib.suppress(FileNotFoundError):
        done = [subprocess.run(["ip", *one.split()], capture_output=True).returncode for one in commands]
        return not any(done)
    return False
