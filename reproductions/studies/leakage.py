"""What a server can read from gradients: MpFedcon's Fig. 10, and the defendability of its Table 4.

See docs/papers/mpfedcon.md §5. In the rows of values, the panel is the data set and the series one of the
settings below. The metric `trace` is the median MSE over images at each iteration, and x = 0 has
the metrics of `attacks.protocol.summary`. Images are the originals and what each attack of Fig. 10
reconstructed, clamped to [0, 1].

Attacks always run on the CPU: the networks are tiny, and second derivatives are not deterministic on CUDA.
Attacks are independent of each other, so there are as many processes as cores.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import multiprocessing
import os
import signal
import statistics
from collections.abc import Generator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field
from threading import Thread
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from raffed import Params
from raffed.attacks import protocol
from raffed.core import seeds
from raffed.data.datasets import load_dataset
from raffed.data.transforms import prepare_images, transform_for
from raffed.methods import build_method
from raffed.models import build
from raffed.runtime.machine import usable_cores
from raffed.tables.items import Work

from .record import Recorder

if TYPE_CHECKING:
    from raffed.models import Net

SHOWN = 6  # number of images in the picture


@dataclass(frozen=True)
class Setting:
    """One attack: who made the upload, and what the attacker knows.

    Attributes:
        name: Its name.
        method, args: What the client runs.
        cl: Number of fully connected layers of the client's network, 1 to 3.
        at: Number of fully connected layers that the attacker assumes. An attacker with the head has `cl`.
        head: How the attacker knows the head. With "sent", the head's weights travel. With "dealt", they are
            those that the server sent before round 0 (a control, and a real attack until they have been
            trained). With "random", the attacker draws them.
        infer: Whether the label comes from the sign rule (iDLG) and is not optimised.
        centre: Whether the representation that MpFedcon sends of the class is matched, instead of the
            gradient. It needs one layer; with more, what is sent lies behind the private projection.
    """

    name: str
    method: str = "fedavg"
    args: Mapping[str, float | str] = field(default_factory=dict)
    cl: int = 1
    at: int = 1
    head: Literal["sent", "dealt", "random"] = "sent"
    infer: bool = False
    centre: bool = False


def victim(shape: Sequence[int], classes: int, seed: int, layers: int) -> Net:
    """Return the sigmoid LeNet with `layers` fully connected layers.

    Its convolutions are the same for every number of layers.
    """
    value = seeds.seed(seed, "weights")
    net = build("lenet_dlg", shape, classes, value, fc_layers=layers)
    if layers > 1:
        convolutions = build("lenet_dlg", shape, classes, value).body.get_submodule("encoder")
        net.body.get_submodule("encoder").load_state_dict(convolutions.state_dict())
    return net


def attack(
    setting: Setting, x: Tensor, y: int, classes: int, number: int, seed: int, effort: protocol.Effort
) -> protocol.AttackOutcome:
    """Let a client take its step on the image x [C, H, W] with label y, and attack what was sent."""
    net = build("lenet_dlg", x.shape, classes, seeds.seed(seed, "attack"), fc_layers=setting.at)

    def seek(
        seen: protocol.Observed, dealt: Params, said: Mapping[str, int]
    ) -> tuple[protocol.Distance, int | None]:
        label = said["sign"] if setting.infer else said.get("message") if setting.centre else None
        if setting.centre:
            sent: Any = next(wire for wire in seen.upload.slots.values() if hasattr(wire, "total"))
            mean = sent.total.sum(0) / sent.count.sum()
            return protocol.feature_distance(net.body, seen.upload.w, mean), label
        guess = {name: t.detach() for name, t in net.named_parameters()} if setting.head == "random" else {}
        known = dealt.tensors if setting.head == "dealt" else {}
        weights = Params({**guess, **known, **seen.broadcast.w.tensors})
        return protocol.gradient_distance(net, weights, seen.gradient(), label), label

    client = victim(x.shape, classes, seed, setting.cl)
    return protocol.attacked(
        build_method(setting.method, setting.args), client, x, y, number, seed, effort, seek
    )


PAIRS = ((1, 1), (1, 2), (2, 1), (2, 2), (3, 3))  # cl/at; the paper does not list the pairs of its figure
SIZES = (1e-4, 1e-2)
ONE_STEP = {"head_epochs": 0.0}  # one gradient at the current weights, as in the paper's attack
FIGURE_10 = (
    Setting("DLG"),
    Setting("iDLG", infer=True),
    Setting("known_head", "mpfedcon", ONE_STEP, head="dealt"),
    Setting("head trained since", "mpfedcon", {"head_epochs": 10.0}, head="dealt"),
    *(Setting(f"MpFedcon {cl}/{at}", "mpfedcon", ONE_STEP, cl, at, "random") for cl, at in PAIRS),
    Setting("centre", "mpfedcon", ONE_STEP, head="random", centre=True),
)


def noise_name(kind: str, size: float, meaning: str) -> str:
    """Return the name of a noise, such as "Gaussian 1e-4 (variance)"."""
    return f"{kind.capitalize()} {size:.0e} ({meaning})".replace("e-0", "e-")


TABLE_4 = tuple(
    Setting(noise_name(kind, size, meaning), "noisygrad", {"kind": kind, "size": size, "meaning": meaning})
    for meaning in ("variance", "scale")
    for kind in ("gaussian", "laplace")
    for size in SIZES
)


@dataclass(frozen=True)
class LeakagePlan:
    """Which data sets are attacked, how many training images of each, and how hard."""

    data: tuple[str, ...]
    images: int
    effort: protocol.Effort
    processes: int = 0  # 0 means one for every core


LeakageTask = tuple[Setting, Tensor, int, int, int, int, protocol.Effort]  # the arguments of `attack`

PLANS = {
    # Starting more processes would take longer than the attacks
    "smoke": LeakagePlan(("digits",), 1, protocol.Effort(iterations=3, restarts=1), processes=1),
    "proxy": LeakagePlan(("cifar10",), 4, protocol.Effort(iterations=100, restarts=2)),
    "full": LeakagePlan(("cifar10", "cifar100"), 20, protocol.Effort()),
}


def run(work: Work) -> None:
    """Execute every attack on the same images, from the same weights and the same starts."""
    plan = PLANS[work.scale]
    processes = plan.processes or max(1, usable_cores() // work.threads)
    settings = {"images": plan.images, **asdict(plan.effort)}
    total = len(plan.data) * len(FIGURE_10 + TABLE_4)
    with Recorder(work, settings) as record:
        for number, name in enumerate(plan.data):
            x, y, classes = pictures(name, plan.images, work)
            for i, image in enumerate(x[:SHOWN]):
                record.image(name, "original", str(i + 1), image.numpy())
            tasks = [
                (setting, image, label, classes, i, work.seed, plan.effort)
                for setting in FIGURE_10 + TABLE_4
                for i, (image, label) in enumerate(zip(x, y, strict=True))
            ]
            with contextlib.closing(carried_out(tasks, processes, work.threads)) as attacks:
                for at, setting in enumerate(FIGURE_10 + TABLE_4):
                    work.tell(f"{name}: {setting.name}", (number * len(FIGURE_10 + TABLE_4) + at) / total)
                    write(
                        record, name, setting, list(itertools.islice(attacks, len(x))), plan.effort.iterations
                    )


def carried_out(
    tasks: Sequence[LeakageTask], processes: int, threads: int
) -> Generator[protocol.AttackOutcome, None, None]:
    """Yield the outcomes of attacks, in order. The number of processes does not change any bit."""
    if processes == 1:
        yield from itertools.starmap(attack, tasks)
        return
    pool = ProcessPoolExecutor(processes, multiprocessing.get_context("spawn"), _begin, (threads,))
    try:
        yield from pool.map(attack, *zip(*tasks, strict=True))
    finally:
        pool.shutdown(cancel_futures=True)


def _begin(threads: int) -> None:
    """Prepare a process of attacks: the parent handles Ctrl-C, and the process ends if its parent does."""
    torch.set_num_threads(threads)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def pictures(name: str, count: int, work: Work) -> tuple[Tensor, list[int], int]:
    """Return `count` training images [count, C, H, W] in [0, 1], their labels, and the number of classes."""
    data = load_dataset(name, work.root, False)
    chosen = protocol.chosen_images(torch.from_numpy(data.y), count, work.seed)
    x = prepare_images(data.x[chosen], transform_for(name, "plain"), data.max_value)
    return x, [int(label) for label in data.y[chosen]], data.num_classes


def write(
    record: Recorder, name: str, setting: Setting, outcomes: Sequence[protocol.AttackOutcome], iterations: int
) -> None:
    """Record the rows of one setting on one data set. An attack that has ended keeps its last value."""
    for iteration in range(1, iterations + 1):
        now = [outcome.attempt.at(iteration) for outcome in outcomes]
        record.value(
            name, setting.name, iteration, "trace", statistics.median(math.inf if v != v else v for v in now)
        )
    marks = [mark for mark in protocol.MARKS if mark <= iterations]
    for metric, value in protocol.summary(outcomes, marks).items():
        record.value(name, setting.name, 0, metric, value)
    if setting in FIGURE_10:
        for i, ended in enumerate(outcomes[:SHOWN]):
            record.image(name, setting.name, str(i + 1), ended.attempt.image.nan_to_num().clamp(0, 1).numpy())
