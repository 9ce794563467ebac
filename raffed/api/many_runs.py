"""Many runs at once: what they are, how many execute at the same time, and each in a process of its own.

Such a process is the command line with a hidden command (raffed/cli/execution.py). It reads on its standard
input what to run, and writes its events to its standard output, as JSON. When its standard input ends, the
command that started it has gone, and it stops like after a signal.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from queue import Empty, Queue
from threading import Thread
from typing import IO, TypeAlias

from raffed.api.running import (
    Event,
    Run,
    Shown,
    check_continues,
    finished_event,
    holds_run,
    is_usual,
    one_ray,
)
from raffed.config.run import RunConfig
from raffed.config.sections import Runtime
from raffed.errors import NumericsError, RaffedError, RunFolderError, UsageError, check_range
from raffed.own import gate
from raffed.own.carried import defined_here
from raffed.own.resolve import loading
from raffed.results.files import check_tree
from raffed.results.runfile import folder_name
from raffed.results.storage import named

MOST = 10_000  # seeds
INSIDE = "RAFFED_SEED_PROCESS"  # set in the processes of runs, which must not start further ones
GRACE = 8.5  # seconds from the request to end now until a process that still works is killed
POLL = 0.2
STOPPED = (129, 130, 143, -1, -2, -15)  # exit codes after a signal; the negative ones while Python starts
COMMAND = "seed-process"
# The process finds modules where this one does, before it imports anything
PROGRAM = f"import sys; sys.path[:] = {{path!r}}; from raffed.cli import main; main([{COMMAND!r}])"
Place: TypeAlias = Mapping[str, str]  # environment of a process, beside that of the command
Stop = Callable[[], bool]


def method_runs(configs: Mapping[str, RunConfig], out: Path, accept: bool = False) -> list[Run]:
    """Return a run for each method, in a folder of its name below `out`.

    Args:
        configs: Method, with its settings if it was given any → its run.
        out: The folder of everything.
        accept: Whether own code may have changed since runs were begun.

    Raises:
        UsageError: A method or its settings are not possible.
        RunFolderError: A folder holds a run with other settings or other code.
    """
    runs = [
        Run(name, config, out / folder_name(name), {"method": name}, accept)
        for name, config in configs.items()
    ]
    return _checked(runs, configs, out)


def seed_runs(
    configs: Mapping[str, RunConfig],
    out: Path,
    seeds: int,
    alone: bool = False,
    accept: bool = False,
    placed: bool = False,
) -> list[Run]:
    """Return the runs of `seeds` seeds from that of each configuration on, seed after seed.

    They lie in OUT/METHOD/seed-K. The first seeds of all methods come first, so that what was done until a
    stop can be compared.

    Args:
        configs: Method → its run with the first seed.
        out: The folder of everything.
        seeds: Number of seeds, at least 1.
        alone: Whether the only method has its seeds directly in `out`.
        accept: Whether own code may have changed since runs were begun.
        placed: Whether `execution` was named on purpose. If not, each run has one process, unless its
            configuration says how clients are placed.

    Raises:
        UsageError: The number is not possible, a configuration is not, or a folder holds something else.
        RunFolderError: A folder holds a run with other settings or other code, or a run without seeds.
    """
    check_range("seeds", seeds, 1, MOST)
    if INSIDE in os.environ or loading() is not None:
        raise UsageError(
            "the runs of several seeds would be started by a file that each of them imports; put the call "
            'below `if __name__ == "__main__":`'
        )
    parents = {name: out if alone else out / folder_name(name) for name in configs}
    for parent in (out, *parents.values()):
        if holds_run(parent):
            raise RunFolderError(
                f"{parent} holds a single run, but several seeds need folders seed-0, seed-1, … there; "
                "choose another --out"
            )
    runs = [
        Run(
            f"{name}, seed {seed}",
            replace(config, seed=seed, runtime=_one_process(config.runtime, placed)),
            parents[name] / f"seed-{seed}",
            {"method": name, "seed": seed},
            accept,
        )
        for k in range(seeds)
        for name, config in configs.items()
        for seed in (config.seed + k,)
    ]
    return _checked(runs, configs, out)


def _checked(runs: list[Run], configs: Mapping[str, RunConfig], out: Path) -> list[Run]:
    """Check everything that can be checked before the first run, without the data, and return the runs."""
    from raffed.methods import checked_method

    gate.check_inside(out, out / "report")
    for config in configs.values():
        checked_method(config)
    for run in runs:
        gate.check_inside(out, run.folder)
        check_tree(run.folder)
        check_continues(run.folder, run.config, run.accept)
    return runs


def _one_process(runtime: Runtime, placed: bool) -> Runtime:
    usual = is_usual(runtime) and runtime.address is None and not placed
    return replace(runtime, execution="serial") if usual else runtime


def in_processes(runs: Sequence[Run]) -> bool:
    """Return whether the runs execute in a process each. Those on Ray share one Ray, one after the other.

    What this notebook or prompt defines is known to its own process only, so such runs also stay in it.
    """
    from raffed.runtime.run_method import references_in

    if runs[0].config.runtime.execution != "serial":
        return False
    each = {run.method: run.config for run in runs}.values()
    references = [name for config in each for name in (*references_in(config).values(), config.data.dataset)]
    return not any(map(defined_here, references))


def places(runtime: Runtime, count: int) -> list[Place]:
    """Return a place for each run that may execute at the same time: never more than the cores, the memory or
    the shares of GPUs allow, and at least one.

    Args:
        runtime: That of the runs.
        count: Number of runs.
    """
    from raffed.budget import free_memory
    from raffed.runtime.machine import usable_cores
    from raffed.runtime.placement import ACTOR_BYTES

    fit, free = [count, usable_cores() // runtime.threads], free_memory()
    if free is not None:
        fit.append(int(free // ACTOR_BYTES))
    shares: list[Place] = [{}] * count
    if runtime.gpu_fraction:
        shares = [
            {"CUDA_VISIBLE_DEVICES": gpu} for _ in range(round(1 / runtime.gpu_fraction)) for gpu in _gpus()
        ]
    return shares[: max(1, min(fit))] or [{}]


def _gpus() -> list[str]:
    """Return what CUDA_VISIBLE_DEVICES calls the GPUs that this process may use."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return [gpu.strip() for gpu in visible.split(",") if gpu.strip()]
    import torch

    return [str(number) for number in range(torch.cuda.device_count())]


