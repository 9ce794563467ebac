"""Whoever joins a name that was read to a folder stays below it: every reader, with every odd name."""

from __future__ import annotations

import json
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from raffed.reproductions.pages.packed.files import pack_folder, read_file, unpack_folder, write_records

import raffed
from raffed.bundles.archive import read_archive, write_archive
from raffed.bundles.making import contents_of
from raffed.bundles.replaying import opened
from raffed.errors import RaffedError
from raffed.own.carried import CarriedCode, RunCode, unpacked
from raffed.own.gate import UnsafeNameError, within
from raffed.own.located import CodeLocation, Sources
from raffed.results.remote import Remote
from raffed.results.runfile import RECORDS_FILE
from raffed.results.sweep_file import read_sweep
from raffed.runs.code_record import write_notebook
from tests.tiny import digits

NAMES = ["//x", "/x", "../x", "a/../../x", "a//b", "x\0", "C:x", "\\\\h\\x", "", ".", "a/./b", "x\x1b[2J"]


@pytest.mark.parametrize("name", NAMES, ids=ascii)
def test_no_odd_name_is_joined(name: str, tmp_path: Path) -> None:
    with pytest.raises(UnsafeNameError):
        within(tmp_path, name)


def test_a_name_below_the_folder_is_joined_and_a_link_out_of_it_is_refused(tmp_path: Path) -> None:
    top = tmp_path / "top"
    top.mkdir()
    assert within(top, "a b/µ=0.1,é.json") == top / "a b" / "µ=0.1,é.json"
    assert within(top, "../runs/x", above=1) == tmp_path / "runs" / "x"
    (top / "out").symlink_to(tmp_path)
    for name in ("out/x", "../../x"):
        with pytest.raises(UnsafeNameError):
            within(top, name, above=1)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made") / "run"
    raffed.run(digits("p4c5", federation=raffed.Federation(rounds=1)), folder)
    return folder


@pytest.fixture
def run(made: Path, tmp_path: Path) -> Path:
    """The folder of a finished run."""
    return Path(shutil.copytree(made, tmp_path / "in" / "run"))


def records(kind: str) -> Callable[[Path, str], None]:
    """Packed records that name a file so."""

    def read(run: Path, name: str) -> None:
        pack_folder(run.parent, run.parent / "packed")
        file = run.parent / "packed" / RECORDS_FILE
        index, rows = read_file(file)
        index[kind][name] = next(iter(index[kind].values())) if index[kind] else "text"
        if kind == "parquet":  # the rows say for themselves which file they are of
            names = pa.array([name] * rows.num_rows)
            rows = rows.set_column(rows.schema.get_field_index("file"), "file", names)
        write_records(index, rows, file)
        unpack_folder(file.parent, run.parent / "out")

    return read


def member(run: Path, name: str) -> None:
    """A zip with a member of this name."""
    with zipfile.ZipFile(run.parent / "a.zip", "w") as archive:
        archive.writestr("bundle.json", "{}")
        archive.writestr(f"results/{name}/run.json", "{}")
    read_archive(run.parent / "a.zip")


def run_of_a_bundle(run: Path, name: str) -> None:
    """A bundle that lists a run of this name."""
    about: dict[str, Any] = {"schema": 1, "kind": "run", "raffed": "0", "commit": None, "record": ""}
    about |= {"runs": [name], "left_out": [], "files": {}}
    write_archive(run.parent / "a.zip", {"bundle.json": json.dumps(about).encode()})
    with opened(run.parent / "a.zip"):
        pass


def item(run: Path, name: str) -> None:
    """An item that names a run so."""
    (run.parent / "item.json").write_text(json.dumps({"cells": [{"runs": [name]}]}))
    contents_of(run.parent)


def sweep(run: Path, name: str) -> None:
    """A sweep that names the folder of a final run so."""
    request = {"base": {}, "methods": ["fedavg"], "protocol": "validation", "select": "global"}
    final = [{"seed": 0, "folder": name, "state": "finished"}]
    about = {"schema": 1, "request": request, "state": "finished", "methods": {"fedavg": {"final": final}}}
    (run.parent / "sweep.json").write_text(json.dumps(about))
    read_sweep(run.parent)


def bucket(run: Path, name: str) -> None:
    """A bucket that lists an object of this name."""
    remote = Remote((run.parent / "there").as_uri())
    remote.listed = lambda: [name]  # type: ignore[method-assign]
    remote.fetch(run.parent / "out")


def carried(run: Path, name: str) -> None:
    """Code on its way to another process, with a file of this name."""
    unpacked({name: b"x"})


def notebook(run: Path, name: str) -> None:
    """The code of a notebook, with a file of this name."""
    sources = Sources("notebook:f", "", {}, CodeLocation("notebook", f"code/{name}", "code"))
    write_notebook(run, RunCode((CarriedCode("method", sources, {name: b"x"}),)))


READERS = [
    *map(records, ("files", "texts", "parquet")),
    *(member, run_of_a_bundle, item, sweep, bucket, carried, notebook),
]


@pytest.mark.more
@pytest.mark.parametrize("read", READERS, ids=lambda read: read.__qualname__)
@pytest.mark.parametrize("name", NAMES[:8], ids=ascii)
def test_no_reader_writes_or_reads_a_file_of_an_odd_name(
    read: Callable[[Path, str], None], name: str, run: Path, tmp_path: Path
) -> None:
    before = {one for one in tmp_path.rglob("*") if tmp_path / "in" not in one.parents}
    with pytest.raises((RaffedError, ValueError)):
        read(run, name)
    assert {one for one in tmp_path.rglob("*") if tmp_path / "in" not in one.parents} == before
    assert not Path("/x").exists()
    assert not (tmp_path / "in" / "out").exists()
