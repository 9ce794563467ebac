"""The record of a run in run.json: its inputs, its code, its machine, its versions."""

from __future__ import annotations

import contextlib
import datetime
import json
import logging
import os
import platform
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy.typing as npt
import torch
from torch import Tensor

from raffed.core.own_functions import OwnMetric
from raffed.core.training.session import effective, steps_of
from raffed.data.dataset import Dataset
from raffed.data.importers.images import read_images
from raffed.data.importers.imported import DataFacts
from raffed.data.importers.tables import encoded_rows
from raffed.data.preparation import Transform, transform_from, transform_text
from raffed.data.transforms import prepare_inputs
from raffed.errors import DataFileError, RaffedError, RunFolderError, UsageError
from raffed.methods import OwnMethod, method_info
from raffed.results import origin, runfile
from raffed.results.lock import Place, of_folder
from raffed.results.remote import STATE_FILE
from raffed.runs.code_record import code_records, revision_of
from raffed.runtime.machine import kernels_enabled, linear_library, processor
from raffed.runtime.setup import Setup, style_of

if TYPE_CHECKING:
    import pandas as pd

# How a run turned its data into inputs, so that its model can be used on new rows and images.


def described_data(data: Dataset, transform: Transform) -> dict[str, Any]:
    """Return what run.json holds about a run's data: names, encoding and preparation."""
    return {
        **data.facts.as_json(),
        "name": data.name,
        "class_names": list(data.class_names),
        "stored": {"shape": list(data.input_shape), "dtype": str(data.x.dtype), "max_value": data.max_value},
        "prepared": json.loads(transform_text(transform)),
    }


