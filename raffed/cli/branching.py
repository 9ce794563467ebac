"""The commands `raffed extend` and `raffed fork`."""

from __future__ import annotations

import contextlib
import json
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from raffed.api.callbacks import callbacks
from raffed.api.running import Run
from raffed.cli.config import Tables, canonical, check_used, merged, placed
from raffed.cli.execution import beginning, execute
from raffed.cli.options import AcceptChangedCode, Flags, TrustCode, run_options
from raffed.cli.running import NOT_RUNTIME, Json, OnRound, Quiet
from raffed.cli.screen import make_screen
from raffed.config.run import RunConfig
from raffed.results.storage import fetched, mirrored

FIXED = ("method", "model.name", "model.args", "model.init", "privacy.masks", "privacy.delta")
PRIVATE = ("privacy.clip", "privacy.noise", "privacy.noise_at")


@run_options(without=NOT_RUNTIME)
def extend(
    flags: Flags,
    place: Annotated[str, typer.Argument(metavar="RUN", help="Folder or URL of a run.")],
    rounds: Annotated[int, typer.Option("--rounds", help="Number of rounds in the end.", min=1)],
    as_json: Json = False,
    quiet: Quiet = False,
    on_round: OnRound = None,
    accept: AcceptChangedCode = False,
    trust: TrustCode = False,
) -> None:
    """Continue a run to more rounds; it gets the bits of a run that had them from the start."""
    with make_screen(as_json, quiet) as screen, contextlib.ExitStack() as stack:
        with beginning(screen):
            folder = stack.enter_context(mirrored(place))
            own = callbacks(on_round or [])
            import raffed
            from raffed.runs.folder import run_config

            config = run_config(folder).changed({"federation.rounds": rounds})
            runtime = placed(config.runtime, flags)
        work = partial(raffed.extend, folder, rounds, runtime=runtime, accept_changed_code=accept)
        execute(work, Run("", config, folder, {"method": config.method}), screen, watchers=own)


def tables_of(config: RunConfig) -> Tables:
    """Return a configuration as the tables of a TOML file."""
    found: Tables = json.loads(json.dumps(config.as_dict()))
    return found


@run_options(without=[*FIXED, *PRIVATE])
def fork(
    flags: Flags,
    place: Annotated[
        str, typer.Argument(metavar="RUN", help="Folder or URL of a run, which is not changed.")
    ],
    out: Annotated[str, typer.Option("--out", metavar="PLACE", help="New folder or URL for the fork.")],
    at: Annotated[
        int | None,
        typer.Option("--at", help="Round after which it branches off; by default the last.", min=1),
    ] = None,
    as_json: Json = False,
    quiet: Quiet = False,
    on_round: OnRound = None,
    accept: AcceptChangedCode = False,
    trust: TrustCode = False,
) -> None:
    """Continue a run from one of its rounds with other settings, in a new folder."""
    with make_screen(as_json, quiet) as screen, contextlib.ExitStack() as stack:
        with beginning(screen):
            source = stack.enter_context(fetched(place, whole=True))
            folder: Path = stack.enter_context(mirrored(out))
            own = callbacks(on_round or [])
            import raffed
            from raffed.runs.folder import run_config

            tables = merged(tables_of(run_config(source)), flags)
            canonical(tables)
            check_used(tables, flags)
            config = RunConfig.from_dict(tables)
        work = partial(raffed.fork, source, config, folder, at=at, accept_changed_code=accept)
        execute(work, Run("", config, folder, {"method": config.method}), screen, watchers=own)
