"""The address of a Ray cluster that somebody asked for: found, and known to answer as Ray does before Ray
itself tries it.
"""

from __future__ import annotations

import contextlib
import os
import re
import socket

from raffed.errors import UsageError

ANSWER_SECONDS = 10.0  # for a cluster's head to take a connection
CLIENT_PORT = 10001  # of ray:// where none is given
SPEAK_SECONDS = 3.0  # for whoever took it to say something
HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(
    (0, 0, 0, 4, 0, 0, 0, 0, 0)
)  # HTTP/2's, with empty SETTINGS (RFC 9113, 3.4)
SETTINGS = 4  # type of the frame that it is answered by, in its fourth byte
WHERE = (
    "a cluster's head is HOST:6379 or ray://HOST:10001 (port 8265 is its dashboard); cluster/README.md "
    "starts one"
)
AUTO, LOCAL = "auto", "local"
ANY_CALL = "/ray.rpc.JobInfoGcsService/GetAllJobInfo"  # one that asks for the token


def found(address: str) -> str:
    """What is to be joined for --address: itself, or for "auto" what RAY_ADDRESS says, the cluster that `ray
    start` noted on this machine, or one that runs here. Raises UsageError where there is none, or where
    nothing or something else answers.
    """
    if address == AUTO:
        address = os.environ.get("RAY_ADDRESS") or AUTO
    if address == AUTO:
        return _on_this_machine()
    check_answers(address)
    return address


def check_token(address: str) -> None:
    """That the head at HOST:PORT takes the token that Ray would send; a UsageError if not. Ray itself
    tries again for minutes.
    """
    if "://" in address or os.environ.get("RAY_USE_TLS", "0") != "0":
        return  # Ray's to refuse
    import grpc
    from ray._raylet import AuthenticationTokenLoader  # type: ignore[attr-defined]  # of the compiled part

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
    """What `ray start` noted, if it answers: the note outlives a cluster that is killed. Else a running head
    that other processes may join; a Ray that one process started for itself listens on loopback alone, and is
    not.
    """
    from ray._private import services

    noted, refused = services.find_bootstrap_address(None), ""
    if noted:
        try:
            check_answers(noted)
            return str(noted)
        except UsageError as error:
            refused = f" (the one noted at {noted} has ended: {error})"
    heads: set[str] = services.find_gcs_addresses()  # type: ignore[no-untyped-call]
    running = sorted(one for one in heads if not one.startswith(("127.", "localhost", "[::1]")))
    if not running:
        raise UsageError(
            f"--address auto: no Ray cluster runs on this machine{refused}; leave --address out; {WHERE}"
        )
    check_answers(running[0])
    return str(running[0])


def check_answers(address: str) -> None:
    """That something takes connections at HOST:PORT or ray://HOST[:PORT], and does not answer as something
    else than Ray; a UsageError if not. Ray itself tries for minutes, or for ever.
    """
    if address.startswith(("http://", "https://")):
        raise UsageError(
            f"--address {address}: that is a cluster's job server, which `raffed submit --address` takes; "
            f"{WHERE}"
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
        raise UsageError(f"--address {address}: what answers there is no Ray; {WHERE}")


def _answer(connection: socket.socket) -> bytes:
    """The first bytes that a greeting by HTTP/2, Ray's protocol, is answered by; none where nothing is
    said.
    """
    connection.settimeout(SPEAK_SECONDS)
    with contextlib.suppress(OSError):
        connection.sendall(HELLO)
        return connection.recv(9)
    return b""
