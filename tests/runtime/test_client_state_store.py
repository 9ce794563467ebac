"""Vaults and servers on disk: the same bits back, and no file that is not ours is ever believed or
unpickled.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file

from raffed.core.messages import ClientState
from raffed.core.params import Params
from raffed.errors import RunFolderError
from raffed.methods import build_method
from raffed.runtime.record_files import (
    ClientStateStore,
    digest,
    load_record,
    save_record,
    saved_digest,
    versions_in,
)
from tests.tiny import Tiny, leaves, network, same_bits

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
def test_a_state_without_numbers_comes_back_if_the_method_keeps_something(
    name: str, keeps: bool, tmp_path: Path
) -> None:
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
