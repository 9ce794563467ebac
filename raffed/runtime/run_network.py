"""The arguments of a run's network: those that the run gives, and those that its method requires."""

from __future__ import annotations

from typing import TYPE_CHECKING

from raffed.config.run import RunConfig
from raffed.config.validation import Value
from raffed.errors import UsageError
from raffed.runtime.run_method import method_of

if TYPE_CHECKING:
    from raffed.core.method import Method


def network_args(config: RunConfig, method: Method | None = None) -> dict[str, Value]:
    """Return the arguments with which the run's network is built. Imports torch.

    Args:
        config: The run's configuration.
        method: The run's method, if it is made already.

    Raises:
        UsageError: The run gives another value than the method requires, or the method requires something
        that
            this network cannot have.
    """
    made = method_of(config) if method is None else method
    model, wanted = config.model, dict(made.network)
    if not wanted:
        return dict(model.args)
    _check_reserved(made.name, model.name, wanted)
    for name, value in wanted.items():
        given = model.args.get(name, value)
        if given != value:
            raise UsageError(
                f"{made.name} requires a network with {name} = {_shown(value)}, and model.args has {name} = "
                f"{_shown(given)}; leave it out (--model-arg)"
            )
    return {**model.args, **wanted}


def network_line(method: Method) -> str:
    """Return one line about what the method requires of the network; empty if it requires nothing."""
    if not method.network:
        return ""
    return (
        f"{method.name} builds the network with {', '.join(f'{n} = {_shown(v)}' for n, v in method.network)}"
    )


def _check_reserved(title: str, model: str, wanted: dict[str, Value]) -> None:
    """Refuse a network of one's own that uses the name of a required argument for something else."""
    from raffed.models import common_args, is_own

    taken = sorted(set(wanted) - common_args(model)) if is_own(model) else []
    if taken:
        raise UsageError(
            f"{title} requires raffed's argument {taken[0]} of the network, but {model} has an argument of "
            "this name itself; rename that one"
        )


def _shown(value: Value) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)


__all__ = ["network_args", "network_line"]
