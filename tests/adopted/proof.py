"""Compare the state of an author's engine in three forms: unhooked, stepped, and killed and resumed.

Every form is a process of its own, in the same folder, because states hold names of files.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from raffed.adopted.checkout import Checkout
from raffed.methods.authors import AuthorsMethod

HERE = Path(__file__).parent
DRIVER = HERE.parents[1] / "raffed" / "adopted" / "driver.py"
ENVIRONMENT = {
    "PATH": os.environ["PATH"],
    "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD": "1",
    "OMP_NUM_THREADS": "1",
    "PYTHONHASHSEED": "0",
}


@dataclass
class Proof:
    """One method of a checkout, with its flags but the number of rounds.

    Attributes:
        method: The method.
        data: A folder with the clients' samples, as the engine reads it.
        flags: The flags.
        work: An empty folder.
    """

    method: AuthorsMethod
    data: Path
    flags: Sequence[str]
    work: Path

    @property
    def checkout(self) -> Checkout:
        return self.method.checkout

    @property
    def _main(self) -> str:
        return self.checkout.named(self.checkout.main)

    def _flags(self, last: int) -> list[str]:
        flag = self.method.flag_of("federation.rounds")
        return [*self.flags, f"--{flag}", str(last + 1 - self.method.family.extra)]

    def _fresh(self) -> Path:
        """Return the folder of a process: the same for all, because states hold names of files."""
        place = self.work / "engine"
        shutil.rmtree(place, ignore_errors=True)
        self.checkout.copy_to(place)
        dataset = self.flags[self.flags.index("--dataset") + 1]
        folder = self.method.family.data.format(dataset=dataset, clients=4, seed=0)
        shutil.copytree(self.data, os.path.normpath((place / self._main).parent / folder))
        return place

    def unhooked(self, last: int) -> list[str]:
        """Return the hashes after each iteration of the main file, without any hook."""
        words = [str(HERE / "unhooked.py"), str(DRIVER), str(self._fresh()), self._main]
        words += [self.checkout.family.servers, "0", "--", *self._flags(last)]
        done = subprocess.run(
            [sys.executable, *words], env=ENVIRONMENT, capture_output=True, text=True, check=False
        )
        found = [line.split()[1] for line in done.stdout.splitlines() if line.startswith("digest ")]
        assert found, done.stderr[-2000:]
        return found

    def stepped(
        self, last: int, *, done: int = 0, state: Path | None = None, kill: int | None = None
    ) -> dict[int, str]:
        """Return iteration → hash of a process that is stepped, and killed after one of them.

        The state after each iteration lies in `work`/INDEX.pt.
        """
        order = {
            "root": str(self._fresh()),
            "main": self._main,
            "flags": self._flags(last),
            "servers": self.checkout.family.servers,
            "tests": self.checkout.family.tests,
            "rounds": self.checkout.family.rounds,
            "carried": self.method.carried,
            "packages": [],
            "seed": 0,
            "threads": 1,
            "state": None if state is None else str(state),
            "done": done,
        }
        found: dict[int, str] = {}
        with (self.work / "log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, str(DRIVER)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=ENVIRONMENT,
                text=True,
            )
        assert process.stdin is not None
        assert process.stdout is not None

        def say(said: object) -> None:
            process.stdin.write(json.dumps(said) + "\n")
            process.stdin.flush()

        say(order)
        for line in process.stdout:
            event = json.loads(line)
            assert event["event"] != "failed", event["text"] + (self.work / "log").read_text()[-2000:]
            if event["event"] == "round":
                found[event["index"]] = event["state"]
                say(str(self.work / f"{event['index']}.pt"))
                process.stdout.readline()
                if kill == event["index"]:
                    process.send_signal(signal.SIGKILL)
                    break
                say("go")
        process.communicate()
        return found

    def check(self, last: int = 2) -> None:
        """Compare all three forms after each iteration up to the last.

        Raises:
            AssertionError: Two hashes differ.
        """
        whole = self.stepped(last)
        assert list(whole) == list(range(last + 1))
        assert self.unhooked(last) == list(whole.values())
        for index in range(last):
            shutil.copyfile(self.work / f"{index}.pt", self.work / "kept.pt")
            again = self.stepped(last, done=index + 1, state=self.work / "kept.pt", kill=index + 1)
            assert again == {index + 1: whole[index + 1]}, f"resumed after iteration {index}"
