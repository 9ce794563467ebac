"""Wall time of a round as a ratio to a bare PyTorch loop that makes the same steps: raffed, Flower,
pfl-research, fluke, PFLlib, FL-bench and BlazeFL.

    python -m benchmarks.round_time [--only W1] [--contestants bare,raffed,pfl] [--repetitions 7] [--out
    FILE.json]

Every contestant is a process that lives through the whole race, stopped while others run. A repetition times
a block of rounds of each, one after the other, in an order that moves on; a ratio is to the bare loop's block
of the same repetition. One partition, one set of initial weights, one sequence of participants; steps are
counted, and a contestant with others than the bare loop's is marked. Names: bare (two forked processes),
bare-fused, raffed (two Ray actors), raffed-serial, raffed-cohort (one process, stacked), raffed-cohort-2 (two
actors, a stack each), raffed-bf16 (two actors), flower, pfl, pfl-2 (two gloo processes), fluke (one
process), pfllib (one process), flbench (one process), flbench-2 (its two Ray actors), blazefl (two
processes), blazefl-threads (two threads of a Python without the global lock; W7 alone). Compiled convolutions
(W2, W4, W5, W7): raffed-compiled (two actors), raffed-serial-compiled, raffed-cohort-compiled,
raffed-cohort-2-compiled. With --out also FILE.png; --history adds the figures to a history. RAFFED_DATA
holds the data.

Flower pins its own Ray, so the peers have an environment of their own that borrows torch from this one:

    python3 -m venv peers
    .venv/bin/python -c 'import torch, pathlib; print(pathlib.Path(torch.__file__).parents[1])' \\
        > "$(peers/bin/python -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')/torch.pth"
    peers/bin/pip install flwr==1.41.0 ray==2.55.1
    peers/bin/pip install --no-deps pfl==0.6.0 multiprocess dill 'dp-accounting<0.6' 'prv-accountant<0.3'
    absl-py
    peers/bin/pip install fluke-fl==0.8.1
    peers/bin/pip install h5py scikit-learn hydra-core==1.3.2 pynvml  # for the two that are no packages
    export RAFFED_PEERS=$PWD/peers/bin/python
    export RAFFED_PFLLIB=FOLDER RAFFED_FLBENCH=FOLDER                 # checkouts of these two

BlazeFL needs a newer Python and a torch of its own. Its threads need a Python that was built without the
global lock (`configure --disable-gil`):

    python3.14t -m venv blazefl
    blazefl/bin/pip install torch torchvision numpy tqdm pydantic psutil rich scikit-learn safetensors
    blazefl/bin/pip install blazefl==3.0.0
    export RAFFED_BLAZEFL=$PWD/blazefl/bin/python PYTHON_GIL=0

Python 3.13t does as well: torch 2.9.1 is its last, blazefl needs --ignore-requires-python and, in its
snapshot.py, `from __future__ import annotations`; safetensors has no wheel, and its names alone are enough.

Without these variables (and without flwr and pfl in this environment) the peers are reported as absent and
left out.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import subprocess
import sys
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks.checkouts import commits
from benchmarks.contestant import CONTESTANTS
from benchmarks.history import Row, add
from benchmarks.process import command
from benchmarks.race import BASE, race, summary
from benchmarks.report import plot, table

VERSIONS = (
    "import importlib.metadata as m, json; print(json.dumps({d.name: d.version for d in m.distributions()}))"
)


def measure(workload: Any, names: list[str], repetitions: int, rounds: int) -> dict[str, Any]:
    """One workload's race, as plain data."""
    lanes = race(names, lambda name: command(name, workload.name), repetitions, rounds)
    about = {"workload": workload.name, "text": workload.text, "cohort": workload.cohort}
    about |= {"repetitions": repetitions, "rounds": rounds}
    return {**about, "rows": summary(lanes)}


def figures(result: Mapping[str, Any]) -> list[Row]:
    """What the history keeps of a race: the seconds and the ratio of everybody who took part."""
    return [
        {
            "workload": result["workload"],
            "name": row["contestant"],
            "seconds": row["seconds"],
            "ratio": row["ratio"],
        }
        for row in result["rows"]
        if row["ratio"] is not None
    ]


def machine() -> dict[str, Any]:
    """What the figures depend on."""
    found: dict[str, Any] = {
        "cores": os.cpu_count(),
        "system": platform.platform(),
        "python": platform.python_version(),
    }
    found |= {name: version(name) for name in ("torch", "ray", "numpy")}
    found["peers"] = _peers()
    return found


def _peers() -> dict[str, str]:
    """Return the versions of the peers, and of the torch that BlazeFL's newer Python has."""
    every = _versions("RAFFED_PEERS")
    found = {name: every[name] for name in ("flwr", "pfl", "fluke-fl") if name in every}
    other = _versions("RAFFED_BLAZEFL")
    if "blazefl" in other:
        found["blazefl"] = f"{other['blazefl']} (torch {other['torch']})"
    return {**found, **commits()}


def _versions(variable: str) -> dict[str, str]:
    """Return the version of each package of an interpreter that a variable of the environment names."""
    python = os.environ.get(variable)
    if python is None:
        return {}
    try:
        text = subprocess.run([python, "-c", VERSIONS], capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return {}  # the race says why
    versions: dict[str, str] = json.loads(text)
    return versions


def _end(*_: Any) -> None:
    """Leave by way of the race, which ends its contestants: a stopped one would stay for ever. Once:
    `timeout` signals twice.
    """
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit(143)


def main() -> None:
    from benchmarks.workloads import WORKLOADS

    signal.signal(signal.SIGTERM, _end)
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repetitions", type=int, default=7)
    parser.add_argument("--rounds", type=int, help="rounds in a block (default: the workload's)")
    parser.add_argument("--only", choices=[w.name for w in WORKLOADS], nargs="+", action="extend")
    parser.add_argument("--contestants", default=",".join(CONTESTANTS))
    parser.add_argument("--out", type=Path)
    parser.add_argument("--history", type=Path, help="file of JSON lines to which the figures are added")
    options = parser.parse_args()
    names = [BASE, *(name for name in options.contestants.split(",") if name != BASE)]
    unknown = [name for name in names if name not in CONTESTANTS]
    if unknown:
        parser.error(f"no contestant {unknown[0]!r}; there are {', '.join(CONTESTANTS)}")
    results = []
    for workload in WORKLOADS:
        if options.only is None or workload.name in options.only:
            results.append(measure(workload, names, options.repetitions, options.rounds or workload.block))
            Console(width=max(Console().width, 140)).print(table(results[-1]))
            if options.history:
                add(options.history, "round time", figures(results[-1]))
            if options.out:  # after each, so that a long race leaves something
                options.out.parent.mkdir(parents=True, exist_ok=True)
                options.out.write_text(
                    json.dumps({"machine": machine(), "results": results}, indent=2) + "\n"
                )
                plot(results, options.out.with_suffix(".png"))


if __name__ == "__main__":
    main()
