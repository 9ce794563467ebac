"""The commands, and the text of `raffed --help`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

from raffed import __version__
from raffed.api.many_runs import COMMAND
from raffed.cli import (
    checking,
    config,
    execution,
    listing,
    reproducing,
    running,
    submitting,
    tuning,
    user_code,
)
from raffed.cli.config import Hinting
from raffed.cli.options import BriefCommand, documented, escaped, sections_of
from raffed.results.origin import commit
from raffed.results.text import tell

EPILOG = """[bold]Examples[/bold]
raffed run --method fedmr --set mu1=0.1 --split p10c2 --out runs/a
raffed run experiment.toml --seed 1
raffed compare --method fedavg --method map --out runs/both
raffed verify runs/a
raffed tune --method fedmr --out sweeps/fedmr
raffed report runs/ --out report/

[bold]Exit codes[/bold]
0: done, 1: failed, 2: the request was refused, 129, 130 or 143: stopped and can be resumed"""

app = typer.Typer(
    name="raffed",
    help=(
        "Federated learning where clients miss classes: Ray actors with private state, and results that "
        "are reproducible bit for bit."
    ),
    epilog=EPILOG,
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(asked: bool) -> None:
    if asked:
        tell(f"raffed {__version__} ({commit() or 'commit unknown'})")
        raise typer.Exit


@app.callback()
def _top(
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=_show_version,
            is_eager=True,
            help="Show the version with its commit and exit.",
        ),
    ] = False,
) -> None:
    """Read the options that stand before the command."""


COMMANDS: dict[str, dict[str, Callable[..., None]]] = {  # panel of the help → command → function
    "Runs": {
        "run": running.run,
        "compare": running.compare,
        "tune": tuning.tune,
        "reproduce": reproducing.reproduce,
        "resume": running.resume,
        "extend": running.extend,
        "fork": running.fork,
        "submit": submitting.submit,
        "jobs": submitting.jobs,
        "logs": submitting.logs,
        "stop": submitting.stop,
        "export": checking.export,
        "verify": checking.verify,
        "report": checking.report,
        "bundle": checking.bundle,
        "replay": checking.replay,
    },
    "Your own": {
        "new": user_code.new,
        "check": user_code.check,
        "leakage": user_code.leakage,
        "adopt": user_code.adopt,
    },
    "Look around": {
        "methods": listing.methods,
        "datasets": listing.datasets,
        "models": listing.models,
        "metrics": listing.metrics,
        "splits": listing.splits,
        "schema": config.schema,
        "doctor": checking.doctor,
    },
}
HINTING = ("run", "compare", "tune", "resume")  # their options may be confused with a method's arguments


def below_options(command: Callable[..., None]) -> str | None:
    """Return what the help shows below the options: the sections of the command's docstring."""
    parts = [
        f"[bold]{title}[/bold]\n{unwrapped(escaped(text)).replace(BETWEEN, BETWEEN[1:])}"
        for title, text in sections_of(command).items()
        if title not in ("", "Args")
    ]
    return "\n\n".join(parts) or None


BETWEEN = "\n\nraffed "  # two examples


def unwrapped(text: str) -> str:
    """Return a text with a line for each paragraph, which a terminal of any width can wrap."""
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in text.strip().split("\n\n"))


for panel, commands in COMMANDS.items():
    for name, command in commands.items():
        app.command(
            name,
            cls=Hinting if name in HINTING else BriefCommand,
            rich_help_panel=panel,
            help=unwrapped(sections_of(command)[""]),
            epilog=below_options(command),
            context_settings=submitting.PASSED if name == "submit" else None,
        )(documented(command))
app.command(COMMAND, hidden=True)(execution.seed_process)
list_runs = documented(listing.list_runs)
listing.runs.command("list", help=unwrapped(sections_of(list_runs)[""]))(list_runs)
app.add_typer(listing.runs, name="runs", rich_help_panel="Look around")
