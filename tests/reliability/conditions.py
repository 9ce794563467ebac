"""Hostile conditions: a full disk, lost folders, clocks, memory, many clients.

Each function carries out one condition and returns its outcome. `Place` is where a case has its files, and
what an undisturbed run gives.
"""

from __future__ import annotations

import random
import resource
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from tests.reliability.case_log import Case
from tests.reliability.commands import Command
from tests.reliability.executions import result
from tests.reliability.full_disks import full_ray_folder, full_shared_memory, small_disk_of_ray
from tests.reliability.places import Outcome, Place, References, judged, last, wait_for
from tests.reliability.shim import on_full_disk, shim, with_clock_set_back
from tests.reliability.sources import ROUNDS, RUN
from tests.reliability.strikes import LONGEST

GIB = 2**30
MANY = (
    *("--model", "mlp", "--model-arg", "hidden=[8]", "--rounds", "5", "--participation", "0.2"),
    *("--epochs", "1", "--checkpoint-every", "2", "--execution", "serial", "--cohort", "100", "--json"),
)
CHANGES = ("renamed", "exchanged", "removed", "read-only")


def full_disk(place: Place) -> Outcome:
    """The disk is full from a random write on; with room again the run goes on to the same result."""
    if shim() is None:
        return "impossible here", "no compiler"
    _, writes = on_full_disk([*RUN, *ROUNDS, "--out", str(place.work / "counted")], place.work, 10**9)
    at = place.dice.randrange(max(writes, 1))
    done, tried = on_full_disk(place.words(), place.out, at)
    how = f"write {at} of {writes}: {last(done.stderr)}"
    if done.returncode == 0 and tried <= at:
        return ("done" if place.is_expected() else "unequal hashes"), how
    why = judged(done.returncode, done.stderr + done.stdout)
    if not why and "no space left" not in done.stderr.lower():
        why = "says nothing of the disk"
    return why or place.ends_equal() or "equal", how


def small_disk(place: Place) -> Outcome:
    """A file system of a few hundred kilobytes, which gets more room afterwards."""
    place.out.mkdir(parents=True)
    size = place.dice.randrange(60, 500)
    if subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}k", "none", place.out], check=False
    ).returncode:
        return "impossible here", "mounting is not permitted"
    try:
        command = place.begun()
        code = command.wait(LONGEST)
        err = command.errors.read_text()
        if code == 0:
            return ("done" if place.is_expected() else "unequal hashes"), f"{size} kB"
        if why := judged(code, err + command.log.read_text()):
            return why, f"{size} kB: {last(err)}"
        subprocess.run(["mount", "-o", "remount,size=64m", place.out], check=True)
        return place.ends_equal() or "equal", f"{size} kB: {last(err)}"
    finally:
        subprocess.run(["umount", "--lazy", place.out], check=True)


def lost_folder(place: Place) -> Outcome:
    """The folder is renamed, exchanged, removed or made read-only while a run, serial or on Ray, or a sweep
    works in it. One line says so, and what was computed is continued.
    """
    runs = [place.words(execution, rounds=40) for execution in ("serial", "ray")]
    words = place.dice.choice([*runs, place.sweep()])
    command, moved = place.begun(words), place.out.with_name("moved")
    wait_for(command, 1 if words[0] == "tune" else place.dice.randint(1, 10))
    change = place.dice.choice(CHANGES)
    if change == "read-only":
        mount = ["mount", "--bind", "-o", "ro", place.out, place.out]
        if subprocess.run(mount, capture_output=True, check=False).returncode:
            command.end()
            return "impossible here", "mounting is not permitted"
    else:
        place.out.rename(moved)
        if change == "removed":
            shutil.rmtree(moved, ignore_errors=True)
        if change == "exchanged":
            place.out.mkdir()
    try:
        code = command.wait(LONGEST)
    finally:
        if change == "read-only":
            subprocess.run(["umount", "--lazy", place.out], check=True)
    err = command.errors.read_text()
    how = f"{words[0]}, {change}: {last(err)}"
    if code:  # else it had ended before the change
        why = judged(code, err + command.log.read_text(), (1,))
        if not why and change == "exchanged" and list(place.out.glob("*.json")):
            why = "wrote into the foreign folder"
        if not why and change in ("renamed", "exchanged") and "was renamed or removed while" not in err:
            why = "does not say what became of the folder"
        if left := command.left(set()):
            why = f"left behind: {', '.join(one.name for one in left)}"
        if why:
            return why, how
    if change == "removed":
        return "refused", how
    if change != "read-only":
        shutil.rmtree(place.out, ignore_errors=True)
        moved.rename(place.out)
    return place.ends_equal(words) or "equal", how


