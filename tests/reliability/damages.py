"""Random damages to every file of a run's and a sweep's folder, and what commands make of them.

A command either comes to the result that it has without the damage, because the file is not needed or was
restored, or it says what is wrong in one line, with a documented exit code. It never shows a traceback, and
never other numbers without a word.

A command is forked from a warm process (tests/warm.py), which saves the three CPU seconds of the imports.
Every 25th is a fresh process.
"""

from __future__ import annotations

import random
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.reliability.case_log import Case
from tests.reliability.commands import Command
from tests.reliability.readings import Reading, reading
from tests.reliability.sources import Source
from tests.reliability.targets import DOCUMENTED, TRACEBACK

LONGEST = 300.0  # seconds for one command on a busy machine
FRESH = 25
# Which process holds the folder, and client states since the last checkpoint, which resuming writes again
UNNEEDED = (".lock", "vaults/")


def flip(path: Path, other: Path, dice: random.Random) -> str:
    raw = bytearray(path.read_bytes())
    at, bit = dice.randrange(len(raw)), dice.randrange(8)
    raw[at] ^= 1 << bit
    path.write_bytes(raw)
    return f"bit {bit} of byte {at} of {len(raw)}"


def truncation(path: Path, other: Path, dice: random.Random) -> str:
    raw = path.read_bytes()
    at = dice.randrange(len(raw))
    path.write_bytes(raw[:at])
    return f"{at} of {len(raw)} bytes"


def zeroes(path: Path, other: Path, dice: random.Random) -> str:
    raw = path.read_bytes()
    ends = sorted((dice.randrange(len(raw)), dice.randrange(len(raw))))
    first, last = (0, len(raw)) if dice.random() < 0.25 else (ends[0], ends[1] + 1)
    path.write_bytes(raw[:first] + bytes(last - first) + raw[last:])
    return f"bytes {first} to {last} of {len(raw)}"


def swap(path: Path, other: Path, dice: random.Random) -> str:
    mine, its = path.read_bytes(), other.read_bytes()
    path.write_bytes(its)
    other.write_bytes(mine)
    return f"with {other}"


def removal(path: Path, other: Path, dice: random.Random) -> str:
    path.unlink()
    return "removed"


Damage = Callable[[Path, Path, random.Random], str]
DAMAGES: dict[str, Damage] = {
    "flip": flip,
    "truncation": truncation,
    "zeroes": zeroes,
    "swap": swap,
    "removal": removal,
}
OFTEN = ("flip", "flip", "flip", "truncation", "truncation", "zeroes", "zeroes", "swap", "swap", "removal")


def role(path: Path) -> str:
    """What a file is, whatever its numbers: metrics/part-N-N.parquet."""
    return re.sub(r"\d+(\.\d+)?", "N", path.as_posix())


class Damaged:
    """One case: a copy of a source in which a file is damaged, and the command that reads it."""

    def __init__(self, number: int, seed: int, made: list[Source], work: Path) -> None:
        self.key, self.number = f"damage-{seed}-{number}", number
        self._dice = random.Random(f"{seed}-damage-{number}")
        self.source = self._dice.choices(made, weights=[one.often for one in made])[0]
        self.command = self._dice.choice(self.source.commands)
        self.folder = work / f"case-{number}"
        self._harmless = False

    def carried_out(self, whole: dict[tuple[str, str], Reading]) -> Case:
        """Damage a file, call the command, and compare with `whole`, the readings of undamaged folders."""
        name = self.source.name, self.command
        if name not in whole:
            whole[name] = self._read(None)
        said = list[str]()

        def damage(run: Path) -> None:
            said.extend(self._damage(run))

        found = self._read(damage)
        kind, file, how = said
        outcome = self._outcome(whole[name], found, Path(file).name)
        if outcome in ("unchanged", "refused", "noticed"):
            shutil.rmtree(self.folder, ignore_errors=True)
        return Case(
            key=self.key,
            kind="damage",
            target=f"{self.source.name.split()[-1]}: {role(Path(file))}",
            execution=self.command,
            method="map" if "run" in self.source.name else "fedavg, fedrs",
            outcome=outcome,
            signal=kind,
            details={
                "file": file,
                "how": how,
                "code": found.code,
                "said": found.last,
                "state": self.source.name,
            },
        )

    def _damage(self, run: Path) -> tuple[str, str, str]:
        """Damage a file; each role is as likely as any other. Returns kind, file and a description."""
        files = sorted(one for one in run.rglob("*") if one.is_file() and one.stat().st_size)
        roles = sorted({role(one.relative_to(run)) for one in files})
        wanted = self._dice.choice(roles)
        path = self._dice.choice([one for one in files if role(one.relative_to(run)) == wanted])
        kind, before = self._dice.choice(OFTEN), path.read_bytes()
        alike = [
            one for one in files if one != path and one.suffix == path.suffix and one.read_bytes() != before
        ]
        other = self._dice.choice(alike or [one for one in files if one.read_bytes() != before])
        how = DAMAGES[kind](path, other, self._dice)
        self._harmless = path.relative_to(run).as_posix().startswith(UNNEEDED)
        if path.exists() and path.read_bytes() == before:  # zeroes where there were only zeroes
            kind, how = "flip", flip(path, other, self._dice)
        return kind, path.relative_to(run).as_posix(), how

    def _read(self, damage: Callable[[Path], None] | None) -> Reading:
        """What the command makes of a copy of the source."""
        shutil.rmtree(self.folder, ignore_errors=True)
        run = self.folder / "run"
        shutil.copytree(self.source.folder, run)
        if damage is not None:
            damage(run)
        words = {
            "resume": ["resume", str(run), "--execution", "serial", "--json"],
            "verify": ["verify", str(run), "--rounds", "1", "--json"],
            "report": ["report", str(run), "--out", str(self.folder / "report")],
            "tune": ["tune", "--resume", "--out", str(run), "--json"],
        }[self.command]
        command = Command(words, self.folder, fresh=self.number % FRESH == 0)
        try:
            command.wait(LONGEST)
        except TimeoutError:
            pass
        finally:
            command.end()
        return reading(self.command, command, run, self.folder / "report")

    def _outcome(self, whole: Reading, found: Reading, file: str) -> str:
        """What a damage led to, in a word."""
        if found.code is None:
            return "hang"
        if TRACEBACK in found.err + found.out:
            return "traceback"
        if found.code not in DOCUMENTED:
            return f"exit code {found.code}"
        if found.code:
            return "refused" if found.last.startswith("raffed: ") or found.verdict else "no line of raffed's"
        if found.result == whole.result:
            overlooked = self.command == "verify" and not self._harmless
            return "unnoticed" if overlooked else "unchanged"
        return "noticed" if file in found.err or "raffed: " in found.err else "unnoticed"


def damages(seed: int, made: list[Source], work: Path, part: tuple[int, int]) -> Iterator[Damaged]:
    """Cases without end, of one part of all."""
    number = part[0]
    while True:
        yield Damaged(number, seed, made, work)
        number += part[1]
