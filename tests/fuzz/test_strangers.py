"""What a stranger's run, partition, weights or records do to a command that reads them: nothing.

Every command is a process of its own that may have 4 GiB. It ends with exit code 1 or 2 and a word, no trap
goes off, and it never holds more than 1.5 GB. Pickles of PFLlib are in
tests/data/importers/test_import_files.py, zip files of strangers in tests/bundles, damaged files of all kinds
in tests/cli/test_verify.py.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from raffed.reproductions.pages.packed import files as packed

import raffed
from raffed.results.runfile import sealed
from tests.cluster.nodes import ROOT
from tests.forging import sha256
from tests.fuzz.strangers import PARTITIONS, WEIGHTS, Spoil, endless_rows, torch_bomb, torch_file
from tests.tiny import digits

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform != "linux", reason="a limit of Linux's")]
QUICK = ["--execution", "serial", "--epochs", "1", "--rounds", "1", "--model", "mlp"]
MEMORY, MOST = 4 * 2**30, 1.5e9


class Ended(NamedTuple):
    code: int
    said: str
    bytes: int


def command(*words: object, folder: Path) -> Ended:
    """`raffed` in a process of its own."""
    log = folder / "said"
    with log.open("wb") as sink:
        process = subprocess.Popen(
            [sys.executable, "-m", "raffed", *map(str, words)],
            cwd=ROOT,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            stdout=sink,
            stderr=sink,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY)),
        )
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return Ended(process.returncode, log.read_text(errors="replace"), used.ru_maxrss * 1024)


def check_refused(ended: Ended) -> None:
    assert ended.code in (1, 2), ended.said[-2000:]
    assert "Traceback" not in ended.said, ended.said[-3000:]
    assert ended.said.strip()
    assert ended.bytes < MOST


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was stopped in the middle."""
    folder, seen = tmp_path_factory.mktemp("run") / "a", list[object]()
    config = digits("p4c5", federation=raffed.Federation(3))
    raffed.run(config, folder, watch=seen.append, stop=lambda: len(seen) == 2)
    return folder


@pytest.mark.parametrize("what", PARTITIONS)
def test_a_partition_file(what: str, run: Path, tmp_path: Path) -> None:
    path, trap = tmp_path / "partition.npz", tmp_path / "sprung"
    shutil.copy(run / "partition.npz", path)
    PARTITIONS[what](path, trap)
    check_refused(
        command("run", *QUICK, "--split", f"file:{path}", "--out", tmp_path / "out", folder=tmp_path)
    )
    assert not trap.exists()
    assert not (tmp_path / "out").exists()


INITIAL: dict[str, tuple[str, Spoil]] = {
    **{f"{what} in safetensors": ("w.safetensors", spoil) for what, spoil in WEIGHTS.items()},
    "a pickle in pt": ("w.pt", WEIGHTS["a pickle"]),
    "torch's zip with a pickle": ("w.pt", torch_file),
    "torch's zip with zeros": ("w.pt", torch_bomb),
}


@pytest.mark.parametrize("what", INITIAL)
def test_a_file_of_initial_weights(what: str, tmp_path: Path) -> None:
    name, spoil = INITIAL[what]
    path, trap = tmp_path / name, tmp_path / "sprung"
    spoil(path, trap)
    check_refused(command("run", *QUICK, "--init", path, "--out", tmp_path / "out", folder=tmp_path))
    assert not trap.exists()


def spoilt(run: Path, tmp_path: Path, name: str, spoil: Callable[[Path], None]) -> Path:
    """A copy of a run with another file in it, which run.json vouches for."""
    folder = tmp_path / "run"
    shutil.copytree(run, folder)
    (path,) = folder.glob(name)
    spoil(path)
    about = json.loads((folder / "run.json").read_text())
    about.setdefault("files", {})[path.relative_to(folder).as_posix()] = sha256(path)
    (folder / "run.json").write_text(json.dumps(sealed(about)))
    return folder


@pytest.mark.parametrize("words", [("report", "--out"), ("resume",), ("verify",)], ids=lambda words: words[0])
def test_metrics_of_a_run_without_end(words: tuple[str, ...], run: Path, tmp_path: Path) -> None:
    folder = spoilt(run, tmp_path, "metrics/part-*-000002.parquet", endless_rows)
    out = [tmp_path / "report"] if "--out" in words else []
    ended = command(words[0], folder, *words[1:], *out, folder=tmp_path)
    assert ended.bytes < MOST
    if words[0] == "report":  # of what it cannot read it says so, and goes on
        assert ended.code in (0, 1, 2)
        assert "Traceback" not in ended.said
        assert "its table would take" in ended.said, ended.said
    else:
        check_refused(ended)


@pytest.mark.parametrize(
    ("words", "what"), [*((("resume",), what) for what in WEIGHTS), (("verify",), "a pickle")]
)
def test_weights_of_a_checkpoint(words: tuple[str, ...], what: str, run: Path, tmp_path: Path) -> None:
    trap = tmp_path / "sprung"
    folder = spoilt(
        run, tmp_path, "checkpoints/round-000002/server.safetensors", lambda path: WEIGHTS[what](path, trap)
    )
    check_refused(command(*words, folder, folder=tmp_path))
    assert not trap.exists()


def test_records_without_end(run: Path, tmp_path: Path) -> None:
    packed.pack_folder(run.parent, tmp_path / "records")
    endless_rows(tmp_path / "records" / packed.RECORDS_FILE)
    ended = command("report", tmp_path / "records", "--out", tmp_path / "report", folder=tmp_path)
    check_refused(ended)


ENTRY_POINTS = """[raffed.methods]
fedavgg = evil:f
[raffed.datasets]
fresh = evil:f
[raffed.models]
fresh = evil:f
[pytest11]
evil = evil
"""


@pytest.mark.parametrize(
    "words", [("report", "."), ("methods",), ("resume", "."), ("verify", ".")], ids=" ".join
)
def test_entry_points_and_modules_that_came_with_a_folder(
    words: tuple[str, ...], run: Path, tmp_path: Path
) -> None:
    """The reader stands in the folder and calls the program that pip installed."""
    folder, trap = tmp_path / "run", tmp_path / "sprung"
    shutil.copytree(run, folder)
    about = folder / "evil-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: evil\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(ENTRY_POINTS)
    code = f"from pathlib import Path\nPath({str(trap)!r}).touch()\n"
    names = ("evil", "raffed", "numpy", "torch", "conftest", "sitecustomize", "usercustomize", "json")
    for name in names:
        (folder / f"{name}.py").write_text(code)
    (folder / "evil.pth").write_text(f"import os; open({str(trap)!r}, 'w')\n")
    program = Path(sys.executable).parent / "raffed"
    done = subprocess.run(
        [program, *words],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode in (0, 1, 2), done.stderr
    assert not trap.exists()
    assert "fedavgg" not in done.stdout
