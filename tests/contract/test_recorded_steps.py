"""Recorded steps and compiled convolutions give what the plain step gives: for every method, alone and in
stacks.

A CUDA graph repeats kernels with the addresses and the plain numbers that they had when they were recorded.
`Tape` does this without a GPU: it keeps every operation of torch below autograd, with its tensors and its
numbers, and repeats them into the same memory. So a method whose steps differ in a plain number, or whose
memory moves, fails here as it would there. tests/devices/test_gpu.py has the same test with CUDA graphs.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from raffed.config.training import Local
from raffed.core import seeds
from raffed.core.context import Context, Forward
from raffed.core.ingredients import Term
from raffed.core.kernels import convolution
from raffed.core.kernels.convolution import CompiledConv2d
from raffed.core.method import Method
from raffed.core.training import recorded_steps
from raffed.core.training.network import Network
from raffed.methods import METHODS
from raffed.methods.fedavg import fedavg
from raffed.models.net import Net
from raffed.testing.federation import module
from tests.params import one_in
from tests.tiny import (
    CLASSES,
    EVERYBODY,
    NOISY,
    OF_EACH_KIND,
    PLAIN,
    WIDTH,
    Tiny,
    clients,
    leaves,
    same_bits,
    short,
)

LONG = replace(PLAIN, epochs=4)


class Tape(TorchDispatchMode):
    """A recorder that repeats operations into the memory that they wrote when they were recorded."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.refused: dict[str, str] = {}
        self.tried = self.recordings = self.repetitions = 0
        self._kept: list[tuple[Any, Any, Any, Any]] = []
        self._before: list[tuple[Tensor, Tensor]] = []

    def record(self, step: Callable[[], Tensor]) -> tuple[Tensor, Callable[[], None]]:
        self._kept, self._before, self.tried = [], [], self.tried + 1
        try:
            with self:
                made = step()
        except RuntimeError:
            for tensor, value in reversed(self._before):
                tensor.detach().copy_(value)
            raise
        kept, self.recordings = self._kept, self.recordings + 1

        def repeat() -> None:
            self.repetitions += 1
            with torch._C._AutoDispatchBelowAutograd():
                for func, args, kwargs, out in kept:
                    new = func(*args, **kwargs)
                    if not _writes(func):
                        for into, one in zip(pytree.tree_leaves(out), pytree.tree_leaves(new), strict=True):
                            if isinstance(into, Tensor):
                                into.copy_(one)

        return made, repeat

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is torch.ops.aten._local_scalar_dense.default:
            raise RuntimeError("a number cannot be read while a step is recorded")
        if func is torch.ops.aten.lift_fresh.default or _is_view(func):
            return func(*args, **kwargs)
        if _writes(func):
            names = [
                one.name for one in _schema(func).arguments if one.alias_info and one.alias_info.is_write
            ]
            given = dict(zip([one.name for one in _schema(func).arguments], args, strict=False)) | kwargs
            for tensor in pytree.tree_leaves([given[name] for name in names if name in given]):
                self._before.append((tensor, tensor.detach().clone()))
        out = func(*args, **kwargs)
        self._kept.append((func, args, kwargs, out))
        return out


def _schema(func: Any) -> Any:
    """Return what torch declares of an operation, such as which of its arguments it writes."""
    name, _, overload = func.name().partition(".")
    return torch._C._get_schema(name, overload)


def _writes(func: Any) -> bool:
    return any(one.alias_info is not None and one.alias_info.is_write for one in _schema(func).arguments)


def _is_view(func: Any) -> bool:
    return not _writes(func) and any(one.alias_info is not None for one in _schema(func).returns)


@pytest.fixture(autouse=True)
def _short_phases_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorded_steps, "FEWEST", 3)


def federation(
    method: Method, tape: Tape | None, *, norm: bool = False, dropout: float = 0.0, **options: Any
) -> Tiny:
    """Return a federation whose clients have full batches, some of them 16 in a round.

    raffed's kernels in C are left out: they write without torch, so a tape would not see them, and they are
    none for a GPU.
    """
    net = Network(module(norm=norm, dropout=dropout), kernels=False)
    tiny = Tiny(method, **{"net": net, "data": clients(sizes=(8, 12, 8, 16)), "local": LONG, **options})
    tiny.net.recorder = tape
    return tiny


def assert_same_bits(method: Method, tape: Tape, *, run: tuple[Any, ...] = (2,), **options: Any) -> None:
    """A federation ends in the same bits with steps that are made by themselves and with recorded ones."""
    plain, taped = (federation(method, one, **options).run(*run).everything() for one in (None, tape))
    assert same_bits(plain, taped)


def in_turn() -> list[object]:
    """Every method one by one and in stacks. Of each kind both are fast; of others CI takes one, in turn."""
    return [
        pytest.param(
            name,
            cohort,
            marks=[]
            if name in OF_EACH_KIND
            else [pytest.mark.more if cohort == bool(place % 2) else pytest.mark.slow],
            id=f"{'stacks' if cohort else 'one by one'}-{name}",
        )
        for place, name in enumerate(METHODS)
        for cohort in (False, True)
    ]


@pytest.mark.parametrize(("name", "cohort"), in_turn())
def test_every_method_has_the_same_bits_with_recorded_steps(name: str, cohort: bool) -> None:
    tape = Tape()
    assert_same_bits(short(name), tape, norm=True, cohort=cohort, run=(2, (0, 1, 2, 3)))
    assert not tape.refused
    assert tape.repetitions > 0


