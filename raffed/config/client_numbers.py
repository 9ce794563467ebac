"""Numbers of clients as they are typed, such as 0,3,5-7."""

from __future__ import annotations

import re

from raffed.errors import UsageError


def client_numbers(what: str, text: str) -> list[int]:
    """Return the clients that a text lists, in its order.

    Args:
        what: Name of the setting, for messages.
        text: Numbers and ranges, separated by commas or spaces.

    Raises:
        UsageError: A part is neither a number nor a range.

    >>> client_numbers("clients", "0, 3, 5-7")
    [0, 3, 5, 6, 7]
    """
    found: list[int] = []
    for part in filter(None, re.split(r"[,\s]+", text.strip())):
        match = re.fullmatch(r"(\d+)(?:-(\d+))?", part)
        if match is None or int(match[2] or match[1]) < int(match[1]):
            raise UsageError(f"{what}: {part!r} is not the number of a client, as 3, nor a range, as 5-7")
        found += range(int(match[1]), int(match[2] or match[1]) + 1)
    return found


__all__ = ["client_numbers"]
