"""The check of a run's network before anything starts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from raffed.config.run import RunConfig
from raffed.data.preparation import Transform
from raffed.errors import UsageError
from raffed.runtime.bits import COMPILED, check_use
from raffed.runtime.data_source import network_once
from raffed.runtime.run_method import method_of, network_args

if TYPE_CHECKING:
    from raffed.core.method import Method


def prepared_dtype(stored: np.dtype[np.generic], transform: Transform) -> str:
    """Return the type of prepared inputs: "int64" for ids, otherwise "float32".

    Args:
        stored: Type of the inputs as the data set holds them.
        transform: How they are prepared.
    """
    is_ids = stored.kind in "iu" and stored != np.uint8 and not transform.mean
    return "int64" if is_ids else "float32"


def check_network(config: RunConfig, shape: tuple[int, ...], classes: int, dtype: str = "float32") -> None:
    """Build the network once, so that errors of its settings are reported before actors start.

    A network of one's own is also checked for what makes runs reproducible (`raffed.models.own.laws`).

    Args:
        config: The run's configuration.
        shape: Shape of one prepared input.
        classes: Number of classes C.
        dtype: Type of the prepared inputs, "float32" or "int64".

    Raises:
        UsageError: The network cannot be made or trained.
        UserCodeError: The user's own code raised an error.
    """
    from raffed.models import build_for, is_own
    from raffed.runtime.initial_weights import begin_from, read_initial

    method = method_of(config)
    name, args = config.model.name, network_args(config, method)
    if config.numerics.convolutions == COMPILED:
        check_use(build_for(name, args, shape, classes, 0, dtype), name)
    if is_own(name):
        _check_own(config, shape, classes, dtype)
        return

    def parameters() -> tuple[str, ...]:
        from raffed.models.last_layers import quicker

        net = build_for(name, quicker(args), shape, classes, 0, dtype)
        begin_from(net, read_initial(config.model), config.model.init)
        return tuple(one for one, _ in net.named_parameters())

    key = repr(config.model), repr(args), shape, classes, dtype
    _check_passes(network_once(key, parameters), name, method)


def _check_own(config: RunConfig, shape: tuple[int, ...], classes: int, dtype: str) -> None:
    from raffed.models import build_for
    from raffed.models.own.laws import Laws, check_seeded
    from raffed.models.own.wrapping import ModelInputs
    from raffed.runtime.initial_weights import begin_from, read_initial

    method = method_of(config)
    name, args = config.model.name, network_args(config, method)
    net = build_for(name, args, shape, classes, 0, dtype)
    _check_passes([one for one, _ in net.named_parameters()], name, method)
    check_seeded(net, build_for(name, args, shape, classes, 0, dtype), name)
    begin_from(net, read_initial(config.model), config.model.init)
    Laws(net, name, ModelInputs(shape, dtype), classes).check(config.numerics.cohort)


def _check_passes(names: Sequence[str], name: str, method: Method) -> None:
    """Refuse a network without any weight in a part that the method trains apart, such as a linear one."""
    from raffed.core.parts import in_part

    for part in dict.fromkeys(one.part for one in method.passes):
        if part in ("body", "base") and not any(in_part(one, part) for one in names):
            raise UsageError(
                f"{method.name} trains the body of the network apart, and {name} has no weights below its "
                f"head; use another network (--model)"
            )


def check_single_samples(
    config: RunConfig, shape: tuple[int, ...], classes: int, dtype: str, sizes: Sequence[int]
) -> None:
    """Refuse a network of one's own that cannot train on the batch of one sample that some client would have.

    BatchNorm cannot normalise one sample on a map of 1x1.

    Args:
        config: The run's configuration.
        shape: Shape of one prepared input.
        classes: Number of classes C.
        dtype: Type of the prepared inputs.
        sizes: Training samples of every client.
    """
    from raffed.models import build_for, is_own

    size, name = config.local.batch_size, config.model.name
    alone = [client for client, n in enumerate(sizes) if n and 1 in (n, size, n % size)]
    if config.local.drop_last and size > 1:  # which a client with less than a batch does not follow
        alone = [client for client in alone if sizes[client] < size]
    if not alone or not is_own(name):
        return
    from raffed.models.own.laws import Laws
    from raffed.models.own.wrapping import ModelInputs

    net = build_for(name, network_args(config), shape, classes, 0, dtype)
    if not Laws(net, name, ModelInputs(shape, dtype), classes).trains_on_one():
        client = alone[0]
        raise UsageError(
            f"{name} cannot train on a batch of one sample (BatchNorm), and client {client} has "
            f"{sizes[client]} sample{'' if sizes[client] == 1 else 's'} with batches of {size}; "
            f"{_advice(size, sizes[client])}"
        )


def _advice(size: int, samples: int) -> str:
    """Return what helps a client whose last batch has one sample."""
    if samples == 1:
        return "use a split that gives every client more samples, or a network with GroupNorm in its place"
    return "use a larger --batch-size" if size == 1 else "use another --batch-size, or --drop-last"
