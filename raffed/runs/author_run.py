"""A run of an author's engine: a process executes it, and its scores and state become an ordinary run folder.

Nothing of the author's is imported here. The process gets a folder of its own below the run's, a copy of the
sources there, and an environment without tokens. That is tidiness and no sandbox: it has the user's rights.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import select
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

import raffed.adopted
from raffed.config.run import RunConfig
from raffed.core.aggregation.exact_sums import plain_mean
from raffed.data.importers.client_folders import export, plain
from raffed.data.partition_file import Lists
from raffed.errors import RaffedError, RunFolderError, UsageError
from raffed.methods.authors import AuthorsMethod, without_engine
from raffed.own import gate
from raffed.results import metrics
from raffed.results.files import file_sha256, sync_folder
from raffed.results.lock import held, make_folder, written
from raffed.results.metric import Metric, Row
from raffed.results.runfile import folder_name, read_run
from raffed.results.writer import MetricsWriter, read_metrics, rows_sha256
from raffed.runs.checkpoint import client_states_sha256
from raffed.runs.code_record import engine_of, engine_record
from raffed.runs.events import RoundEvent, round_event
from raffed.runs.folder import check_free
from raffed.runs.integrity import PARTITION, check_drawn, check_file, check_partition, check_rows
from raffed.runs.record import RunRecord, new_run
from raffed.runtime.setup import Setup, prepare_run

PLACE, LOG, STATE = "engine", "engine.log", "engine-{:06}.pt"
# All that the process gets of this one's environment
HANDED = ("PATH", "HOME", "USER", "LANG", "LC_ALL", "TMPDIR", "LD_LIBRARY_PATH")
Event = Mapping[str, Any]


def _scored(setup: Setup) -> tuple[Lists, str]:
    """Return the samples on which each client is scored, and their pool: if some were held out, these."""
    if setup.config.data.validation:
        return setup.partition.val, "train"
    return setup.partition.test, setup.partition.test_pool


def _write_pfllib(setup: Setup, folder: Path) -> None:
    """Write the samples of every client, with tests of its own, or its held-out samples in their place."""
    lists, split = (setup.partition.train, *_scored(setup)), setup.config.data.split
    export(setup.dataset.divided(*lists, split), f"pfllib:{folder}")


def _write_flsim(setup: Setup, folder: Path) -> None:
    """Write four arrays: samples [clients, n, ...] and labels [clients, n, 1], and those of the test set.

    In its place stand the held-out samples of all clients, if the run has some.
    """
    data, rows = setup.dataset, np.stack(setup.partition.train)
    scored = data.x_test, data.y_test
    if setup.config.data.validation:
        held_out = np.concatenate(_scored(setup)[0])
        scored = data.x[held_out], data.y[held_out]
    folder.mkdir(parents=True)
    for part, x, y in (("client", data.x[rows], data.y[rows]), ("test", *scored)):
        np.save(folder / f"{part}_x.npy", plain(x, data.max_value))
        np.save(folder / f"{part}_y.npy", y[..., np.newaxis])


def author_events(
    config: RunConfig,
    path: Path,
    resumed: bool,
    stop: Callable[[], bool],
    begun: Callable[[], None] | None,
    engine: AuthorsMethod | None = None,
) -> Generator[RoundEvent, None, None]:
    """Execute a run of an author's engine in a local folder, and yield the event of each round.

    The arguments are those of `raffed.runs.run.run_events`, and the engine, if its files do not lie where
    the configuration says.

    Raises:
        UsageError: Something is refused before any process starts.
        RaffedError: The author's code failed.
    """
    if engine is None:
        engine = engine_of(read_run(path), config.method) if resumed else AuthorsMethod(config.method)
    engine.check(config)
    engine.check_trusted()
    # The partition and everything about the data are those of any method
    setup = prepare_run(without_engine(config), begun, read_run(path) if resumed else None)
    clients, data = setup.partition.num_clients, setup.dataset
    command = engine.command(config, clients, data.num_classes, data.x.shape[1:])
    check_partition_fits(engine, config, setup)
    gate.trust([engine.checkout.sha256])
    with held(path), written(path):
        folder = AuthorFolder(path, config, setup, engine, command, resumed)
        with folder.record.how_it_ends(), contextlib.closing(folder.rounds(stop)) as events:
            yield from events


def check_partition_fits(engine: AuthorsMethod, config: RunConfig, setup: Setup) -> None:
    """Refuse a partition that the engine cannot hold.

    Raises:
        UsageError: A client, or the test set where the engine scores on that, has no test samples. Or a
            client has fewer training samples than a batch where the engine drops the last batch, or not as
            many as another where all must have equally many. Or the data come in stages.
    """
    partition, batch, held_out = setup.partition, config.local.batch_size, config.data.validation > 0
    where = f"split {config.data.split}: {engine.name}"
    if partition.stages is not None:
        raise UsageError(f"{where} reads its data once, and these come in stages; use another split")
    sizes = [len(rows) for rows in partition.train]
    central = engine.family.central
    if central and len(set(sizes)) > 1:
        raise UsageError(
            f"{where} holds the samples of all clients in one array, and they have from {min(sizes)} to "
            f"{max(sizes)}; give a split with equal sizes, such as "
            f"equal:{len(sizes)}:{setup.dataset.num_classes}"
        )
    if central and not held_out and not len(setup.dataset.y_test):
        raise UsageError(f"{where} scores on the test set, and {setup.dataset.name} has none; use other data")
    untested = [client for client, rows in enumerate(_scored(setup)[0]) if not central and not len(rows)]
    if untested:
        raise UsageError(
            f"{where} scores every client on its own test samples, and client {untested[0]} has none; give "
            f"{'a larger --validation' if held_out else '--local-test 0.2'}"
        )
    drops = engine.traps.get("last-batch-dropped", [])
    small = [client for client, size in enumerate(sizes) if size < batch]
    if drops and small:
        raise UsageError(
            f"{where} drops the last batch ({drops[0]}), so client {small[0]} with "
            f"{sizes[small[0]]} samples would train on nothing; give --batch-size of at most {min(sizes)}"
        )


@dataclass
class AuthorFolder:
    """The folder of a run of an author's engine, opened anew, or at its last checkpoint if it is `resumed`.

    Attributes:
        path, config, setup, engine: Its place, and what is executed.
        command: The flags of the author's parser.
        resumed: Whether a run lies there already.
        record: Its run.json.
        done: Rounds that are complete.
    """

    path: Path
    config: RunConfig
    setup: Setup
    engine: AuthorsMethod
    command: Sequence[str]
    resumed: bool

    def __post_init__(self) -> None:
        path, config, setup, engine = self.path, self.config, self.setup, self.engine
        if self.resumed:
            contents = read_run(path)
            check_partition(path, contents)
            check_drawn(path, contents, setup.partition, config)
        else:
            check_free(path, config.identity())
            contents = _contents(config, setup, engine, self.command)
            make_folder(path)
        self.record, self.done = RunRecord(path, contents), contents["rounds_done"]
        self._state = self._checked_state()
        said = self.record.begin_segment(self.done, [engine_record(engine)]) if self.resumed else []
        self.record.write({"state": "running", "error": None})
        self.record.warn(said)
        about = contents["run_id"], config.method, setup.dataset.name, config.data.split, config.seed
        self.writer = MetricsWriter(path, *about, self.record.add_files)
        self.writer.drop_after(self.done if self.resumed else -1)
        setup.partition.save(path / PARTITION)
        self.record.add_files({PARTITION: file_sha256(path / PARTITION)})

    def rounds(self, stop: Callable[[], bool]) -> Generator[RoundEvent, None, None]:
        """Execute the remaining rounds, and write down how they ended."""
        total, ahead = self.config.federation.rounds, self.engine.ahead
        with self._process() as process:
            process.say(self._order())
            ready = process.hear("ready")
            if ready["rounds"] != total + 1 - ahead:
                raise RaffedError(
                    f"the author's loop has {ready['rounds']} rounds, and not {total + 1 - ahead}"
                )
            self.record.contents["engine"].update(server=ready["server"], versions=ready["versions"])
            while self.done < total:
                heard = process.hear("round")
                number = heard["index"] + ahead
                rows = self._rows(number, heard)
                self.writer.add(rows)
                if number:
                    self._checkpoint(number, heard, process)
                    event = round_event(number, total, [], rows, heard["seconds"])
                    yield replace(event, participants=heard["participants"])
                    if stop() and number < total:
                        self.record.write({"state": "stopped", "error": None})
                        return
                process.say("go")
            process.hear("end")
        self.engine.checkout.check_same(self.engine.checkout.folder)
        self._finish()

    def _rows(self, number: int, heard: Event) -> list[Row]:
        """Return the rows of an iteration. If samples were held out, its tests were on these."""
        tested = ("test", "local_test") if self.config.data.validation else ()
        return [row._replace(split="val") if row.split in tested else row for row in rows_of(number, heard)]

    def _order(self) -> dict[str, Any]:
        """Return what the process is told to execute, in a folder with the files and the clients' data."""
        checkout, family = self.engine.checkout, self.engine.family
        main, place = checkout.named(checkout.main), self.path / PLACE
        shutil.rmtree(place, ignore_errors=True)
        checkout.copy_to(place)
        name = self.command[self.command.index("--dataset") + 1]
        clients, seed = self.setup.partition.num_clients, self.config.seed
        folder = (place / main).parent / family.data.format(dataset=name, clients=clients, seed=seed)
        write = _write_flsim if family.central else _write_pfllib
        write(self.setup, Path(os.path.normpath(folder)))
        return {
            **family._asdict(),
            "root": str(place),
            "main": main,
            "flags": list(self.command),
            "carried": self.engine.carried,
            "packages": [missing.name for missing in checkout.packages()],
            "seed": self.config.seed,
            "threads": self.config.runtime.threads,
            "state": self._state,
            "done": self.done + 1 - self.engine.ahead if self.done else 0,
        }

    @contextlib.contextmanager
    def _process(self) -> Iterator[EngineProcess]:
        """Yield the process, which is ended with the block."""
        environment = {name: os.environ[name] for name in HANDED if name in os.environ}
        threads = str(self.config.runtime.threads)
        environment |= {"PYTHONHASHSEED": "0", "OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads}
        environment["PYTHONUNBUFFERED"] = "1"  # what it prints is in the log, even if it is ended
        environment["TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD"] = "1"  # engines read whole models of their own
        if not self.config.runtime.gpu_fraction:  # some engines take a GPU whenever they see one
            environment["CUDA_VISIBLE_DEVICES"] = ""
        python = self.config.runtime.author_python or sys.executable
        with (self.path / LOG).open("ab") as log:
            try:
                process = subprocess.Popen(
                    [python, str(Path(raffed.adopted.__file__).with_name("driver.py"))],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    env=environment,
                    bufsize=0,  # so that `select` sees what can be read
                    start_new_session=True,  # Ctrl-C stops after the round, as for every run
                )
            except OSError as error:
                raise UsageError(
                    f"{python} cannot be started ({error.strerror}); give another --author-python"
                ) from error
        try:
            yield EngineProcess(process, self.path / LOG, self.config.runtime.author_timeout)
        except BaseException:
            end(process)
            raise
        finally:
            process.communicate()
            shutil.rmtree(self.path / PLACE, ignore_errors=True)

    def _signature(self, done: int) -> str:
        """Return this account's signature of the configuration and of the checkpoint after some rounds."""
        state = self.record.files.get(STATE.format(done), "")
        return gate.signature(f"{self.record.contents['identity']} {state}")

    def _checked_state(self) -> str | None:
        """Return the checkpoint from which the run goes on: a pickle, so only one of this account's."""
        name, contents = STATE.format(self.done), self.record.contents
        if contents["engine"].get("signature") != self._signature(self.done):
            raise RunFolderError(
                f"{self.path}: another account began this run or wrote {name}, a pickle that can execute "
                "anything; start the run anew"
            )
        if not self.done:
            return None
        check_file(self.path, name, self.record.files, "put it back, or start the run anew")
        return str(self.path / name)

    def _checkpoint(self, number: int, heard: Event, process: EngineProcess) -> None:
        """Write the rows and the state of a round. Until run.json names it, the one before counts."""
        name = STATE.format(number)
        process.say(str(self.path / name))
        left = process.hear("saved")["left"]
        sync_folder(self.path)
        sha256 = file_sha256(self.path / name)
        self.writer.flush()
        before = [file for file in self.record.files if file.startswith("engine-")]
        for file in before:
            del self.record.files[file]
        self.record.files[name] = sha256
        about = self.record.contents["engine"]
        hashes = [*about.get("round_hashes", [])[: number - 1], heard["state"]]
        about.update(signature=self._signature(number), not_saved=left, round_hashes=hashes)
        self.record.write({"rounds_done": number})
        for file in before:
            (self.path / file).unlink(missing_ok=True)
        self.done = number

    def _finish(self) -> None:
        """Mark the run as finished."""
        check_rows(self.path, self.done)
        self.writer.join()
        hashes = self.record.contents["engine"]["round_hashes"]
        rows, vaults = rows_sha256(read_metrics(self.path)), client_states_sha256({})
        final_hashes = {"weights": hashes[-1], "vaults": vaults, "metrics": rows}
        self.record.write({"state": "finished", "hashes": final_hashes, "round_hashes": hashes})


def end(process: subprocess.Popen[bytes]) -> None:
    """End a process at once, with those that it has started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


@dataclass
class EngineProcess:
    """The process that executes the author's code.

    Attributes:
        process: The process.
        log: The file with what it prints.
        seconds: Most seconds until its next event.
    """

    process: subprocess.Popen[bytes]
    log: Path
    seconds: float

    def say(self, order: Mapping[str, Any] | str) -> None:
        """Send an order or a command. A process that has ended is noticed by `hear`."""
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(json.dumps(order).encode() + b"\n")

    def hear(self, event: str) -> Event:
        """Return the next event, which must be of this kind.

        Raises:
            RaffedError: The author's code failed, ended, or took too long.
        """
        assert self.process.stdout is not None
        if not select.select([self.process.stdout], [], [], self.seconds)[0]:
            raise RaffedError(
                f"the author's code was ended, because a round took more than {self.seconds:g} seconds; what "
                f"it printed is in {self.log}; if it only needs longer, go on with `raffed resume "
                f"{self.log.parent}` and a larger --author-timeout"
            )
        line = self.process.stdout.readline()
        heard: dict[str, Any] = json.loads(line) if line else {"event": "ended"}
        if heard["event"] == event:
            return heard
        why = heard.get("text") or f"it reported {heard['event']!r} in place of {event!r}"
        raise RaffedError(f"the author's code did not go on: {why}; what it printed is in {self.log}")


def _contents(config: RunConfig, setup: Setup, engine: AuthorsMethod, command: Sequence[str]) -> Any:
    """Return the first run.json: that of any method on these data, with what the author's engine is."""
    contents: Any = new_run(setup)
    identity = config.identity()
    checkout, started = engine.checkout, contents["run_id"].rpartition("-")[2]
    named = f"{folder_name(config.method)}-{config.seed}-{identity[:8]}-{started}"
    contents.update(run_id=named, config=config.as_dict(), identity=identity, method_revision=1)
    # The engine has these settings of its own
    given = {"momentum": config.local.momentum, "weight_decay": config.local.weight_decay}
    overridden = {name: {"given": value, "used": None} for name, value in given.items()}
    contents.update(effective={"overridden": overridden}, title=engine.title, code=[engine_record(engine)])
    about = {"family": checkout.family.name, "commit": checkout.commit(), "licence": checkout.licence()}
    signed = gate.signature(f"{identity} ")
    contents["engine"] = {**about, "flags": list(command), "traps": engine.traps, "signature": signed}
    return contents


# Scores of the author's functions as rows.


def rows_of(number: int, heard: Event) -> list[Row]:
    """Return the rows of an iteration, whose scored model contains `number` rounds of training.

    What an engine's plain test scores is the personal model, unless a second test scores that. An engine with
    one test set scores the server's model, on that and on all training samples.
    """
    scores: list[Event] = heard["scores"]
    central = next((score for score in scores if "n_test" in score), None)
    if central is not None:
        n, (loss, correct), (_, value) = central["n_train"], central["train"], central["test"]
        return [
            metrics.TRAINING_LOSS.row(number, loss, n=n, seconds=heard["seconds"]),
            metrics.TRAINING_ACCURACY.row(number, correct, n=n),
            metrics.TEST_ACCURACY.row(number, value, n=central["n_test"]),
        ]
    trained = next((score for score in scores if score["name"].startswith("train")), None)
    tests = {score["name"]: score for score in scores if score["name"].startswith("test")}
    n = int(sum(trained["n"])) if trained else None
    loss = math.fsum(trained["correct"]) / math.fsum(trained["n"]) if trained else math.nan
    rows = [metrics.TRAINING_LOSS.row(number, loss, n=n, seconds=heard["seconds"])]
    for name, score in tests.items():
        downloaded = name == "test_metrics" and len(tests) > 1
        metric = metrics.DOWNLOADED_ACCURACY if downloaded else metrics.PERSONAL_ACCURACY
        rows += _accuracies(number, metric, score)
    return rows


def _accuracies(number: int, metric: Metric, score: Event) -> Iterator[Row]:
    """Yield each client's accuracy and the plain mean. The mean by samples follows from the rows."""
    values = [correct / n for correct, n in zip(score["correct"], score["n"], strict=True)]
    for client, n, value in zip(score["ids"], score["n"], values, strict=True):
        yield metric.row(number, value, client=int(client), n=int(n))
    yield metric.row(number, plain_mean(values), n=len(values))
