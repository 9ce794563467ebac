"""An actor that answers in every way an actor can, for tests of transports. It starts without torch."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import ray

from raffed.errors import NumericsError
from raffed.runtime.ray import serving


def no_folder() -> Path:
    raise OSError("no folder for a socket")


def a_secret() -> Any:
    """A private record, which must never be sent. Its class is made here, because it needs torch."""
    from raffed.core.messages import Private
    from raffed.core.params import Params

    class Secret(Private):
        w: Params

    return Secret(Params({}))


class Echo(serving.Serving):
    def __init__(self, room: bool = True) -> None:
        if not room:
            serving.socket_folder = no_folder

    def echo(self, value: Any) -> Any:
        return value

    def pid(self) -> int:
        return os.getpid()

    def secret(self) -> Any:
        return a_secret()

    def diverge(self) -> None:
        raise NumericsError("the loss is nan")

    def nap(self) -> None:
        time.sleep(30)


ACTOR = ray.remote(num_cpus=0)(Echo)
