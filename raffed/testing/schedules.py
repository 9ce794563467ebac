"""The contract of a schedule: a factor that depends on how far training is, and on nothing else."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from raffed.config.optimizers import Schedule
from raffed.config.training import Local
from raffed.config.validation import Value
from raffed.core.training.rates import schedule_of
from raffed.testing.findings import Check, Findings, found_by, named, typed
from raffed.testing.generators import global_draws

LENGTHS = (1, 2, 7, 100)  # numbers of units in a whole run


@dataclass(frozen=True)
class ScheduleSubject:
    """A schedule to be checked, with its arguments."""

    schedule: Schedule

    def factors(self, total: int) -> list[float]:
        """Return the factors of a run of `total` units, from its beginning to its end."""
        return [self.schedule(done, total) for done in range(total)]


def check_schedule(
    schedule: str | Schedule, args: Mapping[str, Value] | None = None, *, name: str | None = None
) -> Findings:
    """Check a schedule of the learning rate.

    Args:
        schedule: A reference such as "mylab.rates:halves", a name such as "cosine", or the function.
        args: Its arguments, other than `done` and `total`.
        name: What messages call the schedule.

    Returns:
        One outcome for each check.

    Raises:
        UsageError: There is no such schedule, or it does not take these arguments.

    Example:
        >>> check_schedule("cosine", {"lowest": 0.1}).ok
        True
    """
    local = Local(schedule=typed(schedule), schedule_args=args or {})
    return found_by(SCHEDULE_CHECKS, ScheduleSubject(schedule_of(local)), "schedule", name or named(schedule))


def _factors(subject: ScheduleSubject) -> str:
    for done, factor in enumerate(subject.factors(LENGTHS[-1])):
        if not isinstance(factor, int | float) or not math.isfinite(factor) or factor < 0:
            return f"{factor!r} is returned for done = {done}; it must be a number of 0 or more"
    return ""


def _lengths(subject: ScheduleSubject) -> str:
    for total in LENGTHS:
        for done in range(total):
            factor = subject.schedule(done, total)
            if not math.isfinite(factor) or factor < 0:
                return f"{factor} is returned for done = {done}, total = {total}"
    return ""


def _trains(subject: ScheduleSubject) -> str:
    for total in LENGTHS:
        if not any(subject.factors(total)):
            return (
                f"every factor of a run of {total} is 0, so that nothing is trained; done // total is 0 "
                "everywhere, and done / total is not"
            )
    return ""


def _no_memory(subject: ScheduleSubject) -> str:
    for total in LENGTHS:
        forwards = subject.factors(total)
        backwards = [subject.schedule(done, total) for done in reversed(range(total))][::-1]
        if forwards != backwards:
            return (
                "the factors depend on the calls before; compute them from `done` and `total`, since a run "
                "that is resumed and each of the workers ask for other ones first"
            )
    return ""


def _generator(subject: ScheduleSubject) -> str:
    return global_draws(lambda: subject.factors(LENGTHS[-1]))


_LOOKS: tuple[tuple[str, str, Callable[[ScheduleSubject], str]], ...] = (
    (
        "returns-factors",
        "It returns a finite number of 0 or more, by which the rate is multiplied.",
        _factors,
    ),
    ("any-length", "A run may have any number of rounds, also one.", _lengths),
    ("trains", "The rate is not 0 throughout a run.", _trains),
    ("no-memory", "The factor depends on `done` and `total` alone.", _no_memory),
    ("no-global-generator", "The global random generators are left alone.", _generator),
)
SCHEDULE_CHECKS: tuple[Check[ScheduleSubject], ...] = tuple(Check(*one) for one in _LOOKS)
