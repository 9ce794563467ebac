"""Commands and options that earlier versions had: what to do instead."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from raffed.errors import UsageError

STANDING = "start one with `ray start --head`, join it with --address auto, and end it with `ray stop`"
GONE = {
    "up": f"raffed does not hold a Ray any more; {STANDING}",
    "down": "raffed does not hold a Ray any more; `ray stop` ends one that `ray start --head` has started",
    "--allow": "leave it out: a bundle is not searched any more, so read it before you publish it",
    "--address warm": f"raffed does not hold a Ray any more; {STANDING}",
    "cache": "raffed removes no arrays of own data by itself; delete files of ~/.cache/raffed/arrays",
    "--execution auto": "`raffed doctor` with the options of the run says what is fastest here",
    "--log-json": "`--json` after the command writes one JSON object a line to stdout (docs/events.md)",
}
"""A command, or an option with its value → what to do instead."""


def refuse_gone(words: Sequence[str]) -> None:
    """Refuse a command or an option that this version does not have any more.

    Args:
        words: The words of the command line, without the program.

    Raises:
        UsageError: There is one. The message says what to do instead.
    """
    commands = [word for word in words if not word.startswith("-")][:1]
    options = [" ".join(pair) for pair in pairwise(words)]
    options += [word.replace("=", " ", 1) for word in words if word.startswith("--")]
    for typed in (*commands, *options, *words):
        if typed in GONE and (typed.startswith("--") or typed in commands):
            raise UsageError(f"{typed}: {GONE[typed]}")


__all__ = ["GONE", "refuse_gone"]
