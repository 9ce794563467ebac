"""A private record, which must never be sent."""

from __future__ import annotations

from raffed.core.messages import Private
from raffed.core.params import Params


class Secret(Private):
    w: Params
