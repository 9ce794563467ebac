"""Random kills of a run and random damages to its files: no number may change without a word.

The cases are drawn from their numbers, so that a fault can be repeated:

RAFFED_CASES=1000 python -m pytest tests/reliability/test_random.py -m slow
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

import raffed
from raffed.methods import METHODS
from raffed.results.runfile import read_run
from raffed.results.writer import read_metrics, rows_sha256
from tests.cli.conftest import shell
from tests.reliability.commands import ENDED_BY_RAY, TARGETS, Begin, Command, strike
from tests.runtime.conftest import small
from tests.tiny import SHORT

CASES = int(os.environ.get("RAFFED_CASES", "40"))
FAST = (0, 1)  # the cases that are not slow tests


def cases(count: int, fast: Iterable[int] = ()) -> pytest.MarkDecorator:
    numbers = [pytest.param(one, marks=[] if one in fast else pytest.mark.slow) for one in range(count)]
    return pytest.mark.parametrize("number", numbers)


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run, one that was stopped after three of four rounds, and such a one in virtual time."""
    folder, plain = tmp_path_factory.mktemp("sources"), small("map", checkpoint_every=2)
    config = replace(plain, data=replace(plain.data, validation=0.1))
    clock = config.changed({"clock.server": "fedbuff", "clock.speeds": "lognormal", "clock.buffer": 2})
    raffed.run(config, folder / "finished")
    for name, one in (("stopped", config), ("asynchronous", clock)):
        seen = list[object]()
        raffed.run(one, folder / name, watch=seen.append, stop=lambda seen=seen: len(seen) == 3)
    return folder


def read_by(command: str, run: Path) -> tuple[subprocess.CompletedProcess[str], object]:
    """What a command says of a run's folder, and the numbers that it left or showed."""
    report = run.parent / "report"
    more = {
        "resume": ("--execution", "serial", "--quiet"),
        "verify": ("--rounds", 1, "--json"),
        "report": ("--out", report),
    }
    done, numbers = shell(command, run, *more[command]), None
    if done.returncode == 0 and command == "resume":
        numbers = read_run(run)["identity"], read_run(run)["hashes"], rows_sha256(read_metrics(run))
    elif done.returncode == 0 and command == "verify":
        checks = json.loads(done.stdout.splitlines()[-1])["checks"]
        numbers = [(check["what"], check["round"], check["ok"]) for check in checks]
    elif done.returncode == 0:
        numbers = [path.read_text() for path in sorted(report.glob("summary.*"))]
    return done, numbers


def damaged(run: Path, dice: random.Random) -> str:
    """Damage one file; each kind of file is as likely as any other. Returns its name."""
    files = sorted(path for path in run.rglob("*") if path.is_file() and path.stat().st_size)
    folder = dice.choice(sorted({path.parent.name.split("-")[0] + path.suffix for path in files}))
    path = dice.choice([one for one in files if one.parent.name.split("-")[0] + one.suffix == folder])
    raw = path.read_bytes()
    first, last = sorted(dice.sample(range(len(raw) + 1), 2))
    kind = dice.choice(("flip", "flip", "cut", "zeroes", "swap", "removal"))
    path.unlink()  # client states are hard links: the other names keep their bytes
    if kind == "flip":
        path.write_bytes(raw[:first] + bytes([raw[first] ^ 1 << dice.randrange(8)]) + raw[first + 1 :])
    elif kind == "cut":
        path.write_bytes(raw[:first])
    elif kind == "zeroes":
        path.write_bytes(raw[:first] + bytes(last - first) + raw[last:])
    elif kind == "swap":
        path.write_bytes(dice.choice([one for one in files if one != path]).read_bytes())
    changed = not path.exists() or path.read_bytes() != raw
    return path.relative_to(run).as_posix() if changed else ""


@cases(CASES, FAST)
def test_a_damaged_file_changes_no_number_without_a_word(number: int, sources: Path, tmp_path: Path) -> None:
    """A command has the result that it has without the damage, or says in a line what is wrong."""
    dice = random.Random(f"damage-{number}")
    name, command = dice.choice(("finished", "stopped", "asynchronous")), dice.choice(("resume", "verify"))
    command = "report" if dice.random() < 0.2 else command
    _, expected = read_by(command, Path(shutil.copytree(sources / name, tmp_path / "whole" / "run")))
    run = Path(shutil.copytree(sources / name, tmp_path / "damaged" / "run"))
    file = damaged(run, dice)
    done, found = read_by(command, run)
    said = done.stdout + done.stderr
    assert done.returncode in (0, 1, 2), done
    assert "Traceback" not in said
    if done.returncode:
        assert '"ok": false' in done.stdout or done.stderr.splitlines()[-1].startswith("raffed: ")
    elif found != expected:
        assert Path(file).name in said
    elif command == "verify":  # the lock, and client states since the last checkpoint, are not verified
        assert file.startswith((".lock", "vaults/")) or not file


SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGKILL)
ENDING = ("command", "group", "everything")  # a signal to these ends the command
EXECUTIONS = {  # words, and what may be struck
    "serial": (("--execution", "serial"), ENDING),
    "stacked": (("--execution", "serial", "--cohort", "4"), ENDING),
    "ray": (("--execution", "ray", "--actors", "2"), (*ENDING, *TARGETS)),
}


@cases(CASES // 4)
def test_a_run_that_is_struck_at_random_moments_comes_to_the_hashes_of_one_that_was_not(
    number: int, begin: Begin, tmp_path: Path
) -> None:
    """Three commands are struck, each of which goes on with the run; of none a process is left."""
    dice, out = random.Random(f"kill-{number}"), tmp_path / "run"
    options, targets = EXECUTIONS[dice.choice([*EXECUTIONS, "ray"])]
    method = dice.choice(sorted({*METHODS} - {"fedfomo"}))  # whose clients need data.validation
    args = [word for name, value in SHORT.get(method, {}).items() for word in ("--set", f"{name}={value}")]
    tiny = ["--split", "p4c5", "--local-test", "0.2", "--epochs", "1", "--rounds", "40", *options, *args]
    words = ["run", "--method", method, *tiny, "--checkpoint-every", "3", "--out", str(out)]
    for _ in range(3):
        struck(begin(words), dice, dice.choice(targets))
        if (out / "run.json").exists():
            words = ["resume", str(out)]
    last = shell(*words, "--execution", "serial")
    assert last.returncode == 0, last.stderr
    whole = shell(*["run", "--method", method, *tiny, "--execution", "serial", "--out", tmp_path / "whole"])
    assert whole.returncode == 0, whole.stderr
    assert read_run(out)["hashes"] == read_run(tmp_path / "whole")["hashes"]


def struck(command: Command, dice: random.Random, target: str) -> None:
    """Send a random signal at a random moment, and look at how the command ends."""
    number, until = dice.choice(SIGNALS), time.monotonic() + dice.uniform(0, 20)
    while time.monotonic() < until and not command.ends_within(0.1):
        pass
    ended = command.ended(lambda: strike(command.pids(target)[: None if target in ENDING else 1], number))
    assert "Traceback" not in ended.err
    assert ended.left == []
    codes = [0, -number, 128 + number] if target in ENDING else [0, 1, 2]
    if "stopped before anything was written" in ended.err:
        codes.append(-signal.SIGINT)  # Python may remember an interruption of its imports
    assert ended.code in codes, (target, number, ended)
    if ended.code > 0:
        assert "raffed: " in ended.err or ENDED_BY_RAY in ended.err
