"""The error that names the place in an actor at which an error was raised."""

from __future__ import annotations


class RemoteError(Exception):
    """The place in an actor at which an error was raised, as the cause of that error.

    If an error cannot be sent, this error replaces it.
    """
