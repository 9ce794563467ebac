"""Where a hostile condition has its files, and what may come of it."""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.reliability.commands import POLL, Command
from tests.reliability.executions import Result, result
from tests.reliability.sources import ROUNDS, RUN, SWEEP
from tests.reliability.strikes import LONGEST
from tests.reliability.targets import TRACEBACK

Outcome = tuple[str, str]  # the outcome of a case, and the last line of standard error


class References:
    """The results of runs and sweeps that nothing befalls, each computed once in a folder."""

    def __init__(self, work: Path) -> None:
        self._work, self._known = work, dict[tuple[str, ...], Result]()

    def of(self, words: list[str], out: Path) -> Result:
        """The result of what these words begin in the folder `out`, wherever it is executed."""
        quickly = ["serial" if word == "ray" else word for word in words if word != str(out)]
        name = tuple(quickly)
        if name not in self._known:
            folder = self._work / str(len(self._known))
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            command = Command([*quickly, str(folder / "out")], folder, fresh=False)
            if command.wait(LONGEST) != 0:
                raise RuntimeError(f"{' '.join(name)}: {command.errors.read_text()[-600:]}")
            self._known[name] = result(folder / "out")
        return self._known[name]


@dataclass(frozen=True)
class Place:
    """Where a case has its files."""

    work: Path  # an empty folder
    references: References  # the results of what nothing befell
    dice: random.Random  # where random moments come from

    @property
    def out(self) -> Path:
        return self.work / "out"

    def words(self, execution: str = "serial", rounds: int = 6) -> list[str]:
        """The run."""
        run = [execution if word == "serial" else word for word in RUN]
        return [*run, *ROUNDS[2:], "--rounds", str(rounds), "--out", str(self.out)]

    def sweep(self) -> list[str]:
        """A sweep of one method."""
        return [*SWEEP, "--method", "fedavg", "--out", str(self.out)]

    def again(self, words: list[str]) -> list[str]:
        """The words that continue the work which these words begin."""
        if (self.out / "sweep.json").exists():
            return ["tune", "--resume", "--json", "--out", str(self.out)]
        begun = (self.out / "run.json").exists()
        return ["resume", str(self.out), "--execution", "serial", "--json"] if begun else words

    def begun(
        self,
        words: list[str] | None = None,
        name: str = "first",
        *,
        environment: Mapping[str, str] | None = None,
        within: Sequence[str] = (),
    ) -> Command:
        """A command that has begun. `within`: the words of a program that executes it."""
        logs = self.work / name
        logs.mkdir(parents=True, exist_ok=True)
        return Command(
            words or self.words(), logs, fresh=bool(within), environment=environment, within=within
        )

    def is_expected(self, words: list[str] | None = None) -> bool:
        """Whether the result is that of work that nothing befell."""
        return result(self.out) == self.references.of(words or self.words(), self.out)

    def ends_equal(self, words: list[str] | None = None) -> str:
        """Continue the work. Returns what is wrong with its result; empty if nothing is."""
        command = self.begun(self.again(words or self.words()), "last")
        code = command.wait(LONGEST)
        if code != 0:
            return f"not continued: exit code {code}: {command.errors.read_text()[-200:]}"
        return "" if self.is_expected(words) else "unequal hashes"


def judged(code: int, err: str, allowed: tuple[int, ...] = (1, 2)) -> str:
    """What is wrong with the end of a command that was refused or failed; empty if nothing is."""
    if TRACEBACK in err:
        return "traceback"
    if code not in allowed:
        return f"exit code {code}"
    said = [line for line in err.splitlines() if line.startswith("raffed: ")]
    return "" if said else "no line of raffed's"


def last(err: str) -> str:
    return (err.strip().splitlines() or [""])[-1][:300]


def wait_for(command: Command, lines: int) -> None:
    """Wait until the command has shown so many rounds, or has ended."""
    while command.lines() < lines and command.poll() is None:
        time.sleep(POLL / 4)