def clock_set_back(place: Place) -> Outcome:
    """The clock is set back by a minute to twenty years in the middle of a run, which is then verified."""
    if shim() is None:
        return "impossible here", "no compiler"
    seconds = place.dice.choice([60, 86_400, 20 * 365 * 86_400])
    done, _ = with_clock_set_back(place.words(), place.out, place.dice.randrange(5, 60), seconds)
    how = f"{seconds} s: {last(done.stderr)}"
    if done.returncode != 0:
        return f"exit code {done.returncode}", how
    if not place.is_expected():
        return "unequal hashes", how
    for words in (
        ["verify", str(place.out), "--rounds", "1"],
        ["report", str(place.out), "--out", str(place.work / "report")],
    ):
        command = place.begun(words, words[0])
        if command.wait(LONGEST) != 0:
            return f"{words[0]} ended with {command.poll()}", command.errors.read_text()[-300:]
    return "equal", how


def little_memory(place: Place) -> Outcome:
    """ulimit -v: the command ends with one line, or comes to the same result."""
    most = int(place.dice.choice([0.25, 0.5, 1, 1.5, 2, 3, 4, 6, 10]) * GIB)
    logs = place.work / "first"
    logs.mkdir(parents=True)
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (most, before[1]))
    try:
        command = Command(place.words(), logs, fresh=True)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)
    code, err = command.wait(LONGEST), command.errors.read_text()
    how = f"{most / GIB:g} GiB: exit code {code}: {last(err)}"
    if code == 0:
        return ("done" if place.is_expected() else "unequal hashes"), how
    return judged(code, err + command.log.read_text()) or place.ends_equal() or "equal", how


def many_clients(place: Place) -> Outcome:
    """3,000 clients with private state: killed after a random round, continued, verified, and damaged."""
    data = place.work / "points.npz"
    dice = np.random.default_rng(0)
    np.savez(data, x=dice.normal(size=(6000, 8)).astype(np.float32), y=dice.integers(0, 4, 6000))
    words = ["run", "--method", "ditto", "--dataset", f"npz:{data}", "--split", "iid:3000", *MANY]
    whole = place.begun([*words, "--out", str(place.work / "whole")], "whole-logs")
    if whole.wait(LONGEST) != 0:
        return f"exit code {whole.poll()}", whole.errors.read_text()[-300:]
    command = place.begun([*words, "--out", str(place.out)])
    wait_for(command, place.dice.randint(1, 4))
    command.end()
    again = ["resume", str(place.out), "--json", "--execution", "serial"]
    again = again if (place.out / "run.json").exists() else [*words, "--out", str(place.out)]
    for name, words in (("resume", again), ("verify", ["verify", str(place.out), "--rounds", "1"])):
        command = place.begun(words, name)
        if command.wait(LONGEST) != 0:
            return f"{name} ended with {command.poll()}", command.errors.read_text()[-300:]
    if result(place.out) != result(place.work / "whole"):
        return "unequal hashes", "3,000 clients"
    state = place.dice.choice(sorted(place.out.glob("checkpoints/*/vaults/*")))
    state.write_bytes(bytes(state.stat().st_size))
    command = place.begun(["verify", str(place.out), "--rounds", "0"], "damaged")
    code = command.wait(LONGEST)
    kept = len(list(state.parent.iterdir()))
    return (
        "equal" if code in (1, 2) else f"unnoticed: {state.name}"
    ), f"{kept} client states in a checkpoint"


CONDITIONS: dict[str, Callable[[Place], Outcome]] = {
    "full disk": full_disk,
    "small disk": small_disk,
    "lost folder": lost_folder,
    "clock set back": clock_set_back,
    "little memory": little_memory,
    "3,000 clients": many_clients,
    "small disk, on Ray": small_disk_of_ray,
    "full folder of Ray": full_ray_folder,
    "full shared memory": full_shared_memory,
}
ON_RAY = ("small disk, on Ray", "full folder of Ray", "full shared memory")


def conditions(seed: int, work: Path, part: tuple[int, int], has: Callable[[str], bool]) -> Iterator[Case]:
    """Cases without end, of one part of all; those that the log has are left out."""
    references, number = References(work / "references"), part[0]
    names = list(CONDITIONS)
    while True:
        key = f"condition-{seed}-{number}"
        name = names[number % len(names)]
        folder = work / f"condition-{number}"
        number += part[1]
        if has(key):
            continue
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        place = Place(folder, references, random.Random(key))
        try:
            outcome, how = CONDITIONS[name](place)
        except TimeoutError as error:
            outcome, how = "hang", str(error)
        if outcome in ("equal", "done", "refused"):
            shutil.rmtree(folder, ignore_errors=True)
        execution = "Ray" if name in ON_RAY else "serial"
        yield Case(key, "condition", name, execution, "map", outcome, details={"said": how})
