"""How the rows of a table get their settings: trials on a validation part, then runs with fresh seeds.

Every row is tried with the same number of settings and one seed. The setting with the highest validation
score runs again, with all training data and with seeds that no trial had. Only these runs are results.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from raffed.config.run import RunConfig
from raffed.config.validation import Value
from raffed.results.runfile import RUN_FILE, has_diverged, read_run

Setting: TypeAlias = Mapping[str, Value]  # argument of the method, or a field such as local.lr → value
TRIAL_SEED = 0
LAST = 10  # evaluated rounds whose mean is the score, as in the measures accuracy_mean10 and personal_mean10
SMOKE_TRIALS = 2
VALIDATION = 0.2
ENDED = ("finished", "diverged")  # states of a trial for which nothing is left to do


@dataclass(frozen=True)
class RowSearch:
    """The protocol of a table whose rows are tuned.

    Attributes:
        settings: Function from a row's run to the settings that are tried for it.
        excluded: Function from a row's run to the reason why it is not a row of this table, or "".
        remark: Function from a row's run to what a reader must know to compare it with others, or "".
        select: Which models' accuracy on the validation part chooses.
        validation: Share of the clients' training samples that trials are scored on.
        seeds: Number of runs of the chosen setting, with the seeds 1, 2, ….
    """

    settings: Callable[[RunConfig], Sequence[Setting]]
    excluded: Callable[[RunConfig], str]
    remark: Callable[[RunConfig], str] = lambda run: ""
    select: Literal["global", "personal"] = "global"
    validation: float = VALIDATION
    seeds: int = 5

    def tried(self, config: RunConfig, scale: str) -> list[Setting]:
        """Return the settings that are tried for a row; at the scale smoke only the first two."""
        return list(self.settings(config))[: SMOKE_TRIALS if scale == "smoke" else None]

    def trial(self, config: RunConfig, setting: Setting) -> RunConfig:
        """Return the run of a trial."""
        return with_setting(config, setting, {"data.validation": self.validation, "seed": TRIAL_SEED})

    def final(self, config: RunConfig, setting: Setting, number: int) -> RunConfig:
        """Return a run of the chosen setting. Its `number` is counted from 0."""
        return with_setting(config, setting, {"seed": TRIAL_SEED + 1 + number})


def with_setting(config: RunConfig, setting: Setting, beside: Setting | None = None) -> RunConfig:
    """Return the run with a setting, and with other values of the fields in `beside`."""
    fields = {name if "." in name else f"args.{name}": value for name, value in setting.items()}
    return config.changed({**fields, **(beside or {})})


def setting_name(setting: Setting) -> str:
    """Return a setting in words, such as `mu=0.1, lr=0.05`."""
    return ", ".join(f"{name.rpartition('.')[2]}={value}" for name, value in setting.items())


@dataclass(frozen=True)
class Tried:
    """A trial: its setting, the folder of its run, and what is known of it.

    Attributes:
        score: Mean of the validation accuracy over the last rounds, a fraction; NaN if it has none.
        state: "finished", "diverged", or the state of a run that has not come to its end.
        recorded: Whether this is known from item.json alone, because the run is not there any more.
    """

    setting: Setting
    folder: Path
    state: str = ""
    score: float = math.nan
    recorded: bool = False

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


def read_tried(setting: Setting, folder: Path, select: str, found: Outcome) -> Tried:
    """Return what is known of a trial from its folder, in which the outcome was found."""
    if found.diverged:
        return Tried(setting, folder, "diverged")
    score = _score(folder, select) if found.state == "finished" else math.nan
    return Tried(setting, folder, found.state, score)


def _score(folder: Path, select: str) -> float:
    from raffed.experiments.tuning.trials import recorded

    found = [values.get((select, "val")) for _, values in sorted(recorded(folder).items())]
    last = [value for value in found if value is not None][-LAST:]
    return sum(last) / len(last) if last else math.nan


def best(tried: Sequence[Tried]) -> Tried | None:
    """Return the trial with the highest score, the first of equals.

    It is None as long as one of them has not ended, and if none has a score.
    """
    scored = [one for one in tried if not math.isnan(one.score)]
    if not scored or not all(one.ended for one in tried):
        return None
    return max(scored, key=lambda one: one.score)


__all__ = [
    "Outcome",
    "RowSearch",
    "Setting",
    "Tried",
    "best",
    "read_outcome",
    "read_tried",
    "setting_name",
    "with_setting",
]
