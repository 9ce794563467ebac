"""A bundle may come from a stranger: what raffed does not write is refused in a line, and nothing is left."""

from __future__ import annotations

import hashlib
import io
import json
import stat
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from raffed.results.runfile import sealed
from tests.bundles.conftest import Forge, contents
from tests.cli.conftest import Cli

Spoil = Callable[[zipfile.ZipFile], None]


def _special(kind: int) -> Spoil:
    """A member that is no regular file."""
    about = zipfile.ZipInfo("results/final/run.json")
    about.external_attr = (kind | 0o777) << 16
    return lambda made: made.writestr(about, "/etc/passwd")


def _bomb(made: zipfile.ZipFile) -> None:
    made.writestr("code/0123456789ab/zeros.py", bytes(2**24), zipfile.ZIP_DEFLATED)


def _many(made: zipfile.ZipFile) -> None:
    for number in range(20_001):
        made.writestr(f"code/0123456789ab/f{number}.py", b"")


def _named(name: str) -> Spoil:
    return lambda made: made.writestr(name, b"x")


SPOILS: dict[str, tuple[Spoil, str]] = {
    "a path upwards": (_named("results/../../../evil.py"), "leads out of the folder"),
    "an absolute path": (_named("/etc/cron.d/evil"), "leads out of the folder"),
    "a path of Windows": (_named("results\\..\\evil.py"), "leads out of the folder"),
    "a drive": (_named("C:/evil.py"), "systems read differently"),
    "a stream of Windows": (_named("results/run.json:evil"), "systems read differently"),
    "a control character": (_named("results/a\x1b[2Jb/run.json"), "systems read differently"),
    "a folder": (_named("results/sub/"), "systems read differently"),
    "a link": (_special(stat.S_IFLNK), "is a link"),
    "a named pipe": (_special(stat.S_IFIFO), "is a named pipe"),
    "a bomb": (_bomb, "is compressed or encrypted"),
    "too many files": (_many, "at most 20000"),
    "a pickle": (_named("results/state.pkl"), "is not a file that a bundle holds"),
    "weights of torch": (_named("results/model.pt"), "is not a file that a bundle holds"),
    "a hook of Python": (_named("code/0123456789ab/evil.pth"), "is not a file that a bundle holds"),
    "a file twice": (_named("results/run.json"), "is there twice"),
    "a file twice in capitals": (_named("RESULTS/RUN.JSON"), "is not a file that a bundle holds"),
}


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize("what", SPOILS)
def test_what_a_bundle_does_not_hold_is_refused(what: str, archive: Path, tmp_path: Path, cli: Cli) -> None:
    spoil, said = SPOILS[what]
    path = tmp_path / "evil.zip"
    path.write_bytes(archive.read_bytes())
    with zipfile.ZipFile(path, "a") as made:
        spoil(made)
    _refused(cli, path, said)


def _refused(cli: Cli, path: Path, said: str) -> None:
    done = cli("replay", path, "--out", path.parent / "out" / "deep")
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert done.err.rstrip("\n").isprintable()
    assert said in done.err
    assert [one.name for one in path.parent.iterdir()] == [path.name]


def _claims_more(raw: bytes) -> bytes:
    """Members that overlap would let a small file claim a large one."""
    at = raw.rindex(b"PK\x01\x02") + 20
    return raw[:at] + struct.pack("<II", 2**31, 2**31) + raw[at + 8 :]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (_claims_more, "bytes"),
        *((lambda raw, new=new: new, "cannot be read as a zip") for new in (b"", b"PK", b"\x80\x04\x95")),
    ],
    ids=["claims more than the file", "empty", "cut", "a pickle"],
)
def test_a_file_that_is_no_sound_zip_is_refused(
    change: Callable[[bytes], bytes], said: str, archive: Path, tmp_path: Path, cli: Cli
) -> None:
    path = tmp_path / "evil.zip"
    path.write_bytes(change(archive.read_bytes()))
    _refused(cli, path, said)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        *(({"schema": schema}, "schema") for schema in (0, 2, "1", None, 10**30)),
        *(({"runs": [name]}, "forged.zip") for name in ("../x", "/etc", "a/../../b", "none")),
    ],
)
def test_another_schema_and_a_run_outside_or_missing_are_refused(
    changes: dict[str, object], said: str, archive: Path, forged: Forge, cli: Cli
) -> None:
    listed = json.loads(contents(archive)["bundle.json"])
    _refused(cli, forged({"bundle.json": json.dumps({**listed, **changes}).encode()}), said)


def test_a_changed_file_is_refused(archive: Path, tmp_path: Path, cli: Cli) -> None:
    path = tmp_path / "evil.zip"
    with zipfile.ZipFile(path, "w") as made:
        for name, data in contents(archive).items():
            made.writestr(name, data + b" " if name == "README.md" else data)
    _refused(cli, path, "README.md is not what bundle.json lists")


def test_a_pickle_inside_the_partition_is_refused(archive: Path, forged: Forge, cli: Cli) -> None:
    stream = io.BytesIO()
    np.savez(stream, format=np.int64(1), recipe=np.array([{"evil": 1}], dtype=object))
    about = json.loads(contents(archive)["results/run.json"])
    about["files"]["partition.npz"] = hashlib.sha256(stream.getvalue()).hexdigest()
    run = json.dumps(sealed(about)).encode()
    _refused(
        cli, forged({"results/partition.npz": stream.getvalue(), "results/run.json": run}), "partition.npz"
    )
