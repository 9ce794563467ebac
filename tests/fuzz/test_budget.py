"""One budget: what would take more than half of the free memory is refused before it takes any, and what is
not a regular file is not waited for. Temporary folders of a killed process are removed by the next command.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from raffed.config.toml import parse_toml
from raffed.data.importers.reference import import_reference as load
from raffed.data.partition_file import Partition
from raffed.errors import UsageError
from raffed.models import build
from raffed.results.metric import Row
from raffed.results.writer import read_part, table_of
from raffed.scratch import hold, scratch_folder
from tests.cli.conftest import Cli, cli, in_time
from tests.fuzz.strangers import Trap
from tests.params import one_in

__all__ = ["cli"]
FREE = 2**26  # bytes, of which half may be taken
RUN = {"run_id": "a", "method": "fedavg", "dataset": "digits", "partition": "iid:2", "seed": 0}


@pytest.fixture
def little(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("raffed.budget.free_memory", lambda: float(FREE))


def npz(folder: Path) -> object:
    with zipfile.ZipFile(folder / "a.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        for name, values in (("x", np.zeros((FREE // 64, 8))), ("y", np.zeros(FREE // 64, np.int64))):
            with archive.open(f"{name}.npy", "w") as member:
                np.lib.format.write_array(member, values)
    return load(f"npz:{folder / 'a.npz'}")


def partition(folder: Path) -> object:
    with zipfile.ZipFile(folder / "p.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("train_indices.npy", bytes(FREE))
    return Partition.load(folder / "p.npz")


def long_texts(folder: Path) -> object:
    """Each row has the same text of 10,000 letters, which a file holds once and NumPy in full."""
    words = pa.DictionaryArray.from_arrays(np.zeros(1_000, np.int32), ["x" * 10_000])
    table = pa.table({"text": words.cast(pa.string()), "label": np.arange(1_000) % 2})
    pq.write_table(table, folder / "t.parquet")
    assert (folder / "t.parquet").stat().st_size < 100_000
    return load(f"parquet:{folder / 't.parquet'}?label=label")


def many_rows(folder: Path) -> object:
    table = table_of([Row(1, "global", "test", "accuracy", 0.5)], RUN)
    pq.write_table(table.take(np.zeros(FREE // 2**7, np.int64)), folder / "part.parquet")
    return read_part(folder / "part.parquet")


def images(folder: Path) -> object:
    for label in ("a", "b"):
        (folder / "i" / label).mkdir(parents=True)
        for number in range(3):
            Image.new("L", (2000, 2000)).save(folder / "i" / label / f"{number}.png")
    return load(f"folder:{folder / 'i'}")


def network(folder: Path) -> object:
    return build("mlp", (1, 8, 8), 10, seed=0, hidden=[2000, 2000])


@pytest.mark.parametrize("make", [npz, partition, long_texts, many_rows, images, network])
def test_what_would_take_more_than_half_of_the_free_memory_is_refused(
    little: None, tmp_path: Path, make: Callable[[Path], object]
) -> None:
    with pytest.raises(UsageError, match="GiB of memory, but may take half of what is free"):
        make(tmp_path)


def test_of_equal_texts_of_a_metrics_part_one_is_held(tmp_path: Path) -> None:
    """A part without the types of raffed's own: plain texts, of which the file holds one."""
    rows = table_of([Row(1, "global", "test", "accuracy", 0.5)] * 1000, RUN)
    texts = pa.array(["x" * 100_000] * 1000)
    rows = rows.set_column(0, "run_id", texts).replace_schema_metadata({"raffed.schema": "5"})
    pq.write_table(rows, tmp_path / "part.parquet")
    del rows, texts
    before = pa.total_allocated_bytes()
    part = read_part(tmp_path / "part.parquet")
    assert pa.total_allocated_bytes() - before < 10_000_000  # written out, they have 100 MB
    assert part.num_rows == 1000


@pytest.mark.parametrize(
    "text",
    [
        "a." * 100_000 + "a = 1",
        f"[{'a.' * 100_000}a]",
        f"a = {'[' * 100_000}{']' * 100_000}",
        "a = " + "[" * 99 + "]" * 99,
    ],
    ids=["key", "table", "list", "short list"],
)
def test_toml_that_is_nested_deeply_is_refused_in_time(text: str) -> None:
    with in_time(), pytest.raises(UsageError, match="nested too deeply"):
        parse_toml(text, "run.toml")
    assert parse_toml("a.b = [0.1, 0.2]\nc = '" + "." * 60 + "'", "run.toml")["a"] == {"b": [0.1, 0.2]}


