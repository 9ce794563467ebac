"""The commands, and the text of `raffed --help`."""

from __future__ import annotations

from typing import Annotated

import typer

from raffed import __version__
from raffed.api.many_runs import COMMAND
from raffed.cli import (
    bundling,
    checking,
    config,
    listing,
    many_runs,
    reproducing,
    running,
    splitting,
    submitting,
    tuning,
    user_code,
)
from raffed.cli.config import Hinting

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
        from raffed.results.origin import commit

        typer.echo(f"raffed {__version__} ({commit() or 'commit unknown'})")
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


RUN_EPILOG = """[bold]Examples[/bold]

raffed run --method fedmr --set mu1=0.1 --set mu2=0.01 --out runs/a

raffed run --method map --dataset fashion-mnist --split incomplete:100

raffed run experiment.toml --seed 1 --execution serial

raffed run --method map --seeds 5 --out runs/map

[bold]Seeds[/bold]

The runs of --seeds lie in OUT/seed-K. Each takes one process and one core, as many at a time as there
are cores; with --execution ray or --actors they share one Ray, one after the other. The same command
with the same --out continues.

[bold]Files[/bold]

A TOML file holds method and seed, then \\[args] for the method, \\[data],
\\[model] (name, args), \\[local], \\[federation], \\[privacy], \\[faults] and \\[runtime].
The keys have the names of the options above.

[bold]Stopping[/bold]

After one Ctrl-C or SIGTERM, the run finishes the round (in at most 4 s), writes a checkpoint and stops.
In the first round it stops at once."""
COMPARE_EPILOG = """[bold]Examples[/bold]

raffed compare --method fedavg --method fedmr --set fedmr.mu1=0.1 --out runs/both

raffed compare --method fedavg --method map --seeds 5 --out runs/five

All methods get the same split, participants and batches.

Repeat the same command to continue; finished runs are kept.

With --seeds the runs lie in OUT/METHOD/seed-K, and the report tests differences paired by seed, with
Holm's correction."""

TUNE_EPILOG = """[bold]Examples[/bold]

raffed tune --method fedmr --dataset digits --split p10c2 --rounds 20 --out sweeps/a

raffed tune --method fedavg --method map --grid local.lr=0.01,0.03,0.1 --budget 2h --out sweeps/b

raffed tune --resume --out sweeps/a

[bold]Where trials run[/bold]

Each trial is a federation in one process; with --actors, --clients-per-actor or --gpu-fraction it
has client actors of its own, in a placement group with whole GPUs."""

REPRODUCE_EPILOG = """[bold]Examples[/bold]

raffed reproduce --list

raffed reproduce fedmr/table6 --only fmnist

raffed reproduce map/table1 --scale full --only famnist --only fedavg,fedrs,map --seeds 3 --budget 8h"""

SUBMIT_EPILOG = """[bold]Examples[/bold]

raffed submit run exp.toml --out s3://bucket/runs/a

raffed submit --working-dir . tune --method fedmr --out /shared/sweeps/a

raffed submit reproduce map/table1 --scale full --out gs://bucket/reproduce

[bold]Token[/bold]

Ray's client sends the one in RAY_AUTH_TOKEN_PATH or ~/.ray/auth_token."""

CHECK_EPILOG = """[bold]Examples[/bold]

raffed check mylab.methods:myprox --set mu=0.1

raffed check ./net.py:SmallNet

raffed check ./losses.py:focal --kind loss

raffed check dirichlet:20:0.5"""

LEAKAGE_EPILOG = """[bold]Example[/bold]

raffed leakage --method ./prox.py:myprox --model lenet_dlg --images 1"""

NEW_EPILOG = """[bold]Example[/bold]

raffed new mylab && cd mylab && pip install -e . && pytest"""

EXTEND_EPILOG = """[bold]Example[/bold]

raffed extend runs/a --rounds 200

It refuses a run whose first rounds would be others in a longer run: FedProc's, MAP's and FedPHP's terms and
the stages of some splits depend on the total number of rounds."""

FORK_EPILOG = """[bold]Example[/bold]

raffed fork runs/a --at 40 --lr 0.01 --rounds 80 --out runs/b

Method, network, privacy and the number of clients stay."""

BUNDLE_EPILOG = """[bold]Examples[/bold]

raffed bundle runs/a --out a.zip

raffed bundle sweeps/fedmr --out fedmr.zip --license https://creativecommons.org/licenses/by/4.0/"""

REPLAY_EPILOG = """[bold]Examples[/bold]

raffed replay a.zip --out again

raffed replay fedmr.zip --out again --run fedmr/final/seed-0 --rounds 5"""

RUNS, LOOK, OWN = "Runs", "Look around", "Your own"
app.command("run", cls=Hinting, rich_help_panel=RUNS, epilog=RUN_EPILOG)(running.run)
app.command("compare", cls=Hinting, rich_help_panel=RUNS, epilog=COMPARE_EPILOG)(running.compare)
app.command("tune", cls=Hinting, rich_help_panel=RUNS, epilog=TUNE_EPILOG)(tuning.tune)
app.command("reproduce", rich_help_panel=RUNS, epilog=REPRODUCE_EPILOG)(reproducing.reproduce)
app.command("resume", cls=Hinting, rich_help_panel=RUNS)(running.resume)
app.command("extend", rich_help_panel=RUNS, epilog=EXTEND_EPILOG)(running.extend)
app.command("fork", rich_help_panel=RUNS, epilog=FORK_EPILOG)(running.fork)
app.command("submit", rich_help_panel=RUNS, epilog=SUBMIT_EPILOG, context_settings=submitting.PASSED)(
    submitting.submit
)
app.command("jobs", rich_help_panel=RUNS)(submitting.jobs)
app.command("logs", rich_help_panel=RUNS)(submitting.logs)
app.command("stop", rich_help_panel=RUNS)(submitting.stop)
app.command("export", rich_help_panel=RUNS)(checking.export)
app.command("verify", rich_help_panel=RUNS)(checking.verify)
app.command("report", rich_help_panel=RUNS)(checking.report)
app.command("bundle", rich_help_panel=RUNS, epilog=BUNDLE_EPILOG)(bundling.bundle)
app.command("replay", rich_help_panel=RUNS, epilog=REPLAY_EPILOG)(bundling.replay)
app.command(COMMAND, hidden=True)(many_runs.seed_process)
app.command("new", rich_help_panel=OWN, epilog=NEW_EPILOG)(user_code.new)
app.command("check", rich_help_panel=OWN, epilog=CHECK_EPILOG)(user_code.check)
app.command("leakage", rich_help_panel=OWN, epilog=LEAKAGE_EPILOG)(user_code.leakage)
app.command("methods", rich_help_panel=LOOK)(listing.methods)
app.command("datasets", rich_help_panel=LOOK)(listing.datasets)
app.command("models", rich_help_panel=LOOK)(listing.models)
app.command("metrics", rich_help_panel=LOOK)(listing.metrics)
app.command("splits", rich_help_panel=LOOK)(splitting.splits)
app.command("schema", rich_help_panel=LOOK)(config.schema)
app.command("doctor", rich_help_panel=LOOK)(checking.doctor)
app.add_typer(listing.runs, name="runs", rich_help_panel=LOOK)