@pytest.mark.parametrize("cohort", [False, True], ids=["one by one", "stacks"])
@pytest.mark.parametrize(
    "options",
    one_in(
        2,
        [
            {"augment": NOISY},
            {"local": replace(LONG, optimizer="rmsprop", clip_norm=0.5, clip_value=0.1, label_smoothing=0.1)},
            {"local": replace(LONG, warmup_rounds=2, schedule="cosine")},
        ],
    ),
    ids=["augmentation", "rmsprop and limits", "rates by round"],
)
def test_options_that_leave_steps_alike_have_the_same_bits(options: dict[str, Any], cohort: bool) -> None:
    tape = Tape()
    assert_same_bits(fedavg(), tape, norm=True, cohort=cohort, **options)
    assert tape.repetitions > 0


@pytest.mark.parametrize("cohort", [False, True], ids=["one by one", "stacks"])
@pytest.mark.parametrize(
    "local",
    [
        replace(LONG, optimizer="adamw"),
        replace(LONG, schedule="cosine", schedule_by="step"),
    ],
    ids=["adamw", "another rate in each step"],
)
def test_steps_that_differ_in_a_plain_number_are_not_recorded(local: Local, cohort: bool) -> None:
    tape = Tape()
    assert_same_bits(fedavg(), tape, cohort=cohort, local=local)
    assert not tape.repetitions


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_steps_that_read_nothing_of_a_client_s_are_recorded_once_for_all(momentum: float) -> None:
    """Three rounds of four clients with two steps each. The first step of a client begins its velocity, so
    there are two kinds. Of each, two are made by themselves, the third is recorded, and nine repeat it. No
    velocity reaches the next client: the bits are those of steps by themselves.
    """
    tape, local = Tape(), replace(PLAIN, epochs=1, batch_size=8, momentum=momentum)
    data = clients(sizes=(16, 16, 16, 16))
    assert_same_bits(fedavg(), tape, norm=True, data=data, local=local, run=(3, (0, 1, 2, 3)))
    assert (tape.recordings, tape.repetitions) == (2, 18)


@pytest.mark.parametrize(
    ("name", "cohort"),
    one_in(
        2, [("fedsam", True), ("fedavg", True), ("fedsam", False), *((name, False) for name in OF_EACH_KIND)]
    ),
)
def test_dropout_has_the_same_bits_and_is_recorded_but_for_local_solvers_of_one_client(
    name: str, cohort: bool
) -> None:
    """Its numbers are drawn before a step, from the same stream in the same order. A step of FedSAM has two
    passes, for which a client alone draws within the step.
    """
    tape = Tape()
    assert_same_bits(short(name), tape, norm=True, dropout=0.3, cohort=cohort, run=(2, (0, 1, 2, 3)))
    assert (tape.repetitions > 0) == (name != "fedsam" or cohort)


class _Reading(Term):
    """A term that looks at a number in the middle of a step, as raffed's own do not."""

    __module__ = "raffed.methods.reading"

    def loss(self, f: Forward, k: Context) -> Tensor:
        return f.z.square().mean() * (0.1 if float(f.z.sum().detach()) > 0 else 0.2)


def test_what_cannot_be_recorded_is_trained_by_itself_and_not_tried_again() -> None:
    tape, method = Tape(), Method("reading", terms=(_Reading(),))
    assert_same_bits(method, tape, run=(2, (0, 1, 2, 3)))
    assert (tape.tried, tape.recordings, len(tape.refused)) == (1, 0, 1)


needs_kernel = pytest.mark.skipif(not convolution.built, reason="raffed was installed without a C compiler")
# A companion, a solver of its own, two teachers
FAST = {"fedavg", "apfl", "pfedme", "moon"}
# Adam divides a gradient by its own size. Clients agree after so few steps, so what the server distils is
# little more than rounding, which would move weights by the server's rate
SMALL_RATE = {"feddf": {"server_lr": 1e-6}, "fedic": {"server_lr": 1e-6}}


def convolving(own: bool) -> Network:
    with seeds.forked(0):
        body = OrderedDict[str, nn.Module](
            conv=nn.Conv2d(1, 8, 2, padding=1),
            act=nn.Tanh(),
            conv2=nn.Conv2d(8, 8, 2),
            flatten=nn.Flatten(1),
            fc=nn.Linear(32, WIDTH),
            act2=nn.Tanh(),
        )
        return Network(Net(nn.Sequential(body), nn.Linear(WIDTH, CLASSES)), convolutions=own)


def convolving_federation(name: str, own: bool, cohort: bool) -> Tiny:
    """Two rounds of few steps, on images of 2 x 2."""
    data = [replace(one, x=one.x.view(-1, 1, 2, 2)) for one in clients()]
    method, local = short(name, SMALL_RATE.get(name)), replace(PLAIN, epochs=0.1, lr=0.05)
    made = Tiny(method, net=convolving(own), data=data, local=local)
    made.cohort = cohort
    made.arrange()
    return made.run(2, EVERYBODY)


@needs_kernel
@pytest.mark.parametrize(
    "name", [one if one in FAST else pytest.param(one, marks=pytest.mark.slow) for one in METHODS]
)
def test_a_method_trains_as_with_torchs_convolutions_alone_and_in_a_stack(name: str) -> None:
    usual = convolving_federation(name, own=False, cohort=False)
    for cohort in (False, True):
        made = convolving_federation(name, own=True, cohort=cohort)
        assert any(isinstance(layer, CompiledConv2d) for layer in made.net.module.modules())
        for client in EVERYBODY:
            close(leaves(made.last[client].trained), leaves(usual.last[client].trained))
        close(leaves(made.server.w), leaves(usual.server.w))


def close(one: list[Tensor], other: list[Tensor]) -> None:
    for a, b in zip(one, other, strict=True):
        torch.testing.assert_close(a, b, rtol=2e-3, atol=2e-4)
