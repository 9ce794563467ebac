"""Compare the state of an author's engine in three forms: unhooked, stepped, and killed and resumed.

Every form is a process of its own, in the same folder, because states hold names of files. It is forked from
one that has imported torch, and what the variable RAFFED_WARM names (tests/warm.py): an engine imports more.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from raffed.data.importers.client_folders import DividedData, write_pfllib
from raffed.methods.authors import AuthorsMethod
from tests.warm import begin, python, reap

HERE = Path(__file__).parent
DRIVER = HERE.parents[1] / "raffed" / "adopted" / "driver.py"
ENVIRONMENT = {
    "PATH": os.environ["PATH"],
    "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD": "1",
    "OMP_NUM_THREADS": "1",
    "PYTHONHASHSEED": "0",
}
LONGEST = 3600.0  # seconds of a process
# Of four clients, three of which take part
PFLLIB = "--num_clients 4 --join_ratio 0.75 --device cpu --algorithm"
SIMULATOR = "--total-client 4 --active-ratio 0.75 --seed 0 --non-iid --method"


@dataclass
class Proof:
    """One method of a checkout.

    Attributes:
        method: The method.
        flags: Its flags, without those of clients and rounds.
        shape: The shape of an image.
        work: An empty folder.
    """

    method: AuthorsMethod
    flags: Sequence[str]
    shape: tuple[int, ...]
    work: Path

    @property
    def _main(self) -> str:
        return self.method.checkout.named(self.method.checkout.main)

    def _flags(self, last: int) -> list[str]:
        family = self.method.family
        usual = (SIMULATOR if family.central else PFLLIB).split()
        rounds = [f"--{self.method.flag_of('federation.rounds')}", str(last + 1 - family.extra)]
        return [*usual, self.method.method, *rounds, *self.flags]

    def _fresh(self) -> Path:
        """Return the folder of a process, with the author's files and the samples of four clients."""
        place, draw = self.work / "engine", np.random.default_rng(0)
        shutil.rmtree(place, ignore_errors=True)
        self.method.checkout.copy_to(place)
        dataset = self.flags[self.flags.index("--dataset") + 1]
        name = self.method.family.data.format(dataset=dataset, clients=4, seed=0)
        folder = Path(os.path.normpath((place / self._main).parent / name))
        folder.mkdir(parents=True)

        def drawn(*size: int) -> tuple[np.ndarray, np.ndarray]:
            return draw.random((*size, *self.shape), np.float32), draw.integers(0, 10, size)

        if self.method.family.central:
            for part, size in (("client", (4, 30)), ("test", (20,))):
                x, y = drawn(*size)
                np.save(folder / f"{part}_x.npy", x)
                np.save(folder / f"{part}_y.npy", y[..., np.newaxis])
        else:
            parts = [[drawn(n) for n in sizes] for sizes in ((30, 35, 40, 45), (10, 11, 12, 13))]
            write_pfllib(folder, DividedData(*parts, 10, "iid:4"))
        return place

    def unhooked(self, last: int) -> list[str]:
        """Return the hashes after each iteration of the main file, without any hook."""
        words = [str(HERE / "unhooked.py"), str(DRIVER), str(self._fresh()), self._main]
        words += [self.method.family.servers, "0", "--", *self._flags(last)]
        done = python(words, env=ENVIRONMENT, timeout=LONGEST)
        found = [line.split()[1] for line in done.stdout.splitlines() if line.startswith("digest ")]
        assert found, done.stderr[-2000:]
        return found

    def stepped(self, last: int, done: int = 0) -> dict[int, str]:
        """Return iteration → hash of a process that is stepped, and killed at the end.

        The state after each iteration is then in `work`/INDEX.pt. If iterations are `done`, the process goes
        on with the state after them for one more.
        """
        family = self.method.family
        order = {
            "root": str(self._fresh()),
            "main": self._main,
            "flags": self._flags(last),
            "servers": family.servers,
            "tests": family.tests,
            "rounds": family.rounds,
            "carried": self.method.carried,
            "packages": [],
            "seed": 0,
            "threads": 1,
            "state": str(self.work / f"{done - 1}.pt") if done else None,
            "done": done,
        }
        asked, told, log = self.work / "asked", self.work / "told", self.work / "log"
        told.write_text("")
        if not asked.exists():
            os.mkfifo(asked)
        program = f"import os, runpy; os.dup2(os.open({str(asked)!r}, os.O_RDONLY), 0); "
        program += f"runpy.run_path({str(DRIVER)!r}, run_name='__main__')"
        wanted = range(done, done + 1 if done else last + 1)
        said = [order]
        for index in wanted:
            said += [str(self.work / f"{index}.pt"), "go"]
        with asked.open("r+b", buffering=0) as stream:
            stream.write("".join(json.dumps(one) + "\n" for one in said[:-1]).encode())
            pid = begin(["-c", program], told, log, env=ENVIRONMENT)
            end = time.monotonic() + LONGEST
            events: list[dict[str, Any]] = []
            while [event["event"] for event in events].count("saved") < len(wanted):
                time.sleep(0.1)
                events = [json.loads(line) for line in told.read_text().split("\n")[:-1]]
                assert "failed" not in {event["event"] for event in events}, log.read_text()[-2000:]
                assert time.monotonic() < end, log.read_text()[-2000:]
            os.kill(pid, signal.SIGKILL)
            reap(pid)
        return {event["index"]: event["state"] for event in events if event["event"] == "round"}

    def check(self, last: int = 2) -> None:
        """Compare all three forms after each iteration up to the last.

        Raises:
            AssertionError: Two hashes differ.
        """
        whole = self.stepped(last)
        assert list(whole) == list(range(last + 1))
        assert self.unhooked(last) == list(whole.values())
        for done in range(1, last + 1):
            assert self.stepped(last, done) == {done: whole[done]}, f"resumed after iteration {done - 1}"
