"""Random kills of every process of a command, and whether the work comes to the same result after them.

A chain is one run or sweep: commands that are struck, each continued by the next, and a last one that nothing
befalls. The result must be that of an undisturbed run, which is computed once for each method and arithmetic.
Where an execution survives the death of a process (an actor, an agent), several are killed before the command
itself is.
"""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from raffed.methods import METHODS
from tests.reliability.case_log import UNCOUNTED, Case
from tests.reliability.commands import Command
from tests.reliability.executions import EXECUTIONS, SWEPT, TURNS, Execution, Result, result
from tests.reliability.strikes import LONGEST, Strike, how_it_ended, struck

FRESH = 0.2  # the share of commands that are fresh processes
AT_FIRST = 30.0  # seconds that a command on Ray is thought to take until one was seen


class Known:
    """What the chains of one suite have learned: undisturbed results, and how long executions take."""

    def __init__(self) -> None:
        self.results = dict[str, Result]()
        self.seconds = dict[str, float]()

    def took(self, execution: Execution, seconds: float) -> None:
        self.seconds[execution.name] = max(seconds, self.seconds.get(execution.name, 0.0))


class Chain:
    """One run or sweep that is struck several times.

    Its number decides method, execution and all moments together with the seed of the suite. What it learns
    is added to `known`.
    """

    def __init__(self, number: int, seed: int, work: Path, known: Known) -> None:
        self.number, self.seed = number, seed
        self.folder, self._known = work / f"chain-{number}", known
        self.execution: Execution = EXECUTIONS[TURNS[number % len(TURNS)]]
        whole = sorted({*METHODS} - {"fedfomo"})  # its clients need data.validation
        methods = SWEPT if self.execution.command[0] == "tune" else whole
        self.method = methods[(number // 3 * 5 + seed) % len(methods)]
        self.out = self.folder / "out"
        self._dice = random.Random(f"{seed}-{number}")
        self._cases = list[Case]()

    def carried_out(self, wanted: int) -> list[Case]:
        """The cases of this chain, not many more than wanted. Its folder stays where one is a fault."""
        shutil.rmtree(self.folder, ignore_errors=True)
        expected = self._undisturbed()
        words = self.execution.words(self.method, self.out)
        for turn in range(self.execution.strikes):
            if len(self._cases) >= wanted:
                break
            self._one_command(words, turn)
            words = self.execution.again(self.method, self.out, quickly=False)
        self._last(expected)
        if all(one.outcome in ("equal", *UNCOUNTED) for one in self._cases):
            shutil.rmtree(self.folder, ignore_errors=True)
        return self._cases

    def _undisturbed(self) -> Result:
        """The result of a run that nothing befalls, in one process."""
        name = f"{self.method}, {self.execution.arithmetic}"
        if name not in self._known.results:
            out = self._folder("reference") / "out"
            command = Command(self.execution.again(self.method, out, quickly=True), out.parent, fresh=False)
            code = command.wait(LONGEST)
            if code != 0:
                raise RuntimeError(f"{name} ended with {code}: {command.errors.read_text()[-600:]}")
            if not self.execution.on_ray:
                self._known.took(self.execution, time.monotonic() - command.began)
            self._known.results[name] = result(out)
        return self._known.results[name]

    def _one_command(self, words: list[str], turn: int) -> None:
        """One command, struck until it ends."""
        command = Command(words, self._folder(f"struck-{turn}"), fresh=self._dice.random() < FRESH)
        seconds = self._known.seconds.get(self.execution.name, AT_FIRST)
        seconds = min(seconds, 2 * seconds / self.execution.strikes)  # for the later commands, too
        passing = (
            self._dice.choices(self.execution.passing, k=self._dice.randint(2, 6))
            if self.execution.passing
            else []
        )
        ending = self.execution.ending[(ordinal(self.number) + turn) % len(self.execution.ending)]
        targets = [*sorted(passing, key="idle worker".__ne__), ending]
        try:
            for target in targets:
                if command.poll() is None:
                    known = {one.pid for one in command.family()}
                    self._add(struck(command, target, self.execution, seconds, self._dice), command)
                if self._cases and self._cases[-1].outcome == "hang":
                    return
            if command.poll() is None or self._cases[-1].outcome == "too late":
                self._comes_to_its_end(command, known)
            self._known.took(self.execution, time.monotonic() - command.began)
        finally:
            command.end()

    def _add(self, one: Strike, command: Command) -> None:
        self._cases.append(
            Case(
                key=f"kill-{self.seed}-{self.number}-{len(self._cases)}",
                kind="kill",
                target=one.target,
                execution=self.execution.name,
                method=self.method,
                outcome=one.outcome,
                signal=one.signal.name,
                moment={"seconds": one.seconds, "lines": one.shown},
                details={"code": command.poll(), "after": one.after, "said": said(command)},
            )
        )

    def _comes_to_its_end(self, command: Command, known: set[int]) -> None:
        """A command that survived its last strike ends, sooner or later, and nothing is left of it."""
        try:
            code = command.wait(LONGEST)
        except TimeoutError:
            self._blame("hang", command)
            return
        if why := how_it_ended(command, code, None, "", known):
            self._blame(why, command)

    def _last(self, expected: Result) -> None:
        """Nothing befalls the last command, and the result is that of an undisturbed run."""
        words = self.execution.again(self.method, self.out, quickly=True)
        command = Command(words, self._folder("last"), fresh=False)
        try:
            code = command.wait(LONGEST)
        except TimeoutError:
            code = -1
        finally:
            command.end()
        if code != 0:
            self._blame(f"not continued: exit code {code}", command)
        elif result(self.out) != expected:
            self._blame("unequal hashes", command)

    def _blame(self, outcome: str, command: Command) -> None:
        """What came to light later is the fault of all strikes of the chain that seemed good."""
        self._cases = [
            replace(one, outcome=outcome, details={**one.details, "later": said(command)})
            if one.outcome == "equal"
            else one
            for one in self._cases
        ]

    def _folder(self, name: str) -> Path:
        made = self.folder / name
        made.mkdir(parents=True, exist_ok=True)
        return made


def ordinal(number: int) -> int:
    """How many chains with this one's execution came before it."""
    name, cycles = TURNS[number % len(TURNS)], number // len(TURNS)
    return cycles * TURNS.count(name) + TURNS[: number % len(TURNS)].count(name)


def said(command: Command) -> str:
    """The last line of standard error."""
    return (command.errors.read_text(errors="replace").strip().splitlines() or [""])[-1][:300]


def kills(seed: int, work: Path, part: tuple[int, int]) -> Iterator[Chain]:
    """Chains without end, of one part of all: numbers that leave a remainder of part[0] by part[1]."""
    known, number = Known(), part[0]
    while True:
        yield Chain(number, seed, work, known)
        number += part[1]
