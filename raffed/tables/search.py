"""How the rows of a table get their settings: successive halving on a validation part, then fresh seeds.

Every row begins with the same number of settings, each tried with the same seeds. After a quarter of the
rounds the better half goes on to half of them, and after these the better half of the rest to the end. The
setting with the highest validation score there runs again, with all training data and with seeds that no
trial had. Only these runs are results.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Literal, NamedTuple, TypeAlias

from raffed.config.run import RunConfig
from raffed.config.validation import Value
from raffed.methods import known_method
from raffed.results.runfile import RUN_FILE, has_diverged, read_run

Setting: TypeAlias = Mapping[str, Value]  # argument of the method, or a field such as local.lr → value
FIRST_SEED = 10  # of the results; trials have the seeds 0, 1, …
LAST = 10  # evaluated rounds whose mean is the score, as in the measures whose names end with mean10
VALIDATION = 0.2
ENDED = ("finished", "diverged")  # states of a trial for which nothing is left to do


class Rung(NamedTuple):
    """A step of successive halving: how many settings are tried, and for which share of a run's rounds."""

    settings: int
    share: float


RUNGS = (Rung(12, 0.25), Rung(6, 0.5), Rung(3, 1.0))
SMOKE_RUNGS = (Rung(2, 0.5), Rung(1, 1.0))


@dataclass(frozen=True)
class RowSearch:
    """The protocol of a table whose rows are tuned.

    Attributes:
        settings: Function from a row's run to the settings that are tried for it.
        excluded: Function from a row's run to the reason why it is not a row of this table, or "".
        remark: Function from a row's run to what a reader must know to compare it with others, or "".
        measure: Function from a row's run to how its number is read; "" is the table's own measure. If the
            name ends with "last", the last round alone counts for the trials as well.
        select: Which models' accuracy on the validation part chooses.
        validation: Share of the clients' training samples that trials are scored on.
        tuning_seeds: Number of runs of each setting that is tried, with the seeds 0, 1, ….
        seeds: Number of runs of the chosen setting, with the seeds FIRST_SEED, ….
    """

    settings: Callable[[RunConfig], Sequence[Setting]]
    excluded: Callable[[RunConfig], str]
    remark: Callable[[RunConfig], str] = lambda run: ""
    measure: Callable[[RunConfig], str] = lambda run: ""
    select: Literal["global", "personal"] = "global"
    validation: float = VALIDATION
    tuning_seeds: int = 3
    seeds: int = 10

    def rungs(self, rounds: int, scale: str) -> list[tuple[int, int]]:
        """Return (settings, rounds) of every step, for runs of so many rounds. smoke has few of both."""
        steps = SMOKE_RUNGS if scale == "smoke" else RUNGS
        return [(step.settings, max(round(step.share * rounds), 1)) for step in steps]

    def trial(self, config: RunConfig, setting: Setting, rounds: int, seed: int) -> RunConfig:
        """Return the run of a trial."""
        beside = {"data.validation": self.validation, "seed": seed, "federation.rounds": rounds}
        return with_setting(config, setting, beside)

    def final(self, config: RunConfig, setting: Setting, number: int) -> RunConfig:
        """Return a run of the chosen setting. Its `number` is counted from 0."""
        chosen = with_setting(config, setting, {"seed": FIRST_SEED + number})
        needs = known_method(chosen.method, chosen.args).needs_held_out
        return chosen.changed({"data.validation": self.validation}) if needs else chosen

    def counted(self, config: RunConfig) -> int:
        """Return of how many last evaluated rounds a trial's score is the mean."""
        return 1 if self.measure(config).endswith("last") else LAST


def with_setting(config: RunConfig, setting: Setting, beside: Setting | None = None) -> RunConfig:
    """Return the run with a setting, and with other values of the fields in `beside`."""
    fields = {name if "." in name else f"args.{name}": value for name, value in setting.items()}
    return config.changed({**fields, **(beside or {})})


def setting_name(setting: Setting) -> str:
    """Return a setting in words, such as `mu=0.1, lr=0.05`."""
    return ", ".join(f"{name.rpartition('.')[2]}={value}" for name, value in setting.items())


@dataclass(frozen=True)
class Tried:
    """A trial: its setting, its run, and what is known of it.

    Attributes:
        rounds: Rounds of the run.
        score: Mean of the validation accuracy over the last rounds, a fraction; NaN if it has none.
        state: "finished", "diverged", or the state of a run that has not come to its end.
        recorded: Whether this is known from item.json alone, because the run is not there any more.
    """

    setting: Setting
    folder: Path
    state: str = ""
    score: float = math.nan
    recorded: bool = False
    seed: int = 0
    rounds: int = 0

    @property
    def ended(self) -> bool:
        """Return whether nothing is left to do for it."""
        return self.state in ENDED


@dataclass(frozen=True)
class Outcome:
    """The state of a run and its error, as run.json has them; both are empty without one."""

    state: str = ""
    error: str = ""

    @property
    def diverged(self) -> bool:
        """Return whether the run ended because its training diverged."""
        return has_diverged(self.state, self.error)


def read_outcome(folder: Path) -> Outcome:
    """Return how the run in a folder ended."""
    if not (folder / RUN_FILE).exists():
        return Outcome()
    about = read_run(folder)
    return Outcome(str(about.get("state")), str(about.get("error")))


def read_score(folder: Path, select: str, last: int) -> float:
    """Return the mean validation accuracy over the last evaluated rounds of a finished trial."""
    from raffed.search.folder import recorded

    scores = [values.get((select, "val")) for _, values in sorted(recorded(folder).items())]
    counted = [value for value in scores if value is not None][-last:]
    return fmean(counted) if counted else math.nan  # the same bits on every version of Python


def promoted(tried: Sequence[Sequence[Tried]], count: int) -> list[Setting]:
    """Return the settings with the highest mean scores over their seeds, the first of equals first.

    A setting with which a seed diverged is none of them, so there may be fewer than `count`. There are none
    as long as a trial has not ended.

    Args:
        tried: The trials of each setting, one for each seed.
        count: Number of settings.
    """
    if not all(trial.ended for seeds in tried for trial in seeds):
        return []
    scored = [(math.fsum(trial.score for trial in seeds) / len(seeds), seeds[0].setting) for seeds in tried]
    known = [pair for pair in scored if not math.isnan(pair[0])]
    return [setting for _, setting in sorted(known, key=lambda pair: -pair[0])[:count]]
