"""An actor that answers in every way an actor can, for tests of transports. It starts without torch."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import ray

from raffed.errors import NumericsError
from raffed.runtime.ray import serving


class StubbornError(Exception):
    """Cannot be sent."""

    def __reduce__(self) -> Any:
        raise TypeError("stays here")


class ParticularError(Exception):
    """Can be packed but not unpacked, because its arguments are not those of its __init__."""

    def __init__(self, what: str, where: str) -> None:
        super().__init__(f"{what} in {where}")


def no_folder() -> Path:
    raise OSError("no folder for a socket")


class Echo(serving.Serving):
    def __init__(self, sockets: str | None = None, room: bool = True) -> None:
        if sockets is not None:
            os.environ["RAY_TMPDIR"] = sockets
        if not room:
            serving.socket_folder = no_folder

    def echo(self, value: Any) -> Any:
        return value

    def pid(self) -> int:
        return os.getpid()

    def secret(self) -> Any:
        from raffed.core.params import Params
        from tests.runtime.ray.private_record import Secret

        return Secret(Params({}))

    def diverge(self) -> None:
        raise NumericsError("the loss is nan")

    def object(self) -> None:
        raise StubbornError("no")

    def complain(self) -> None:
        raise ParticularError("a knot", "the loss")

    def nap(self) -> None:
        time.sleep(30)


ACTOR = ray.remote(num_cpus=0)(Echo)
