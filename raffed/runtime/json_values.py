"""The type of what JSON can hold. `raffed.results` has the same one, which this layer may not import."""

from __future__ import annotations

from typing import TypeAlias

Json: TypeAlias = "dict[str, Json] | list[Json] | str | int | float | bool | None"