@dataclass(frozen=True)
class SavedInputs:
    """How the inputs of a finished run were made.

    Attributes:
        class_names: Names of the classes, in the order of the network's scores; empty if the data had none.
        facts: The columns of a table with their encoding, the names of the clients, and more.
        shape: Shape of one stored input, such as (channels, height, width).
        max_value: The pixel value that means 1.0.
        transform: What is done to stored inputs.
    """

    class_names: tuple[str, ...]
    facts: DataFacts
    shape: tuple[int, ...]
    max_value: int
    transform: Transform

    @staticmethod
    def load(place: str | Path) -> SavedInputs:
        """Read them from the folder of a run, or from the JSON file that `raffed export` writes.

        Raises:
            UsageError: There is no such file, or it does not say how inputs were made.
        """
        path = Path(place)
        try:
            about: Any = (
                runfile.read_run(path) if path.is_dir() else json.loads(path.read_text(encoding="utf-8"))
            )
        except UsageError:
            raise
        except (OSError, ValueError) as error:
            raise DataFileError(f"{path} cannot be read: {error}") from error
        dataset = about.get("dataset") if isinstance(about, Mapping) else None
        if not isinstance(dataset, Mapping):
            raise UsageError(f"{path} does not say how inputs were made; give a run's folder")
        try:
            transform = transform_from(json.dumps(dataset["prepared"]))
            assert transform is not None
            stored = dataset["stored"]
            return SavedInputs(
                tuple(dataset["class_names"]),
                DataFacts.from_json(dataset),
                tuple(stored["shape"]),
                int(stored["max_value"]),
                transform,
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise DataFileError(
                f"{path}: what it says about inputs is damaged ({error!r}); put back a copy of it"
            ) from error

    def rows(self, table: pd.DataFrame | Mapping[str, npt.ArrayLike] | str | Path) -> Tensor:
        """Return the inputs [N, encoded columns] of new rows of a table.

        Args:
            table: Path of a csv or Parquet file, a data frame, or columns by name. Columns that are not
                features, such as a label, are not looked at.

        Raises:
            UsageError: The run's data were no table, or a column is missing or cannot be used.
        """
        if not self.facts.columns:
            raise UsageError("the data of this run were not a table; prepare its inputs in another way")
        return prepare_inputs(encoded_rows(table, self.facts), self.transform, self.max_value)

    def images(self, paths: Sequence[str | Path]) -> Tensor:
        """Return the inputs [N, channels, height, width] of new image files.

        Raises:
            UsageError: The run's data were no images, or a file cannot be read or has another size.
        """
        if len(self.shape) != 3 or self.shape[0] not in (1, 3):
            raise UsageError(f"the data of this run were not images but have the shape {self.shape}")
        channels, height, width = self.shape
        size = height if self.facts.resized else 0
        x, _ = read_images([Path(path) for path in paths], size, "grey" if channels == 1 else "rgb")
        if x.shape[1:] != self.shape:
            raise UsageError(
                f"the images are {x.shape[3]}x{x.shape[2]} pixels, those of the run {width}x{height}"
            )
        return prepare_inputs(x, self.transform, self.max_value)


# Record what computed a run: the process that began it, and one segment for each time it was begun or
# resumed.


def new_run(setup: Setup) -> runfile.RunContents:
    """Return the first contents of run.json, without its state."""
    now = datetime.datetime.now(datetime.UTC)
    config, data, partition = setup.config, setup.data, setup.partition
    identity, name = config.identity(), runfile.folder_name(config.method)
    segment, counts = new_segment(0), partition.class_counts(data.dataset.y)
    sizes, training = data.sizes_at(0), setup.method.training
    steps = [steps_of(training, config.local, sizes[client]) for client in data.trainable]
    trained = effective(training, config.local) | {"steps": sum(steps) / len(steps)}
    if setup.network.required:
        trained["network"] = dict(setup.network.args)
    return {
        "schema": runfile.RUN_SCHEMA,
        "run_id": f"{name}-{config.seed}-{identity[:8]}-{now:%Y%m%dT%H%M%S%f}",
        "config": config.as_dict(),
        "identity": identity,
        "method_revision": revision_of(config.method),
        "started": segment["started"],
        "versions": segment["versions"],
        "commit": origin.commit(),
        "hardware": segment["hardware"],
        "clients": partition.num_clients,
        # Head, tail and missing classes are derived from these numbers of training samples and of clients
        "classes": {"samples": counts.sum(axis=0).tolist(), "holders": (counts > 0).sum(axis=0).tolist()},
        "partition_sha256": partition.sha256(),
        "lists_sha256": partition.lists_sha256(),
        **({"data_sha256": setup.data_sha256} if setup.data_sha256 else {}),
        "transform": style_of(config.data, partition),
        "inputs": {"shape": list(data.input_shape), "dtype": data.input_dtype},
        "dataset": described_data(data.dataset, data.transform),
        "effective": trained,
        "rounds_done": 0,
        "files": {},
        "segments": [segment],
        **({"code": code_records(setup.code)} if setup.code.parts else {}),
        **_own_names(config.method, data.own_metrics),
    }


def _own_names(method: str, measured: Sequence[OwnMetric]) -> runfile.RunContents:
    """Return what readers without the user's own code need: the method's title, and what metrics mean."""
    contents: runfile.RunContents = {}
    info = method_info(method)
    if isinstance(info, OwnMethod):
        contents["title"] = info.title
    if measured:
        contents["metrics"] = [dict(metric.described()) for metric in measured]
    return contents


def new_segment(done: int) -> runfile.Segment:
    """Return the segment of a run that begins here and now, after `done` rounds."""
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    segment: runfile.Segment = {
        "from": done + 1,
        "to": done,
        "started": now,
        "versions": runfile.versions(),
        "hardware": hardware(),
        "said": [],
    }
    if typed := origin.command_line():
        segment["command"] = typed
    return segment


def gpus(placement: runfile.Noted) -> str:
    """Return the names of the GPUs that a run uses; empty if it uses none."""
    places = placement.get("places")
    every = [placement, *(places if isinstance(places, list) else [])]
    return ", ".join(sorted({str(place["gpu"]) for place in every if place.get("gpu")}))


def hardware() -> dict[str, str | int | None]:
    """Describe the driver's machine.

    The last entries may change bits: the processor, the vector instructions that torch uses, the library of
    large linear layers, and whether RAFFED_KERNELS switches raffed's own kernels off.
    """
    return {
        "machine": platform.machine(),
        "system": platform.platform(),
        "cores": os.cpu_count(),
        "processor": processor(),
        "vectors": torch.backends.cpu.get_cpu_capability(),
        "linear": linear_library(),
        **({} if kernels_enabled() else {"kernels": "off"}),
    }


# run.json of a run that is being executed: its state, the hashes of its files, and what computed it.


# How many hashes of checkpoints' state.json run.json holds. A copy at a URL may lag some checkpoints behind.
KEPT_STATES = 100
CHANGED = (
    "{path}: resumed under other conditions: {what}; from here on its bits may differ from those of a run "
    "without a pause"
)

log = logging.getLogger(__name__)


class RunRecord:
    """The run.json in a folder that exists. Every change is written in a single step.

    `contents` is what run.json holds, and `files` the hashes there of the run's files, by their names below
    the folder. With `quiet`, warnings are recorded and not logged.
    """

    def __init__(self, path: Path, contents: runfile.RunContents, *, quiet: bool = False) -> None:
        self.path, self.contents, self._quiet = path, contents, quiet
        self.files: dict[str, str] = contents["files"]
        self.place = Place(path)
        self._earlier, self._began = float(contents.get("seconds", 0.0)), time.monotonic()

    def write(self, changes: runfile.RunContents) -> None:
        self.place.check()
        self.contents.update(changes)
        self.contents["segments"][-1]["to"] = self.contents["rounds_done"]
        self.contents["seconds"] = self._earlier + time.monotonic() - self._began
        runfile.write_json(self.path / runfile.RUN_FILE, self.contents)

    def add_files(self, hashes: Mapping[str, str]) -> None:
        """Record the hashes of files that are about to get their names.

        If the run is killed in between, run.json holds hashes of files that do not exist.
        """
        self.files.update(hashes)
        states = [name for name in self.files if name.endswith(STATE_FILE)]
        for name in sorted(states)[:-KEPT_STATES]:
            del self.files[name]
        self.write({})

    @contextlib.contextmanager
    def how_it_ends(self) -> Iterator[None]:
        """Write down how a run ended that did not come to its end: it was interrupted, or it failed.

        If that cannot be written either, it is only logged, so that the first error is reported.
        """
        try:
            yield
        except BaseException as error:
            stopped = isinstance(error, KeyboardInterrupt | GeneratorExit)
            named = str(error) if isinstance(error, RaffedError) else f"{type(error).__name__}: {error}"
            state, said = ("stopped", "interrupted") if stopped else ("failed", named)
            try:
                self.write({"state": state, "error": said})
            except OSError as second:
                level = logging.INFO if of_folder(second) else logging.WARNING
                log.log(level, "%s: its state could not be put down: %s", self.path, second)
            if isinstance(error, RunFolderError):  # not a refused request: the run could not go on
                raise RaffedError(str(error)) from error
            raise

    def begin_segment(self, rounds_done: int, records: list[runfile.CodeRecord]) -> list[str]:
        """Add a segment for the rounds after `rounds_done`, and return the warnings about it.

        Nothing is written yet. Own code that has changed is recorded with its old and new hashes.
        """
        before = self.contents["segments"]
        self.contents["rounds_done"] = rounds_done
        kept = origin.up_to(before, rounds_done)
        self.contents["segments"] = [*kept, new_segment(rounds_done)]
        recorded, now = origin.all_files(self.contents.get("code", [])), origin.all_files(records)
        old = recorded
        for lost in reversed(before[len(kept) :]):  # whose rounds, and so whose code, are in no result
            old = origin.code_before(old, lost.get("accepted", {}))
        if now != recorded:
            self.contents["code"] = records
        if other_code := origin.changed_files(old, now):
            self.contents["segments"][-1]["accepted"] = other_code
        other = origin.difference(before[-1], self.contents["segments"][-1])
        return [CHANGED.format(path=self.path, what=other)] if other else []

    def note_placement(self, placement: runfile.Noted) -> None:
        """Record where the work is done, and in the present segment the GPUs."""
        if names := gpus(placement):
            *earlier, now = self.contents["segments"]
            now["hardware"]["gpu"] = names
            if (
                earlier
                and (other := origin.difference(earlier[-1], now))
                and other not in " ".join(now["said"])
            ):
                self.warn([CHANGED.format(path=self.path, what=other)])
        self.write({"placement": placement})

    def warn(self, lines: Sequence[str]) -> None:
        """Record warnings about the folder in the present segment, and log them."""
        self.contents["segments"][-1]["said"] += lines
        if not self._quiet:
            for line in lines:
                log.warning("%s", line)
