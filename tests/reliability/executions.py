"""How the suite executes a run or a sweep, what continues it, and what its result is."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from raffed.methods import build_method
from tests.reliability.targets import ACTORS, ENDING, LOST, TRIALS
from tests.tiny import SHORT

TINY = ("--split", "p4c5", "--local-test", "0.2", "--epochs", "1", "--batch-size", "128")
Result = dict[str, object]
ON_RAY = (*LOST, *LOST, *ENDING)  # the latter three are the targets of serial runs as well


@dataclass(frozen=True)
class Execution:
    """One way to execute."""

    name: str  # as the log names it
    command: tuple[str, ...]  # the words before the settings
    options: tuple[str, ...]  # the words that choose the way
    rounds: int  # of a run
    passing: tuple[str, ...] = ()  # targets whose death the command survives, or ends with exit code 1
    ending: tuple[str, ...] = ENDING  # those whose death ends the command. Chains have them by turns
    strikes: int = 1  # how many commands of a chain are struck

    def words(self, method: str, out: Path) -> list[str]:
        """The command that begins the work."""
        args = [f"{name}={value}" for name, value in SHORT.get(method, {}).items()]
        return [
            *self.command,
            *("--method", method, *TINY, *self.options, "--rounds", str(self.rounds)),
            *(("--select", "personal") if self.command[0] == "tune" and not _has_global(method) else ()),
            *(word for one in args for word in ("--set", one)),
            *("--json", "--out", str(out)),
        ]

    def again(self, method: str, out: Path, *, quickly: bool) -> list[str]:
        """The command that continues the work. `quickly`: in one process, which gives the same bits."""
        if self.command[0] == "tune" and (out / "sweep.json").exists():
            return ["tune", "--resume", "--json", "--out", str(out)]
        if self.command[0] != "run" or "--seeds" in self.options or not (out / "run.json").exists():
            words = self.words(method, out)
            return [*words, "--execution", "serial"] if quickly and "ray" in self.options else words
        return ["resume", str(out), "--json", *(("--execution", "serial") if quickly else ())]

    @property
    def arithmetic(self) -> str:
        """Executions of equal arithmetic and rounds have the same result."""
        cohort = "stacked" if "--cohort" in self.options else "one by one"
        seeds = "seeds" if "--seeds" in self.options else "one seed"
        return f"{self.command[0]}, {cohort}, {seeds}, {self.rounds} rounds"

    @property
    def on_ray(self) -> bool:
        return self.command[0] == "tune" or "ray" in self.options


SERIAL, RAY = (
    ("--execution", "serial", "--checkpoint-every", "3"),
    ("--execution", "ray", "--checkpoint-every", "4"),
)
STACKS = ("--cohort", "4")
EXECUTIONS = {
    one.name: one
    for one in (
        Execution("serial", ("run",), SERIAL, 100, strikes=6),
        Execution("stacked", ("run",), (*SERIAL, *STACKS), 100, strikes=6),
        Execution("seeds", ("run",), (*SERIAL, "--seeds", "2"), 20, passing=("seed process",), strikes=2),
        Execution("ray", ("run",), RAY, 100, passing=ACTORS, ending=ON_RAY),
        Execution("ray, stacked", ("run",), (*RAY, *STACKS), 100, passing=ACTORS, ending=ON_RAY),
        Execution(
            "sweep",
            ("tune",),
            ("--grid", "local.lr=0.01,0.03,0.1", "--seeds", "1", "--checkpoint-every", "4"),
            20,
            passing=TRIALS,
            ending=ON_RAY,
            strikes=2,
        ),
    )
}
# Neighbours have the same method, so that they have the same reference where their arithmetic is the same
TURNS = (  # a chain on Ray costs as much as five that are serial
    *("ray", "serial", "serial", "ray, stacked", "stacked", "stacked"),
    *("serial", "ray", "serial", "sweep", "seeds", "stacked"),
)
SWEPT = ("ditto", "fedavg", "map", "scaffold")  # the reference of a sweep is another sweep, which starts Ray


def _has_global(method: str) -> bool:
    """Whether a sweep can choose by the global model of a method."""
    return build_method(method, SHORT.get(method, {})).has_global


def result(out: Path) -> Result:
    """What must be equal: the hashes of every run below a folder, and the scores of a sweep's trials."""
    found: Result = {}
    for path in sorted(out.rglob("run.json")):
        about = _read(path)
        found[path.parent.relative_to(out).as_posix()] = (about.get("state"), about.get("hashes"))
    for path in sorted(out.rglob("sweep.json")):
        found["sweep"] = [_of_method(one) for one in _dict(_read(path).get("methods")).values()]
    return found


def _of_method(about: object) -> Result:
    """Scores and choice of a sweep, without seconds."""
    method = _dict(about)
    trials = method.get("trials")
    scores = {
        str(_dict(one).get("name")): _dict(one).get("score")
        for one in (trials if isinstance(trials, list) else [])
    }
    return {
        "scores": scores,
        "chosen": _dict(method.get("chosen")).get("settings"),
        "final": method.get("final"),
    }


def _read(path: Path) -> Mapping[str, object]:
    try:
        return _dict(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return {}


def _dict(value: object) -> Mapping[str, object]:
    return value if isinstance(value, dict) else {}
