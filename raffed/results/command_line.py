"""The command that a process works for, so that run.json can name it.

It is kept in the environment. Processes that a command starts, such as those of seeds or Ray's workers,
inherit it, and record what the user typed.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from raffed.results.redact import without_secrets
from raffed.results.visible import visible

VARIABLE = "RAFFED_COMMAND"


@contextmanager
def commanded(words: Sequence[str]) -> Iterator[None]:
    """Note the words of a command line while the block runs, without secrets.

    A process that another command has started keeps that command.
    """
    if VARIABLE in os.environ:
        yield
        return
    os.environ[VARIABLE] = visible(without_secrets(shlex.join(["raffed", *words])))
    try:
        yield
    finally:
        os.environ.pop(VARIABLE, None)


def command_line() -> str:
    """Return the command that this process works for; empty if it is none of raffed's."""
    return os.environ.get(VARIABLE, "")
