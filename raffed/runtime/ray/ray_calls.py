"""Calls to client actors through Ray's own calls and object store, also to those of other nodes."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import ray
from ray.exceptions import RayError, RayTaskError, UnserializableException

from raffed.runtime.ray.remote_error import RemoteError
from raffed.runtime.ray.transport import Call, CallId, Outcome, Shared

if TYPE_CHECKING:
    from ray import ObjectRef

    from raffed.runtime.ray.transport import Handle

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class RayCallId(CallId[T]):
    """A call through Ray, with the reference to its answer."""

    reference: ObjectRef[T]


class RayCalls:
    """A `Transport` through Ray."""

    def __init__(self, actors: Mapping[int, Handle]) -> None:
        """Call these actors, by number."""
        self._actors = dict(actors)

    def call(self, actor: int, call: Call[T]) -> RayCallId[T]:
        given = [one.reference if isinstance(one, Shared) else one for one in call.arguments]
        return RayCallId(actor, getattr(self._actors[actor], call.name).remote(*given))

    def first(self, calls: Collection[CallId[T]]) -> tuple[CallId[T], Outcome[T]]:
        waiting = {one.reference: one for one in calls if isinstance(one, RayCallId)}
        (reference,), _ = ray.wait(list(waiting), num_returns=1)
        return waiting[reference], partial(answer_of, reference)

    def replace(self, actor: int, handle: Handle) -> None:
        self._actors[actor] = handle

    def close(self) -> None:
        """Nothing is held here."""


def answer_of(reference: ObjectRef[T]) -> T:
    """Return an answer, or raise the error of the method as it was there.

    Ray raises a mixture of that error and its own, whose text is the traceback.
    """
    try:
        return ray.get(reference)
    except UnserializableException as error:  # its class cannot be rebuilt in this process
        raise _in_words(str(error)) from RemoteError(str(error))
    except RayTaskError as error:
        there = RemoteError(str(error))
        if isinstance(error.cause, RayError):  # Ray's replacement for an error that cannot be sent
            raise _in_words(error.traceback_str) from there
        if isinstance(error.cause, Exception):
            raise error.cause from there
        raise


def _in_words(traceback: str) -> RemoteError:
    """Return an error with the last line of a traceback, which is the error that was raised there."""
    return RemoteError(traceback.strip().splitlines()[-1])
