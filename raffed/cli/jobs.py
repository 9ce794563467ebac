"""The commands `raffed jobs`, `logs` and `stop`: look after the jobs that `raffed submit` has started."""

from __future__ import annotations

import sys
import time
from typing import Annotated

import typer

from raffed.cli.numbers import duration
from raffed.results.storage import is_url
from raffed.results.text import visible
from raffed.results.url import check_url

Address = Annotated[
    str | None,
    typer.Option("--address", help="Job server; without it: the one in RAY_API_SERVER_ADDRESS."),
]
Id = Annotated[str, typer.Argument(metavar="ID", help="Id of the job, as `raffed jobs` lists it.")]


def check_address(address: str | None) -> None:
    """Refuse the URL of a job server with a secret in it."""
    if address is not None and is_url(address):
        check_url(address)


def jobs(address: Address = None) -> None:
    """List the jobs of a Ray cluster, the newest first: id, state, time and command."""
    check_address(address)
    from raffed.cli.tables import show
    from raffed.runtime.ray.jobs import Jobs

    found = Jobs(address).listed()
    if not found:
        typer.echo("no job was submitted to this cluster")
        return
    now = time.time()
    rows = [
        (one.name, one.state, duration((one.ended or now) - one.began) if one.began else "–", one.command)
        for one in found
    ]
    show(("id", "state", "time", "command"), rows, right="time")


def logs(
    name: Id,
    address: Address = None,
    follow: Annotated[
        bool, typer.Option("--follow/--no-follow", help="Go on until the job ends, and end as it does.")
    ] = False,
) -> None:
    """Print the log of a job; with --follow until the job ends, with its exit code."""
    check_address(address)
    from raffed.cli.submitting import followed
    from raffed.runtime.ray.jobs import Jobs

    server = Jobs(address)
    if follow:
        server.check_known(name)
        raise typer.Exit(followed(server, name))
    print(server.log(name), end="", flush=True)


def stop(name: Id, address: Address = None) -> None:
    """Stop a job. Its runs get a signal, write a checkpoint and can be resumed."""
    check_address(address)
    from raffed.runtime.ray.jobs import Jobs

    server = Jobs(address)
    said = f"job {name} was asked to stop" if server.stop(name) else f"job {name} had ended already"
    print(f"raffed: {visible(said)}", file=sys.stderr, flush=True)


__all__ = ["check_address", "jobs", "logs", "stop"]