@dataclass(frozen=True)
class Ending:
    """How a run ended.

    Attributes:
        state: "finished", "stopped" or "failed".
        why: The reason of a failure.
        refused: Whether the request itself is at fault, so that no other run would fare better.
        diverged: Whether its training diverged.
    """

    state: str
    why: str = ""
    refused: bool = False
    diverged: bool = False


def execute_all(
    runs: Sequence[Run],
    shown: Shown,
    *,
    in_turn: Callable[[Run], object],
    together: Callable[[Sequence[Run]], Mapping[Run, Ending]],
) -> dict[Run, Ending]:
    """Execute runs, or what is left of them, and return how each ended.

    Those of several seeds execute at the same time, if each has one process.

    Args:
        runs: The runs, at least one.
        shown: Is told which runs were finished before, and which fail.
        in_turn: Executes one run in this process, as runs on Ray do.
        together: Executes runs in a process each.

    Raises:
        DataFileError: Data of one's own have changed since some runs were begun, and others would begin.
    """
    check_same_data([run.folder for run in runs])
    with one_ray(runs[0].config, runs[0].folder):
        if "seed" in runs[0].about and in_processes(runs):
            done = [run for run in runs if run.finished]
            for run in done:
                shown.show(finished_event(run.about, run.go_on(lambda event: None)), run=run)
            left = [run for run in runs if run not in done]
            return {**dict.fromkeys(done, Ending("finished")), **(together(left) if left else {})}
        endings = {}
        for run in runs:
            try:
                in_turn(run)
                endings[run] = Ending("finished")
            except NumericsError as error:
                shown.show(failed_event(run, error))
                endings[run] = Ending("failed", " ".join(str(error).split()), diverged=True)
        return endings


def failed_event(run: Run, error: Exception) -> Event:
    """Return the event of a run that failed while others follow."""
    about = {"folder": str(run.folder), "kind": type(error).__name__, "message": str(error)}
    return {"event": "failed", **run.about, **about}


def execute_at_once(
    runs: Sequence[Run], shown: Shown, stop: Stop = lambda: False, free: Sequence[Place] = ()
) -> dict[Run, Ending]:
    """Execute runs, or what is left of them, each in a process of its own.

    Args:
        runs: The runs, at least one. Those that are waiting begin in this order.
        shown: Is told what happens, in this thread.
        stop: Asked all the time. If it returns True, the runs end after their round and no other one begins.
        free: A place for each run that may execute at the same time; without it, as many as fit.

    Returns:
        Run → how it ended, without those that did not begin.

    Raises:
        KeyboardInterrupt: It came from outside. All processes have ended.
    """
    team = _Team(free or places(runs[0].config.runtime, len(runs)), shown)
    try:
        return team.carry_out(runs, stop)
    finally:
        team.kill()


def check_same_data(folders: Sequence[Path]) -> None:
    """Apply `check_data` to the runs that have begun in these folders, if others are still to begin."""
    begun = [folder for folder in folders if holds_run(folder)]
    if 0 < len(begun) < len(folders):
        from raffed.runs.folder import check_data  # late, because it loads torch

        check_data(begun)


