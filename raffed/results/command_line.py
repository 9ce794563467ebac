"""The command that a process works for, so that run.json can name it.

It is kept in the environment. Processes that a command starts, such as those of seeds, inherit it, and record
what the user typed. Workers of Ray are told it.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from raffed.results.text import visible, without_secrets

VARIABLE = "RAFFED_COMMAND"


@contextmanager
def commanded(words: Sequence[str]) -> Iterator[None]:
    """Note the words of a command line while the block runs, without secrets.

    A process that another command has started keeps that command.
    """
    if VARIABLE in os.environ:
        yield
        return
    os.environ[VARIABLE] = _in_environment(visible(without_secrets(shlex.join(["raffed", *words]))))
    try:
        yield
    finally:
        os.environ.pop(VARIABLE, None)


def work_for(command: str) -> None:
    """Note in a worker of Ray's for which command it works.

    The Ray may be older than the command, and then the worker has not inherited it.

    Args:
        command: What `command_line` returns in the process that asks for the work.
    """
    os.environ.pop(VARIABLE, None)
    if command:
        os.environ[VARIABLE] = _in_environment(command)


def _in_environment(text: str) -> str:
    """Return a text that the environment can hold: in the locale C it has no letters beyond ASCII."""
    encoding = sys.getfilesystemencoding()
    return text.encode(encoding, "backslashreplace").decode(encoding)


def command_line() -> str:
    """Return the command that this process works for; empty if it is none of raffed's."""
    return os.environ.get(VARIABLE, "")
