"""Find the Ray cluster that a user asked for, and check that it answers before Ray itself tries."""

from __future__ import annotations

import contextlib
import os
import re
import socket
from pathlib import Path

from raffed.errors import UsageError

ANSWER_SECONDS = 10.0  # seconds in which a cluster's head has to accept a connection
CLIENT_PORT = 10001  # of ray:// addresses without a port
SPEAK_SECONDS = 10.0  # seconds in which it then has to send something
# The greeting of HTTP/2, with empty SETTINGS (RFC 9113, 3.4)
HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
SETTINGS = 4  # type of the frame in the answer, which is its fourth byte
WHERE = (
    "a cluster's head is HOST:6379 or ray://HOST:10001 (port 8265 is its dashboard); cluster/README.md "
    "starts one"
)
AUTO, LOCAL = "auto", "local"
OF_A_JOB = "RAY_JOB_CONFIG_JSON_ENV_VAR"  # Ray sets it only for the command of a job


def found(address: str) -> str:
    """Return the address of the cluster to join.

    For "auto", this is what RAY_ADDRESS says, or the cluster that `ray start` noted on this machine.

    Args:
        address: The value of --address.

    Raises:
        UsageError: There is no cluster, nothing answers, or something other than Ray answers.
    """
    if address == AUTO:
        address = os.environ.get("RAY_ADDRESS") or AUTO
    if address == AUTO:
        return _on_this_machine()
    check_answers(address)
    return address


def _on_this_machine() -> str:
    """Return the address of the cluster that `ray start` has noted on this machine, if it answers."""
    note = Path(os.environ.get("RAY_TMPDIR") or "/tmp", "ray", "ray_current_cluster")
    if not is_trusted(str(note)):
        raise UsageError(
            f"--address auto: no Ray cluster of yours is noted on this machine; leave --address out; {WHERE}"
        )
    address = note.read_text(encoding="utf-8", errors="replace").strip()
    check_answers(address)
    return address


def is_trusted(file: str) -> bool:
    """Return whether a file belongs to this user or to root. Anybody can write into the folder /tmp."""
    try:
        return os.lstat(file).st_uid in (os.getuid(), 0)
    except OSError:
        return False


def check_answers(address: str) -> None:
    """Check that something accepts connections at HOST:PORT or ray://HOST[:PORT], and that it may be Ray.

    Ray itself would try for minutes, or for ever.

    Raises:
        UsageError: Nothing answers, or it answers as something other than Ray.
    """
    if address.startswith(("http://", "https://")):
        raise UsageError(
            f"--address {address}: that is a cluster's job server, which is meant for `raffed submit "
            f"--address`; {WHERE}"
        )
    match = re.fullmatch(r"(?P<client>ray://)?(?P<host>\[[^]]+\]|[^/:]+)(?::(?P<port>\d+))?", address)
    if match is None or not (match["port"] or match["client"]):
        raise UsageError(f"--address {address} must be auto, local, HOST:PORT or ray://HOST:PORT; {WHERE}")
    try:
        where = match["host"].strip("[]"), int(match["port"] or CLIENT_PORT)
        with socket.create_connection(where, ANSWER_SECONDS) as connection:
            said = None if os.environ.get("RAY_USE_TLS", "0") != "0" else _answer(connection)
    except (OSError, OverflowError, UnicodeError) as error:
        raise UsageError(
            f"--address {address}: nothing answers there ({error}); start the cluster (cluster/README.md), "
            f"or leave --address out"
        ) from error
    if said is not None and (len(said) < 4 or said[3] != SETTINGS):
        what = "what answers there is not Ray" if said else "it takes connections and says nothing"
        raise UsageError(f"--address {address}: {what}; {WHERE}")


def _answer(connection: socket.socket) -> bytes:
    """Return the first bytes of the answer to a greeting by HTTP/2, which is Ray's protocol.

    They are empty if there is no answer.
    """
    connection.settimeout(SPEAK_SECONDS)
    with contextlib.suppress(OSError):
        connection.sendall(HELLO)
        return connection.recv(9)
    return b""
