"""The boundary between client and server: what may travel, what refuses to, and how it says so."""

from __future__ import annotations

import copy
import multiprocessing.reduction
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import ray.cloudpickle
import torch
from torch import Tensor

from raffed.core.messages import Broadcast, ClientState, Private, ServerState, Summable, Upload, Wire
from raffed.core.params import Params, State
from raffed.errors import BoundaryError


class Kept(Private):
    secret: Tensor


class Note(Wire):
    part: Any


class Counted(Summable):
    labels = ("tag",)

    tag: str
    mean: Tensor
    known: Tensor
    n: int


SECRET = Kept(torch.ones(2))
POINT = Params({"w": torch.ones(3)}).clone()


@pytest.mark.parametrize(
    ("part", "named"),
    [
        (SECRET, r"Note\.part is a Kept"),
        ([SECRET], r"Note\.part is a list"),
        ((SECRET,), r"Note\.part is a tuple"),
        ({"slot": SECRET}, r"Note\.part\['slot'\] is a Kept: only a Wire may travel in a slot"),
        ({"slot": {"deeper": SECRET}}, r"Note\.part\['slot'\] is a dict"),
        ({"slot": torch.ones(1)}, r"Note\.part\['slot'\] is a Tensor"),
        (ClientState(POINT, POINT, {"x": SECRET}), r"Note\.part is a ClientState"),
        (lambda: 0, r"Note\.part is a function"),
        (torch.ones(2, requires_grad=True), r"Note\.part carries gradient history"),
        (torch.ones(2, requires_grad=True) * 2, r"Note\.part carries gradient history"),
        (Params({"w": torch.ones(2, requires_grad=True)}), r"Note\.part.*gradient history"),
        (State(POINT, Params({"b": torch.ones(2, requires_grad=True)})), r"Note\.part.*gradient history"),
    ],
)
def test_a_wire_refuses_what_may_not_travel_and_names_the_field(part: Any, named: str) -> None:
    with pytest.raises(BoundaryError, match=named):
        Note(part)


@pytest.mark.parametrize(
    "message", [lambda p: Upload(1, POINT, POINT, {"x": p}), lambda p: Broadcast(0, POINT, POINT, {"x": p})]
)
def test_swapping_what_finish_returns_is_caught_when_the_message_is_made(
    message: Callable[[Any], Wire],
) -> None:
    with pytest.raises(BoundaryError, match=r"(Upload|Broadcast)\.slots\['x'\] is a Kept"):
        message(SECRET)


@pytest.mark.parametrize(
    "send",
    [
        pickle.dumps,
        ray.cloudpickle.dumps,
        multiprocessing.reduction.ForkingPickler.dumps,
        copy.copy,
        copy.deepcopy,
    ],
)
@pytest.mark.parametrize(
    "carry",
    [
        lambda p: p,
        lambda p: [1, [p]],
        lambda p: {"a": {"b": (p,)}},
        lambda p: ClientState(POINT, POINT, {"x": p}),
        lambda p: ServerState(0, POINT, POINT, {"x": p}),
    ],
)
def test_a_private_record_cannot_be_pickled_or_copied_wherever_it_hides(
    send: Callable[[Any], Any], carry: Any
) -> None:
    thing = carry(SECRET)
    if send is copy.copy and isinstance(thing, list | dict):
        return  # a shallow copy of a container copies no record
    with pytest.raises(BoundaryError, match=r"(Kept|ClientState|ServerState) is private and cannot be sent"):
        send(thing)


def test_the_server_broadcasts_its_wires_and_keeps_its_privates() -> None:
    server = ServerState(3, POINT, POINT, {"open": Note(1), "own": SECRET})
    sent = server.broadcast()
    assert sent.round == 3
    assert list(sent.slots) == ["open"]
    pickle.dumps(sent)


def test_numbers_and_bytes_count_the_payload_and_not_the_labels() -> None:
    """mean 2·3 floats of 4 bytes, known 2 flags of 1 byte, n a number of 4; `tag` is a label, `round`
    another.
    """
    counted = Counted("round 7", torch.zeros(2, 3), torch.zeros(2, dtype=torch.bool), 5)
    assert counted.numbers() == {"mean": 6, "known": 2, "n": 1}
    assert counted.nbytes() == 24 + 2 + 4
    sent = Broadcast(7, POINT, Params({}), {"x": counted})
    assert sent.numbers() == {"w": 3, "b": 0, "slots.x.mean": 6, "slots.x.known": 2, "slots.x.n": 1}
    assert sent.nbytes() == 12 + 30
    assert Upload(None, POINT, Params({}), {}).nbytes() == 12
    assert Upload(9, POINT, Params({}), {}).nbytes() == 16
