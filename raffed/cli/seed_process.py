"""The process of one run among several that execute at the same time (raffed/commands/side_by_side.py)."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from functools import partial
from pathlib import Path

import typer

from raffed.cli.execution import begun_or_new, execute
from raffed.cli.screen import JsonScreen
from raffed.config.run import RunConfig
from raffed.config.validation import table_of
from raffed.errors import RaffedError, UsageError
from raffed.experiments.handing_on import handed_on
from raffed.references import gate

COMMAND = "seed-process"


class SeedScreen(JsonScreen):
    """Prints the events of the run for the command that started it. That command explains how it ended."""

    def stopping(self) -> None:
        """Show nothing."""

    def stopped(self, where: str, again: str) -> None:
        self._emit("stopped", **self._about, folder=where)

    def unbegun(self) -> None:
        """Show nothing."""

    def warned(self, text: str) -> None:
        """Hand a warning to the command, which shows it once and counts it."""
        self._emit("warning", **self._about, text=text)

    def failed(self, where: str, error: Exception) -> None:
        kind, message = type(error).__name__, " ".join(str(error).split())
        self._emit("failed", **self._about, folder=where, kind=kind, message=message)


def seed_process() -> None:
    """Execute the run that the first line of standard input asks for. raffed itself starts this command."""
    order = json.loads(sys.stdin.readline())
    gate.inherit(gate.Knowledge(**{name: set(texts) for name, texts in order["known"].items()}))
    threading.Thread(target=_end_with_the_command, name="raffed-command", daemon=True).start()
    config, folder = RunConfig.from_dict(table_of(order["config"])), Path(str(order["folder"]))
    screen = SeedScreen()
    with screen, handed_on(screen.warned):
        begun = partial(screen.start, "", config.method, config.federation.rounds, config.seed)
        begun()
        try:
            work = begun_or_new(config, folder, screen, begun, bool(order["accept"]))
            execute(work, folder, screen, again="the same command")
        except RaffedError as error:
            screen.failed(str(folder), error)
            raise typer.Exit(2 if isinstance(error, UsageError) else 1) from None


def _end_with_the_command() -> None:
    """Stop this run when the command that started it has gone, however it ended."""
    while os.read(sys.stdin.fileno(), 1):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
