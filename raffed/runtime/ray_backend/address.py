"""Find the Ray cluster that a user asked for, and check that it answers before Ray itself tries."""

from __future__ import annotations

import contextlib
import os
import re
import socket

from raffed.errors import UsageError

ANSWER_SECONDS = 10.0  # seconds in which a cluster's head has to accept a connection
CLIENT_PORT = 10001  # of ray:// addresses without a port
SPEAK_SECONDS = 3.0  # seconds in which it then has to send something
# The greeting of HTTP/2, with empty SETTINGS (RFC 9113, 3.4)
HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
SETTINGS = 4  # type of the frame in the answer, which is its fourth byte
WHERE = (
    "a cluster's head is HOST:6379 or ray://HOST:10001 (port 8265 is its dashboard); cluster/README.md "
    "starts one"
)
AUTO, LOCAL = "auto", "local"
ANY_CALL = "/ray.rpc.JobInfoGcsService/GetAllJobInfo"  # a call for which the head asks for the token

OF_A_JOB = "RAY_JOB_CONFIG_JSON_ENV_VAR"  # Ray sets it only for the command of a job


def meant(address: str | None) -> str:
    """Return the address, or what none stands for: the cluster of a job, or a Ray of this process."""
    if address is not None:
        return address
    return AUTO if OF_A_JOB in os.environ else LOCAL


def same_ray(one: str, other: str) -> bool:
    """Return whether two values of --address name one Ray, such as "auto" and the address behind it."""
    if one == other or LOCAL in (one, other):
        return one == other
    try:
        return found(one) == found(other)
    except UsageError:  # one of them does not exist
        return False


def found(address: str) -> str:
    """Return the address of the cluster to join.

    For "auto", this is what RAY_ADDRESS says, or the cluster that `ray start` noted on this machine, or one
    that runs here.

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


def check_token(address: str) -> None:
    """Check that the cluster's head at HOST:PORT accepts the token that Ray would send.

    Ray itself would retry for minutes.

    Raises:
        UsageError: It does not accept the token.
    """
    if "://" in address or os.environ.get("RAY_USE_TLS", "0") != "0":
        return  # Ray's to refuse
    import grpc
    from ray._raylet import AuthenticationTokenLoader  # type: ignore[attr-defined]  # in Ray's compiled part

    headers = AuthenticationTokenLoader.instance().get_token_for_http_header()
    with grpc.insecure_channel(address, options=[("grpc.enable_http_proxy", 0)]) as channel:
        try:
            channel.unary_unary(ANY_CALL)(b"", metadata=list(headers.items()), timeout=SPEAK_SECONDS)
        except grpc.RpcError as error:
            if error.code() != grpc.StatusCode.UNAUTHENTICATED:
                return
            with_one = "refuses the token" if headers else "asks for a token, and none is sent"
            raise UsageError(
                f"--address {address}: the cluster {with_one}; set RAY_AUTH_MODE=token and "
                f"RAY_AUTH_TOKEN_PATH to a file with "
                "its token (cluster/README.md), or leave --address out for an own Ray"
            ) from error


def _on_this_machine() -> str:
    """Return the address of a cluster on this machine.

    It is the one that `ray start` noted, if it answers. The note outlives a cluster that is killed. Otherwise
    it is a running head that other processes may join. A Ray that a process has started for itself listens on
    loopback only, so it does not count.
    """
    from ray._private import services, utils

    noted, refused = None, ""
    if is_trusted(utils.get_ray_address_file(None)):  # type: ignore[attr-defined]
        noted = services.find_bootstrap_address(None)
    if noted:
        try:
            check_answers(noted)
            return str(noted)
        except UsageError as error:
            refused = f" (the one noted at {noted} has ended: {error})"
    heads: set[str] = services.find_gcs_addresses()  # type: ignore[no-untyped-call]
    near = ("127.", "localhost", "[::1]")
    running = sorted(one for one in heads if not one.startswith(near) and is_of_this_user(one))
    if not running:
        raise UsageError(
            f"--address auto: no Ray cluster runs on this machine{refused}; leave --address out; {WHERE}"
        )
    check_answers(running[0])
    return str(running[0])


def is_trusted(file: str) -> bool:
    """Return whether a file belongs to this user or to root. Anybody can write into the folder /tmp."""
    try:
        return os.lstat(file).st_uid in (os.getuid(), 0)
    except OSError:
        return False


def is_of_this_user(head: str) -> bool:
    """Return whether a process of this user or of root has joined the cluster with this head."""
    from ray._private import services

    return any(
        one.info["uids"] is not None
        and one.info["uids"].real in (os.getuid(), 0)
        and f"={head}" in " ".join(one.info["cmdline"] or [])
        for one in services.psutil.process_iter(["cmdline", "uids"])  # type: ignore[attr-defined]
    )


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
        return  # Ray's to refuse
    try:
        where = match["host"].strip("[]"), int(match["port"] or CLIENT_PORT)
        with socket.create_connection(where, ANSWER_SECONDS) as connection:
            said = b"" if os.environ.get("RAY_USE_TLS", "0") != "0" else _answer(connection)
    except (OSError, OverflowError, UnicodeError) as error:
        raise UsageError(
            f"--address {address}: nothing answers there ({error}); start the cluster (cluster/README.md), "
            f"or leave --address out"
        ) from error
    if len(said) > 3 and said[3] != SETTINGS:
        raise UsageError(f"--address {address}: what answers there is not Ray; {WHERE}")


def _answer(connection: socket.socket) -> bytes:
    """Return the first bytes of the answer to a greeting by HTTP/2, which is Ray's protocol.

    They are empty if there is no answer.
    """
    connection.settimeout(SPEAK_SECONDS)
    with contextlib.suppress(OSError):
        connection.sendall(HELLO)
        return connection.recv(9)
    return b""
