"""Record what computed a run: the process that began it, and one segment for each time it was begun or
resumed.
"""

from __future__ import annotations

import datetime
import os
import platform

import torch

from raffed.config.validation import Value
from raffed.core.training.overrides import effective
from raffed.methods import OwnMethod, method_info
from raffed.results.command_line import command_line
from raffed.results.folder_names import folder_name
from raffed.results.run_contents import RUN_SCHEMA, Noted, RunContents, Segment
from raffed.results.runfile import versions
from raffed.results.source_commit import commit
from raffed.runs.code_record import code_records
from raffed.runs.method_revision import revision_of
from raffed.runs.saved_inputs import described_data
from raffed.runtime.machine import kernels_enabled, linear_library, processor
from raffed.runtime.run_network import network_args
from raffed.runtime.setup import Setup


def new_run(setup: Setup) -> RunContents:
    """Return the first contents of run.json, without its state."""
    now = datetime.datetime.now(datetime.UTC)
    identity, name = setup.config.identity(), folder_name(setup.config.method)
    segment = new_segment(0)
    return {
        "schema": RUN_SCHEMA,
        "run_id": f"{name}-{setup.config.seed}-{identity[:8]}-{now:%Y%m%dT%H%M%S%f}",
        "config": setup.config.as_dict(),
        "identity": identity,
        "method_revision": revision_of(setup.config.method),
        "started": segment["started"],
        "versions": segment["versions"],
        "commit": commit(),
        "hardware": segment["hardware"],
        "clients": setup.partition.num_clients,
        "classes": _classes(setup),
        "partition_sha256": setup.partition.sha256(),
        "lists_sha256": setup.partition.lists_sha256(),
        **({"data_sha256": setup.data_sha256} if setup.data_sha256 else {}),
        "transform": setup.style,
        "inputs": {"shape": list(setup.input_shape), "dtype": setup.input_dtype},
        "dataset": described_data(setup),
        "effective": _effective(setup),
        "rounds_done": 0,
        "files": {},
        "segments": [segment],
        **({"code": code_records(setup.code)} if setup.code.parts else {}),
        **_own_names(setup),
    }


def _effective(setup: Setup) -> dict[str, Value]:
    """Return how clients train, and the network's arguments if the method requires some."""
    required = setup.method.network
    found = effective(setup.method, setup.config.local)
    return {**found, "network": network_args(setup.config, setup.method)} if required else found


def _own_names(setup: Setup) -> RunContents:
    """Return what readers without the user's own code need: the method's title, and what metrics mean."""
    found: RunContents = {}
    info = method_info(setup.config.method)
    if isinstance(info, OwnMethod):
        found["title"] = info.title
    if setup.own_metrics:
        found["metrics"] = [dict(one.described()) for one in setup.own_metrics]
    return found


def new_segment(done: int) -> Segment:
    """Return the segment of a run that begins here and now, after `done` rounds."""
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    segment: Segment = {
        "from": done + 1,
        "to": done,
        "started": now,
        "versions": versions(),
        "hardware": hardware(),
        "said": [],
    }
    if typed := command_line():
        segment["command"] = typed
    return segment


def gpus(placement: Noted) -> str:
    """Return the names of the GPUs that a run uses; empty if it uses none."""
    places = placement.get("places")
    every = [placement, *(places if isinstance(places, list) else [])]
    return ", ".join(sorted({str(place["gpu"]) for place in every if place.get("gpu")}))


def hardware() -> dict[str, str | int | None]:
    """Describe the driver's machine.

    The last entries may change bits: the processor, the vector instructions that torch uses, the library of
    large linear layers, and whether RAFFED_KERNELS switches raffed's own kernels off.
    """
    about: dict[str, str | int | None] = {
        "machine": platform.machine(),
        "system": platform.platform(),
        "cores": os.cpu_count(),
    }
    return {
        **about,
        "processor": processor(),
        "vectors": torch.backends.cpu.get_cpu_capability(),
        "linear": linear_library(),
        **({} if kernels_enabled() else {"kernels": "off"}),
    }


def _classes(setup: Setup) -> dict[str, list[int]]:
    """Return for every class the number of training samples and of clients that train on it.

    Head, tail and missing classes are derived from these numbers.
    """
    counts = setup.partition.class_counts(setup.dataset.y)
    return {"samples": counts.sum(axis=0).tolist(), "holders": (counts > 0).sum(axis=0).tolist()}
