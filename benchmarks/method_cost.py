"""What every method costs beside FedAvg: seconds of a round, a client's private state, bytes sent.

    RAFFED_DATA=DIR python -m benchmarks.method_cost [--only fedprox ...] [--quick] [--turns 5]
    python -m benchmarks.method_cost --shape pfllib --gpu [--turns 1]

The workload is W2 on a CPU, or the shape of PFLlib's table of costs, which is made for a GPU.

One process, one thread, in turns: a round of FedAvg, a round of the method, and again. Each method's first
round warms up and is not timed. Methods that do not train in W2 as it is (`ELSEWHERE`) and a FedAvg of their
own get the nearest setting that fits both, and the page names it. Evaluation and checkpoints stay off.

After each method the record (method_cost.json beside this file) and docs/cost.md are written. A run that is
interrupted goes on with --keep, which measures only what the record has no figure for. `--quick` rehearses on
digits with fewer steps, and writes where --out says. Do not measure while other work runs: the load is
written into the record.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import time
from collections.abc import Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

import torch
from safetensors.numpy import load_file

from benchmarks.cost_record import BASE, Record, Row, page, paths, read
from benchmarks.ours import Raffed, in_process
from benchmarks.pfllib_shape import shape
from benchmarks.workloads import Workload, workload
from raffed.config.sections import Numerics
from raffed.errors import RaffedError
from raffed.methods import METHODS
from raffed.models import MODELS
from raffed.runtime.machine import begin_training
from raffed.runtime.setup import check_model, prepare_run

TURNS = 5
QUICK = ("W3", 2)  # the workload of a rehearsal, and its turns
NOTHING: Row = {"ratios": [], "seconds": [], "kept": 0, "up": 0, "down": 0, "note": ""}
UNBIASED, SLOWER, HELD_OUT = "head_bias = false", "lr = 0.01", "validation = 0.2"
BOTH = f"{UNBIASED} and lr = 0.001"
# Methods that do not train in the workload as it is, and what is changed for them and their FedAvg
ELSEWHERE = {
    "fedetf": UNBIASED,
    "fedexp": SLOWER,
    "fedfomo": HELD_OUT,
    "fedgela": BOTH,
    "fednh": UNBIASED,
    "gldp": SLOWER,
}


def contestant(method: str, load: Workload) -> Raffed:
    """Return the workload with another method, in this process.

    Raises:
        UsageError: The method cannot train this network.
    """
    setup = prepare_run(replace(load.config, method=method))
    if load.config.model.name in MODELS:  # the checks of another network take a minute for each method
        check_model(setup.network, setup.data)
    return Raffed(setup, Numerics(), in_process)


def changed(load: Workload, setting: str) -> Workload:
    """Return the workload with the changes that `setting` names."""
    config = load.config
    if UNBIASED in setting:
        args = {name: value for name, value in config.model.args.items() if name != "head_bias"}
        config = replace(config, model=replace(config.model, args=args))
    if "lr = " in setting:
        config = replace(config, local=replace(config.local, lr=float(setting.rpartition(" = ")[2])))
    if HELD_OUT in setting:
        config = replace(config, data=replace(config.data, validation=0.2))
    return replace(load, config=config)


def measure_elsewhere(method: str, load: Workload, turns: int) -> Row:
    """Return what a method of `ELSEWHERE` costs, in turns with a FedAvg that has the same change."""
    setting = ELSEWHERE[method]
    other = changed(load, setting)
    base = contestant(BASE, other)
    try:
        base.round()
        return {**measure(method, base, other, turns), "setting": setting}
    finally:
        base.close()


def timed(one: Raffed) -> float:
    """Return the seconds of a round."""
    began = time.perf_counter()
    one.round()
    return time.perf_counter() - began


def kept_bytes(states: Path) -> int:
    """Return the bytes of the largest private state of a client, without what its file adds; 0 if none."""
    files = states.glob("clients-*/client-*")
    return max((sum(array.nbytes for array in load_file(path).values()) for path in files), default=0)


def measure(method: str, base: Raffed, load: Workload, turns: int) -> Row:
    """Return what a method costs, in turns with FedAvg. `note` says why it could not be measured."""
    try:
        one = contestant(method, load)
    except RaffedError as error:
        return {**NOTHING, "note": " ".join(str(error).split())}
    try:
        one.round()
        pairs = [(timed(base), timed(one)) for _ in range(turns)]
        reports = one.reports()
        return {
            "ratios": [own / floor for floor, own in pairs],
            "seconds": [own for _, own in pairs],
            "kept": kept_bytes(one.states),
            "up": max(report.bytes_up for report in reports),
            "down": max(report.bytes_down for report in reports),
            "note": "",
        }
    except RaffedError as error:
        return {**NOTHING, "note": " ".join(str(error).split())}
    finally:
        one.close()


def measured(
    names: Sequence[str], load: Workload, turns: int, quick: bool, out: Path, pages: Path, keep: bool
) -> Record:
    """Measure methods, and write the record and the page after each of them."""
    before = read(out) if keep else None
    rows = {key: row for key, row in before["rows"].items() if row["ratios"]} if before is not None else {}
    about = {"processor": platform.processor() or platform.machine(), "cores": f"{os.cpu_count()} cores"}
    about |= {"torch": f"torch {version('torch')}", "python": f"Python {platform.python_version()}"}
    if load.config.runtime.gpu_fraction:
        about["card"] = torch.cuda.get_device_name()
    loads = [os.getloadavg()[0], *(before["load"] if before is not None else ())]
    low, high = min(loads), max(loads)
    record: Record = {"workload": load.text, "quick": quick, "machine": about, "load": [], "rows": rows}
    begin_training(1)
    base = contestant(BASE, load)
    try:
        base.round()
        for name in names:
            if name not in rows:
                print(f"{name} ...", flush=True)  # a method may take minutes
                elsewhere = name in ELSEWHERE
                rows[name] = (
                    measure_elsewhere(name, load, turns) if elsewhere else measure(name, base, load, turns)
                )
                now = os.getloadavg()[0]
                low, high = min(low, now), max(high, now)
                record["load"] = [low, high]
                record["rows"] = {key: rows[key] for key in METHODS if key in rows}
                out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
                pages.write_text(page(record), encoding="utf-8")
                print(_said(name, rows[name]), flush=True)
    finally:
        base.close()
    return record


def _said(name: str, row: Row) -> str:
    shown = " ".join(f"{ratio:.2f}" for ratio in row["ratios"])
    return f"{name}: {shown or row['note']}"


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", choices=list(METHODS), default=list(METHODS))
    parser.add_argument("--turns", type=int, help=f"rounds of each method that are timed (default: {TURNS})")
    parser.add_argument("--quick", action="store_true", help="rehearse on digits; needs --out")
    parser.add_argument("--keep", action="store_true", help="measure only what the record does not have")
    parser.add_argument("--out", type=Path, help="folder of the record and the page, in place of the usual")
    parser.add_argument("--shape", choices=["pfllib"], help="measure in another workload than W2")
    parser.add_argument("--gpu", action="store_true", help="train on the first GPU; needs --shape")
    given = parser.parse_args(argv)
    if given.gpu and given.shape is None:
        parser.error("--gpu needs --shape: W2 is the workload of a CPU")
    if given.quick and given.out is None:
        parser.error("--quick is a rehearsal; give --out, so that it does not replace the record")
    record, pages = paths(given.shape)
    if given.out is not None:
        given.out.mkdir(parents=True, exist_ok=True)
        record, pages = given.out / record.name, given.out / pages.name
    usual = QUICK[0] if given.quick else "W2"
    load = shape(float(given.gpu)) if given.shape else workload(usual)
    turns = given.turns or (QUICK[1] if given.quick else TURNS)
    torch.set_num_threads(1)
    measured(given.only, load, turns, given.quick, record, pages, given.keep)


if __name__ == "__main__":
    main()