@pytest.mark.parametrize("words", [["--threads", "100000"], ["--model-arg", "hidden=[400000,400000]"]])
def test_numbers_that_no_machine_has_are_refused(cli: Cli, tmp_path: Path, words: list[str]) -> None:
    with in_time():
        done = cli(
            "run", "--rounds", 1, "--execution", "serial", "--model", "mlp", *words, "--out", tmp_path / "o"
        )
    assert done.code == 2, done
    assert not (tmp_path / "o").exists()


ASKED: dict[str, list[str]] = {
    "a split": ["--split", "file:{}"],
    "data": ["--dataset", "npz:{}"],
    "a table": ["--dataset", "csv:{}?label=y"],
    "a trace": ["--speeds", "trace", "--trace", "{}", "--server", "fedasync"],
    "a list of clients": ["--selection", "fixed", "--selection-arg", "file={}"],
    "weights": ["--model", "mlp", "--init", "{}"],
}


@pytest.mark.parametrize("what", one_in(3, ASKED))
@pytest.mark.parametrize("kind", ["a pipe", "a device"])
def test_what_is_not_a_regular_file_is_refused_and_not_waited_for(
    cli: Cli, tmp_path: Path, what: str, kind: str
) -> None:
    path = tmp_path / "odd.npz"
    os.mkfifo(path) if kind == "a pipe" else path.symlink_to("/dev/zero")
    words = [one.format(path) for one in ASKED[what]]
    with in_time():
        done = cli("run", "--rounds", 1, "--execution", "serial", *words, "--out", tmp_path / "o")
    assert done.code == 2, done
    assert str(path) in done.err
    assert "not a" in done.err


def test_a_picture_is_read_by_its_contents_and_never_as_a_program(tmp_path: Path) -> None:
    """PostScript is a language; Pillow hands it to another program, whatever the file is called."""
    for label in ("a", "b"):
        (tmp_path / label).mkdir()
        Image.new("RGB", (8, 8)).save(tmp_path / label / "0.png", format="EPS")
    with pytest.raises(UsageError, match="is not an image that can be read"):
        load(f"folder:{tmp_path}")


def test_pickles_of_pfllib_are_read_by_the_user_s_word_only(cli: Cli, tmp_path: Path) -> None:
    """They may run any code. Nothing of a folder that a configuration names is opened."""
    toml, named, sprung = tmp_path / "run.toml", f"pfllib:{tmp_path / 'theirs'}", tmp_path / "sprung"
    for part in ("train", "test"):
        (tmp_path / "theirs" / part).mkdir(parents=True)
        held = np.array({"x": Trap(sprung), "y": 0}, dtype=object)
        np.savez(tmp_path / "theirs" / part / "0.npz", data=held)
    toml.write_text(f"[data]\ndataset = '{named}'\n[runtime]\nexecution = 'serial'\n")
    done = cli("run", toml, "--out", tmp_path / "o")
    assert done.code == 2
    assert "read only if you name them" in done.err
    assert not sprung.exists()
    typed = cli("run", toml, "--dataset", named, "--out", tmp_path / "o")
    assert "train/0.npz" in typed.err
    assert sprung.exists()


def test_the_next_removes_what_a_killed_one_left_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder in use stays, and so does one that nobody has marked."""
    code = "import os, raffed.scratch as s\nwith s.scratch_folder(): os.kill(os.getpid(), 9)"
    killed = subprocess.run([sys.executable, "-c", code], env={**os.environ, "TMPDIR": str(tmp_path)})
    assert killed.returncode == -9
    assert len(list(tmp_path.iterdir())) == 1
    held, other = tmp_path / "raffed-aaaaaaaa", tmp_path / "raffed-cccccccc"
    for folder in (held, other):
        folder.mkdir()
    let_go = hold(held)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with scratch_folder() as first, scratch_folder() as second:
        assert set(tmp_path.iterdir()) == {first, second, held, other}
    assert set(tmp_path.iterdir()) == {held, other}
    let_go()
