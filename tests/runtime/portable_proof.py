"""Hashes of the federations of portable_federations on processors that qemu-user emulates, kept as they come.

    python -m tests.runtime.portable_proof FILE.jsonl [--processors Haswell EPYC-Rome Skylake-Client]

Each line is a federation on a processor: its hashes, and which code and packages computed them. The
federations of this processor come first. What a file has already is not computed again, so a proof that was
stopped goes on where it was. The exit code is 1 if a processor has other hashes than this one.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from raffed.results.origin import commit
from tests.runtime.portable_federations import FEDERATIONS

ROOT = Path(__file__).parents[2]
QEMU = shutil.which("qemu-x86_64")
PROCESSORS = ("Haswell", "EPYC-Rome", "Skylake-Client")
HERE = "this"
SCRIPT = ("-m", "tests.runtime.portable_federations", "portable")


def command(processor: str, *words: str) -> tuple[list[str], dict[str, str]]:
    """`python WORDS` on a processor, and the environment in which it finds modules as this process does."""
    if processor == HERE:
        return [sys.executable, *words], dict(os.environ)
    python = os.path.realpath(sys.executable)
    path = os.pathsep.join([str(ROOT), *sys.path])
    return [str(QEMU), "-cpu", processor, python, *words], {**os.environ, "PYTHONPATH": path}


def versions() -> dict[str, str]:
    """What must be equal for hashes to be comparable."""
    return {name: metadata.version(name) for name in ("torch", "numpy")}


def computed(processor: str, names: Sequence[str]) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the name and the hashes of each of these federations, as they come, from one process."""
    words, environment = command(processor, *SCRIPT, *names)
    with subprocess.Popen(words, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            name, hashes = json.loads(line)
            yield name, hashes
    if process.returncode:
        raise RuntimeError(f"{processor}: the process ended with code {process.returncode}")


def found_in(file: Path, processor: str) -> dict[str, dict[str, str]]:
    """The hashes of a file's federations on a processor, those that were computed by these versions."""
    lines: list[dict[str, Any]] = (
        [json.loads(one) for one in file.read_text().splitlines()] if file.exists() else []
    )
    fitting = [one for one in lines if one["processor"] == processor and one["versions"] == versions()]
    return {one["federation"]: one["hashes"] for one in fitting}


def completed(file: Path, processor: str) -> dict[str, dict[str, str]]:
    """The hashes of all federations on a processor. A line is added to the file for each that it lacks."""
    found = found_in(file, processor)
    missing = [name for name in FEDERATIONS if name not in found]
    for name, hashes in computed(processor, missing) if missing else ():
        line = {"processor": processor, "federation": name, "hashes": hashes}
        with file.open("a", encoding="utf-8") as log:
            log.write(json.dumps({**line, "versions": versions(), "commit": commit()}) + "\n")
        found[name] = hashes
    return found


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", type=Path)
    parser.add_argument("--processors", nargs="+", default=list(PROCESSORS))
    options = parser.parse_args()
    here, unequal = completed(options.file, HERE), 0
    for processor in options.processors:
        there = completed(options.file, processor)
        equal = sum(there[name] == here[name] for name in FEDERATIONS)
        unequal += len(FEDERATIONS) - equal
        print(
            f"{processor}: {equal} of {len(FEDERATIONS)} federations have the hashes of this processor",
            flush=True,
        )
    return int(unequal > 0)


if __name__ == "__main__":
    sys.exit(main())
