"""Carry out the work of one run on the screen: what `run`, `resume`, `extend` and `fork` have in common."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from raffed.cli.execution import beginning, execute
from raffed.cli.numbers import counted
from raffed.cli.screen import Screen
from raffed.config.run import RunConfig
from raffed.experiments.trackers.base import together

if TYPE_CHECKING:
    from raffed.experiments.result import RunResult
    from raffed.experiments.run import RoundWatcher


def follow(
    work: Callable[..., RunResult],
    config: RunConfig,
    folder: Path,
    screen: Screen,
    sinks: Sequence[RoundWatcher],
    note: str = "",
) -> None:
    """Carry out a run while listening for signals, and show its rounds.

    Args:
        work: A function such as `raffed.run` whose other arguments are given. It gets `watch`, `stop`
            and `begun`.
        config: The configuration with which the run goes on.
        folder: The run's folder.
        screen: Where it is shown.
        sinks: What also receives each round.
        note: What the first line says beside the run.
    """
    with beginning(screen):
        begun = partial(
            screen.start, headline(config, folder) + note, config.method, config.federation.rounds
        )
    execute(
        lambda watch, stop: work(watch=together([watch, *sinks]), stop=stop, begun=begun),
        folder,
        screen,
    )


def headline(config: RunConfig, folder: Path) -> str:
    """Return one line about a run."""
    from raffed.data.splits import style_words  # late, because it loads NumPy

    data, rounds = config.data, counted(config.federation.rounds, "round")
    numbers = ", ".join(f"{name}={value}" for name, value in data.transform_args.items())
    args = ", ".join(f"{name}={value}" for name, value in config.args.items())
    return (
        f"{config.method}{f' with {args}' if args else ''} on {data.dataset}, {data.split}, "
        f"{config.model.name}, {rounds}, seed {config.seed}, transform "
        f"{style_words(data.transform, data.split)}{f' with {numbers}' if numbers else ''} → {folder}"
    )


__all__ = ["follow", "headline"]