class _Worker:
    """The process of a run, and the threads that listen to it. What they hear goes into a queue."""

    def __init__(self, run: Run, place: Place, heard: Queue[tuple[_Worker, Event]]) -> None:
        self.run, self.place, self._heard = run, place, heard
        self.last: Event = {"event": "begin"}
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-c", PROGRAM.format(path=sys.path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, INSIDE: "1", **place},
            encoding="utf-8",
            errors="replace",
            start_new_session=True,  # Ctrl-C reaches the command, which passes it on
        )
        Thread(target=self._listen, daemon=True).start()
        order = {
            "config": run.config.as_dict(),
            "folder": str(run.folder.absolute()),
            "accept": run.accept,
            "known": {name: sorted(texts) for name, texts in gate.state()._asdict().items()},
        }
        assert self.process.stdin is not None
        with contextlib.suppress(OSError):  # it has ended already, which its exit code explains
            self.process.stdin.write(json.dumps(order) + "\n")
            self.process.stdin.flush()

    def _listen(self) -> None:
        errors = Thread(target=self._listen_to, args=(self.process.stderr,), daemon=True)
        errors.start()
        self._listen_to(self.process.stdout)
        errors.join()
        self._heard.put((self, {"event": "ended", "code": self.process.wait()}))

    def _listen_to(self, stream: IO[str] | None) -> None:
        for line in stream or ():
            event: Event = {"event": "said", "text": line.rstrip("\n")}
            if stream is self.process.stdout and line.startswith('{"event"'):  # else others printed it
                with contextlib.suppress(ValueError):  # it was cut off by the end of the process
                    event = json.loads(line)
            self._heard.put((self, event))

    def ending(self, code: int) -> Ending:
        """Return how the run ended, from its last event and the exit code of its process."""
        if self.last["event"] == "finished" and code == 0:
            return Ending("finished")
        if code in STOPPED:
            return Ending("stopped")
        if self.last["event"] in ("failed", "error"):
            diverged = self.last["kind"] == NumericsError.__name__
            return Ending("failed", self.last["message"], code == 2, diverged)
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        return Ending("failed", f"its process ended with {how}; repeat the command to continue it")


class _Team:
    """The processes that work at the moment."""

    def __init__(self, free: Sequence[Place], shown: Shown) -> None:
        self._free, self._shown = list(reversed(free)), shown
        self._heard: Queue[tuple[_Worker, Event]] = Queue()
        self._working: list[_Worker] = []
        self._asked, self._until = False, float("inf")
        self._said: set[str] = set()
        self._endings: dict[Run, Ending] = {}

    def carry_out(self, runs: Sequence[Run], stop: Stop) -> dict[Run, Ending]:
        waiting, interrupted = deque(runs), False
        while self._working or (waiting and not self._asked):
            try:
                if not self._asked and stop():
                    self._ask_to_stop()
                while waiting and self._free and not self._asked:
                    self._start(waiting.popleft())
                self._listen()
            except KeyboardInterrupt:
                interrupted = True
                self._ask_to_stop()
        if interrupted:
            raise KeyboardInterrupt
        return self._endings

    def kill(self) -> None:
        """Kill what is left. After the work that is nothing, unless this process itself failed."""
        for worker in self._working:
            worker.process.kill()

    def _start(self, run: Run) -> None:
        self._working.append(_Worker(run, self._free.pop(), self._heard))
        title = f"{run.title} → {named(run.folder)}"
        self._shown.show({"event": "begin", "title": title, "rounds": run.config.federation.rounds}, run=run)

    def _ask_to_stop(self) -> None:
        """Signal all processes. The first signal lets them finish their round, and the second does not."""
        if self._asked:
            self._until = min(self._until, time.monotonic() + GRACE)
        self._asked = True
        for worker in self._working:
            worker.process.terminate()

    def _listen(self) -> None:
        if time.monotonic() > self._until:
            self.kill()
        try:
            worker, event = self._heard.get(timeout=POLL)
        except Empty:
            return
        if event["event"] == "ended":
            self._ended(worker, event["code"])
        elif event["event"] in ("said", "warning"):
            self._say(worker.run, event)
        else:
            worker.last = event
            if event["event"] != "error":  # the end of its process says it
                self._show(worker.run, event)

    def _show(self, run: Run, event: Event) -> None:
        """Show an event of a run, with its method and seed."""
        where = {"folder": named(run.folder)} if "folder" in event else {}
        self._shown.show({"event": event["event"], **run.about, **event, **where}, run=run)

    def _say(self, run: Run, event: Event) -> None:
        """Show a text once, because all runs give the same warnings. What a stop leaves is not shown."""
        first = event["text"] not in self._said and not self._asked
        self._said.add(event["text"])
        if event["event"] == "warning":
            self._shown.show(event, run=run, first=first)
        elif first:
            self._shown.show(event, run=run)

    def _ended(self, worker: _Worker, code: int) -> None:
        self._working.remove(worker)
        self._free.append(worker.place)
        ending = self._endings[worker.run] = worker.ending(code)
        if ending.state == "failed" and worker.last["event"] != "failed":
            kind = worker.last.get("kind", RaffedError.__name__)
            lost = {"folder": "", "kind": kind, "message": ending.why}
            self._show(worker.run, {"event": "failed", **lost})
        if ending.refused:
            self._ask_to_stop()
