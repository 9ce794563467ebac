"""A run's folder after what goes wrong: its state is told truly, its checkpoints outlive a loss of power and
damage, and if it goes away while the run writes there, one error says what to do. Vaults and servers on disk
come back with the same bits, and no file that is not ours is believed or unpickled. A resumed run says by
what each part of it was computed.
"""

from __future__ import annotations

import dataclasses
import errno
import json
import os
import pickle
import platform
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file

import raffed
from raffed.core.messages import ClientState
from raffed.core.params import Params
from raffed.errors import (
    ActorsLostError,
    DiskFullError,
    FolderLostError,
    RaffedError,
    RunFolderError,
    UsageError,
)
from raffed.methods import METHODS, build_method
from raffed.results.runfile import read_run
from raffed.runs.verify import verify
from raffed.runtime.record_files import (
    ClientStateStore,
    digest,
    load_record,
    save_record,
    saved_digest,
    versions_in,
)
from raffed.runtime.worker import SerialBackend
from tests.cli.conftest import contents
from tests.forging import edited
from tests.params import one_in
from tests.runtime.conftest import small
from tests.tiny import Tiny, leaves, network, same_bits


def test_a_run_whose_actors_never_come_up_has_failed_and_its_runtime_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(*given: object) -> None:
        raise ActorsLostError("no actor came up: the test's doing")

    closed = list[object]()
    monkeypatch.setattr(SerialBackend, "placement", lost)
    monkeypatch.setattr(SerialBackend, "close", lambda self: closed.append(self))
    with pytest.raises(ActorsLostError, match="the test's doing"):
        raffed.run(small(), tmp_path / "run")
    about = read_run(tmp_path / "run")
    assert (about["state"], about["error"]) == ("failed", "no actor came up: the test's doing")
    assert len(closed) == 1


def flipped(path: Path) -> None:
    """One bit of the last float."""
    raw = bytearray(path.read_bytes())
    raw[-4] ^= 1
    path.unlink()  # a hard link: the other names keep their bytes
    path.write_bytes(raw)


def truncated(path: Path) -> None:
    raw = path.read_bytes()
    path.unlink()
    path.write_bytes(raw[:-20])


LAST = "checkpoints/round-000003"
# A vault of the newest checkpoint that the one before does not hold
VAULT, PART = f"{LAST}/vaults/*@000003.safetensors", "metrics/part-000003-000003.parquet"


