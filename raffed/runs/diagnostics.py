"""Find out whether this machine can run raffed, and which data sets it has.

Nothing is changed. `--ray` starts and ends a small Ray.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from raffed.budget import free_memory
from raffed.config.run import RunConfig
from raffed.data.catalogue import DATASETS
from raffed.errors import RaffedError, UsageError
from raffed.runtime.machine import usable_cores
from raffed.runtime.placement import ACTOR_BYTES

LIBRARIES = (
    "torch",
    "torchvision",
    "ray",
    "numpy",
    "pandas",
    "pyarrow",
    "scikit-learn",
    "safetensors",
    "matplotlib",
)
RAY_STARTS = "Ray starts"


@dataclass(frozen=True)
class Finding:
    """One line of the report.

    `state` is "ok", "absent" (and not needed), "note" (could be better) or "broken" (raffed cannot run).
    """

    what: str
    found: str
    state: str = "ok"
    advice: str = ""


def examine(data_root: str | None = None, ray: bool = False, address: str | None = None) -> Iterator[Finding]:
    """Yield all findings, one after the other. torch is imported on the way.

    `address` is that of the Ray cluster that is tried.
    """
    yield Finding("Python", platform.python_version())
    yield from _libraries()
    yield _arithmetic()
    yield from _machine()
    yield from _gpus()
    yield from _data(data_root)
    if ray or address:
        yield from _ray(address)


def sized(config: RunConfig) -> Iterator[Finding]:
    """Measure in a few seconds what one client of a run costs here, and propose how to place the run."""
    from raffed.runtime.autosize import fastest, measure_all, repeats
    from raffed.runtime.setup import prepare_run

    setup = prepare_run(config)
    probes = measure_all(setup, "cuda" if config.runtime.gpu_fraction else "cpu")
    probe = probes[0]
    first = next(iter(probe.seconds.values()))
    for measured in probes:
        how = "" if measured is probe else ", compiled"
        for size, seconds in measured.seconds.items():
            what = ("one by one" if size == 1 else f"stacks of {size}") + how
            share = f"{seconds / first:.2f} of one by one"
            yield Finding(what, f"{1e3 * seconds:.2f} ms a step and client, {share}")
    cost = f"{probe.steps} steps, {probe.steps * first:.2g} s one by one"
    peak = "less than 1 MB" if probe.client_bytes < 1e6 else f"{probe.client_bytes / 1e6:.0f} MB"
    yield Finding("a client", f"{cost}, {peak} at its peak")
    chosen = fastest(setup, probes)
    yield Finding("fastest here", chosen.why, "ok", repeats(config, chosen))


def _libraries() -> Iterator[Finding]:
    for name in LIBRARIES:
        try:
            yield Finding(name, importlib.metadata.version(name))
        except importlib.metadata.PackageNotFoundError:
            yield Finding(name, "not installed", "broken", "pip install raffed brings it")


def _arithmetic() -> Finding:
    """Import and use torch and torchvision, because an installed version may still fail to load."""
    try:
        import torch
        import torchvision

        torch.ones(64, 64) @ torch.ones(64, 64)
    except (ImportError, OSError, RuntimeError, AttributeError) as error:
        said = str(error).splitlines()[0] if str(error) else type(error).__name__
        mend = "reinstall both: pip install --force-reinstall torch torchvision"
        return Finding("torch computes", said, "broken", mend)
    return Finding("torch computes", f"yes, with torchvision {torchvision.__version__}")


def _machine() -> Iterator[Finding]:
    cores = usable_cores()
    yield Finding("cores", f"{cores}", *(("note", "actors take turns on one core") if cores == 1 else ()))
    memory = free_memory()
    if memory is not None:
        actors = int(memory // ACTOR_BYTES)
        enough = Finding("memory free", f"{memory / 1e9:.1f} GB, room for about {actors} actors")
        few = Finding("memory free", enough.found, "note", "use --clients-per-actor 0 or --execution serial")
        yield enough if actors >= cores else few
    if Path("/tmp").is_dir():
        free = shutil.disk_usage("/tmp").free / 1e9
        why = "Ray writes there; free some space or set RAY_TMPDIR"
        yield Finding("/tmp free", f"{free:.1f} GB", *(("note", why) if free < 2.0 else ()))


def _gpus() -> Iterator[Finding]:
    import torch

    if not torch.cuda.is_available():
        yield Finding("GPU", "none that torch sees: runs use the CPU", "absent")
    for index in range(torch.cuda.device_count()):
        about = torch.cuda.get_device_properties(index)
        size = f"{about.name}, {about.total_memory / 1e9:.0f} GB"
        yield Finding(f"GPU {index}", f"{size}; --gpu-fraction 0.25 puts 4 actors on it")


def _data(root: str | None) -> Iterator[Finding]:
    """Read each data set once, with the md5 sums of its files, unless its folder does not exist."""
    text = root or os.environ.get("RAFFED_DATA", "")
    folder = Path(text).expanduser()
    if not text:
        how = "set RAFFED_DATA or give --data-root; digits needs none"
        yield Finding("data folder", "none named", "note", how)
    elif not folder.is_dir():
        how = "make it, or set RAFFED_DATA to another"
        yield Finding("data folder", f"{folder} is not there", "note", how)
    else:
        yield Finding("data folder", str(folder))
    for name in DATASETS:
        yield _dataset(name, text if folder.is_dir() else "")


def _dataset(name: str, root: str) -> Finding:
    from raffed.data.datasets import load_dataset

    if name != "digits" and (not root or not _traces(name, Path(root).expanduser())):
        info = DATASETS[name]
        download = f"raffed run --dataset {name} --download --data-root DIR"
        return Finding(name, "not here", "absent", f"put there: {info.origin}" if info.folder else download)
    try:
        pool = load_dataset(name, root or None)
    except RaffedError as error:
        return Finding(name, "damaged or incomplete", "note", str(error))
    except ImportError as error:
        state = "broken" if name == "digits" else "note"
        return Finding(name, f"cannot be loaded: {error}", state, "pip install raffed brings what is missing")
    return Finding(name, f"usable, {len(pool.y):,} train, {len(pool.y_test):,} test")


def _traces(name: str, root: Path) -> bool:
    """Return whether any of a data set's files exists."""
    if DATASETS[name].folder:
        return (root / DATASETS[name].folder).is_dir()
    paths = [root / file.path for file in DATASETS[name].files]
    return any(path.exists() or path.with_name(path.name + ".gz").exists() for path in paths)


def _ray(address: str | None) -> Iterator[Finding]:
    """Start or join a Ray as every command does, and ask one worker on each of its nodes."""
    from raffed.runtime.ray.nodes import MEND, different_nodes
    from raffed.runtime.ray.session import RaySession

    began = time.monotonic()
    try:
        with RaySession(address) as session:
            session.wait()
            ready = time.monotonic() - began
            nodes, different = different_nodes()
    except UsageError as error:
        what, _, advice = " ".join(str(error).split()).partition("; ")
        yield Finding(RAY_STARTS, what, "broken", advice or "--execution serial runs without Ray")
        return
    answered = time.monotonic() - began
    yield Finding(RAY_STARTS, f"yes, in {ready:.1f} s; an actor answered after {answered:.1f} s")
    for node, what in different.items():
        yield Finding(f"node {node}", what, "broken", MEND)
    if nodes > 1 and not different:
        yield Finding("nodes", f"{nodes}, with the same raffed, torch and NumPy as here")