@pytest.mark.parametrize(
    ("file", "damage"),
    one_in(
        3,
        [
            (VAULT, flipped),
            (VAULT, Path.unlink),
            (PART, truncated),
            (f"{LAST}/state.json", truncated),
            (f"{LAST}/server.safetensors", flipped),
        ],
    ),
)
def test_behind_a_damaged_file_a_run_goes_on_from_the_checkpoint_before_to_the_same_bits(
    stopped: Path, file: str, damage: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    damaged = sorted(stopped.glob(file))[0]
    damage(damaged)
    assert raffed.resume(stopped).hashes == raffed.run(small()).hashes
    assert "Going on from the checkpoint before it" in caplog.text
    assert ("round 3" in caplog.text) or (damaged.name in caplog.text)


@pytest.mark.parametrize(
    ("files", "damage", "told"),
    one_in(
        3,
        [
            ("checkpoints/*/vaults/client-*", flipped, r"round-000002/vaults/client-"),
            ("checkpoints/*/server.safetensors", truncated, r"round-000002/server.safetensors"),
            ("metrics/part-000001-000002.parquet", truncated, "000001-000002.parquet: damaged"),
            ("metrics/part-000001-000002.parquet", Path.unlink, "rows of round 1;"),
        ],
    ),
)
def test_a_file_that_is_damaged_in_every_checkpoint_is_named_nothing_is_touched_and_the_advice_helps(
    files: str, damage: Callable[[Path], None], told: str, stopped: Path
) -> None:
    """To begin again unasked could cost days."""
    for path in stopped.glob(files):
        damage(path)
    before, seen = contents(stopped), list[object]()
    with pytest.raises(RunFolderError, match=rf"{told}.*no whole checkpoint before it: once .* deleted"):
        raffed.resume(stopped, watch=seen.append)
    assert seen == []
    assert contents(stopped) == before
    shutil.rmtree(stopped / "checkpoints")
    assert raffed.resume(stopped).hashes == raffed.run(small()).hashes


def test_a_run_that_loses_a_part_while_it_works_is_not_sealed(tmp_path: Path) -> None:
    """It could not go on, which is no request refused."""
    part = tmp_path / "run" / "metrics" / "part-000001-000002.parquet"
    with pytest.raises(RaffedError, match="the rows of round 1;") as raised:
        raffed.run(small(), tmp_path / "run", watch=lambda event: part.unlink() if event.round == 3 else None)
    assert not isinstance(raised.value, UsageError)
    assert (read_run(tmp_path / "run")["state"], read_run(tmp_path / "run").get("hashes")) == ("failed", None)


@pytest.mark.usefixtures("real_disk")
@pytest.mark.parametrize("share", one_in(3, [0.05, 0.5, 0.7, 0.95]))
def test_once_a_full_disk_has_room_the_run_goes_on_to_the_same_bits(
    share: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file of vaults, servers and checkpoints is written half, and the disk is full."""
    run, sizes, write = tmp_path / "run", list[int](), Path.write_bytes

    def written(path: Path, data: bytes) -> int:
        sizes.append(len(data))
        if sum(sizes) <= room:
            return write(path, data)
        write(path, data[: len(data) // 2])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(Path, "write_bytes", written)
        room = 10**9
        whole = raffed.run(small(), tmp_path / "whole").hashes
        room = int(share * sum(sizes))
        sizes.clear()
        told = rf"no space left at .*; free some space, then `raffed resume {run}` continues the run$"
        with pytest.raises(DiskFullError, match=told):
            raffed.run(small(), run)
    assert list(tmp_path.rglob("*.part")) == []  # half a file would hold room that is wanted
    assert read_run(run)["state"] == "failed"
    assert str(read_run(run)["error"]).startswith("there is no space left")
    assert raffed.resume(run).hashes == whole


@pytest.mark.usefixtures("real_disk")
@pytest.mark.parametrize("system", ["Linux", "Darwin"])
def test_everything_in_a_checkpoint_is_on_the_disk_before_it_takes_its_name(
    system: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a loss of power could leave a name with nothing behind it."""
    fsync, sync, replace, seen = os.fsync, os.sync, Path.replace, set[str]()
    synced: dict[tuple[int, int], int] = {}

    def written(found: os.stat_result) -> None:
        synced[found.st_dev, found.st_ino] = found.st_size

    def one(file: Any) -> None:
        written(os.fstat(file))
        fsync(file)

    def everything() -> None:
        for path in tmp_path.rglob("*"):
            written(path.stat())
        sync()

    def renamed(self: Path, target: Path) -> Path:
        if self.name == ".part":
            for path in (self, *self.rglob("*")):
                found = path.stat()
                seen.add(path.name)
                assert synced.get((found.st_dev, found.st_ino)) == found.st_size, path
        return replace(self, target)

    monkeypatch.setattr(platform, "system", lambda: system)
    monkeypatch.setattr(os, "fsync", one)
    monkeypatch.setattr(os, "sync", everything)
    monkeypatch.setattr(Path, "replace", renamed)
    raffed.run(small(rounds=2), tmp_path / "run")
    assert {"server.safetensors", "state.json", "vaults"} <= seen
    assert any(name.startswith("client-") for name in seen)
    final, folder = (tmp_path / "run" / "final.safetensors").stat(), (tmp_path / "run" / "checkpoints").stat()
    assert all((made.st_dev, made.st_ino) in synced for made in (final, folder))


@pytest.mark.parametrize("code", [errno.EACCES, errno.EROFS, errno.EIO, errno.EFBIG])
def test_a_folder_that_can_no_longer_be_written_is_told_with_its_remedy(
    code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(source: Any, target: Any) -> None:
        raise OSError(code, os.strerror(code), str(target))

    remedy = rf"{os.strerror(code)}.*`raffed resume {tmp_path}/run` continues the run"
    with pytest.raises(FolderLostError, match=remedy) as told:
        raffed.run(
            small("map", 3, checkpoint_every=1),
            tmp_path / "run",
            watch=lambda event: monkeypatch.setattr(os, "replace", refused),
        )
    assert not isinstance(told.value, UsageError)  # exit code 1: work was done


def spans(run: Path) -> list[tuple[int, int]]:
    return [(one["from"], one["to"]) for one in read_run(run)["segments"]]


@pytest.mark.parametrize(
    ("part", "name", "there"),
    one_in(
        3, [("versions", "torch", "1.0"), ("versions", "raffed", "0.0.1"), ("hardware", "vectors", "AVX9")]
    ),
)
def test_a_resume_under_other_conditions_says_so_in_one_line_and_keeps_both(
    stopped: Path, part: str, name: str, there: str, caplog: pytest.LogCaptureFixture
) -> None:
    edited(stopped / "run.json", lambda about: about["segments"][0][part].update({name: there}))
    raffed.resume(stopped)
    first, second = read_run(stopped)["segments"]
    lines = [one.message for one in caplog.records if "resumed under other conditions" in one.message]
    assert len(lines) == 1
    assert f"{name} {there} → {second[part][name]};" in lines[0]
    assert (first[part][name], second["said"]) == (there, lines)
    assert spans(stopped) == [(1, 3), (4, 4)]


@pytest.mark.parametrize(
    ("lost", "segments"),
    [("checkpoints/round-000003", [(1, 2), (3, 4)]), ("checkpoints", [(1, 4)])],
    ids=["the last checkpoint", "all of them"],
)
def test_rounds_that_are_computed_again_belong_to_the_segment_that_did_it(
    stopped: Path, lost: str, segments: list[tuple[int, int]]
) -> None:
    shutil.rmtree(stopped / lost)
    raffed.resume(stopped)
    assert spans(stopped) == segments


def test_a_run_of_an_earlier_revision_is_refused_by_resume_and_verify(
    stopped: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any method: here one that has had a single meaning, and gets a second one."""
    assert read_run(stopped)["method_revision"] == 1
    assert verify(stopped).ok
    monkeypatch.setitem(METHODS, "scamap", dataclasses.replace(METHODS["scamap"], revision=2))
    for command in (raffed.resume, verify):
        with pytest.raises(RunFolderError, match="revision 1 of scamap, and this raffed has revision 2"):
            command(stopped)


FEDBN = build_method("fedbn")  # its clients keep buffers, and no record of the method's own
EXPERIENCED = ("fedphp", "scaffold", "scamap")  # methods with client memory


@pytest.mark.parametrize("norm", [False, True])
@pytest.mark.parametrize("name", EXPERIENCED)
def test_a_vault_comes_back_with_every_bit_shape_and_dtype(name: str, norm: bool, tmp_path: Path) -> None:
    """Shapes as well: a counter [] that came back as [1] would break the next loss."""
    tiny = Tiny(build_method(name), net=network(norm)).run(3)
    assert tiny.client_states
    for client, client_state in tiny.client_states.items():
        path = tmp_path / f"{client}.safetensors"
        save_record(client_state, path)
        back = load_record(path, ClientState, tiny.method.records)
        assert same_bits(back, client_state)
        assert digest(back) == digest(client_state) == saved_digest(path, ClientState)
        assert [t.shape for t in leaves(back)] == [t.shape for t in leaves(client_state)]


@pytest.mark.parametrize(("name", "keeps"), [("fedbn", True), ("fedavg", False)])
def test_a_state_without_numbers_comes_back_if_it_is_kept(name: str, keeps: bool, tmp_path: Path) -> None:
    """FedBN's clients keep nothing in a network without BatchNorm, and a later round asks for the state."""
    nothing = ClientState(Params({}), Params({}), {})
    method = build_method(name)
    ClientStateStore(tmp_path, method.keeps_state).put(3, 1, nothing)
    assert bool(list(tmp_path.rglob("*.safetensors"))) == keeps
    back = ClientStateStore(tmp_path, method.keeps_state).get(3, 1)
    assert (back is not None and back.empty) if keeps else back is None


def test_a_store_keeps_a_clients_newest_three_versions_and_makes_few_folders(tmp_path: Path) -> None:
    """A folder is made and removed at a higher cost than a file: of 300 clients there are three."""
    store, nothing = ClientStateStore(tmp_path, FEDBN.keeps_state), ClientState(Params({}), Params({}), {})
    for client in range(0, 300, 10):
        for done in (1, 2, 5, 9):
            store.put(client, done, nothing)
    assert [versions_in(tmp_path, client) for client in (0, 290, 5)] == [[2, 5, 9], [2, 5, 9], []]
    assert len(list(tmp_path.iterdir())) == 3


def test_the_digest_sees_a_single_changed_bit_a_changed_name_and_a_changed_counter() -> None:
    client_state = next(iter(Tiny(build_method("map")).run(1).client_states.values()))
    own = client_state.slots["personal"]
    w = own.model.w.clone()  # type: ignore[attr-defined]
    w.flat[0] = torch.nextafter(w.flat[0], torch.tensor(9.0))
    renamed = Params({f"{n}x": t for n, t in w.tensors.items()})
    variants = [
        own.replace(model=own.model.replace(w=w)),  # type: ignore[attr-defined]
        own.replace(model=own.model.replace(w=renamed)),  # type: ignore[attr-defined]
        own.replace(times=own.times + 1),  # type: ignore[attr-defined]
    ]
    digests = {digest(client_state), *(digest(client_state.replace(slots={"personal": v})) for v in variants)}
    assert len(digests) == 4


class Trap:
    """Unpickling this is noticed."""

    sprung = False

    def __reduce__(self) -> tuple[Callable[[], None], tuple[()]]:
        return _spring, ()


def _spring() -> None:
    Trap.sprung = True


def _with_outline(path: Path, outline: object) -> None:
    save_file({"x": np.zeros(2, np.float32)}, path, metadata={"outline": json.dumps(outline)})


def _truncated(path: Path) -> None:
    save_record(_vault(), path)
    path.write_bytes(path.read_bytes()[:-40])


def _vault() -> ClientState:
    return next(iter(Tiny(build_method("map")).run(1).client_states.values()))


BOTTOMLESS = '{"slots":{"a":' * 100_000 + "1" + "}}" * 100_000
FOREIGN: dict[str, Callable[[Path], object]] = {
    "a pickle": lambda path: path.write_bytes(pickle.dumps(Trap())),
    "a truncated vault": _truncated,
    "a class of Python's": lambda path: _with_outline(path, {"record": "Popen", "fields": {}}),
    "tensors that are not there": lambda path: _with_outline(path, {"params": ["w"]}),
    "another record": lambda path: save_record(Tiny(build_method("fedavg")).server, path),
    "a bottomless outline": lambda path: save_file({"x": np.zeros(2)}, path, {"outline": BOTTOMLESS}),
}


@pytest.mark.parametrize(
    "read", [partial(load_record, records=FEDBN.records), saved_digest], ids=["load", "digest"]
)
@pytest.mark.parametrize("what", FOREIGN)
def test_a_file_that_is_not_a_whole_vault_is_refused_by_name_and_never_unpickled(
    what: str, read: Callable[[Path, type[ClientState]], ClientState | str], tmp_path: Path
) -> None:
    path = tmp_path / "client-000001.safetensors"
    FOREIGN[what](path)
    with pytest.raises(RunFolderError, match=r"client-000001\.safetensors"):
        read(path, ClientState)
    assert not Trap.sprung


def test_memory_holds_the_vaults_used_last_and_the_files_hold_them_all(tmp_path: Path) -> None:
    """Four vaults of 4 kB and room for two: the oldest two are read back bit for bit, a rewritten one is
    not counted twice.
    """
    store = ClientStateStore(tmp_path, FEDBN.keeps_state, limit=9000)
    client_states = {
        c: ClientState(Params({"body.w": torch.full((1000,), float(c))}), Params({}), {}) for c in range(4)
    }
    for client, client_state in client_states.items():
        store.put(client, 1, client_state)
        store.put(client, 2, client_state)
    assert store.held_bytes <= 9000
    assert set(store._held) == {2, 3}
    for client, client_state in client_states.items():
        assert same_bits(store.get(client, 2), client_state)
    assert store.held_bytes <= 9000
    assert store.digests(dict.fromkeys(client_states, 2)) == {c: digest(v) for c, v in client_states.items()}
