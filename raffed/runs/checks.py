"""Checks of names and spellings that need neither torch nor Ray, and so take a fraction of a second."""

from __future__ import annotations

import importlib.util
from collections.abc import Collection

from raffed.config.portable import check_set
from raffed.config.run import RunConfig
from raffed.core.measures.own_metric import own_metrics
from raffed.core.training.own_loss import loss_function
from raffed.core.training.rates import schedule_of
from raffed.errors import UsageError, check_choice
from raffed.methods import method_info
from raffed.models import MODELS, model_name
from raffed.tune_spaces import has_space, no_space


def check_names(config: RunConfig) -> None:
    """Check that method, data set, split syntax, schedule, model and accountant exist.

    Raises:
        UsageError: A name does not exist. The message lists the most similar ones.
    """
    method_info(config.method).check_found()
    from raffed.data.own_data import checked_name  # imported late because it loads NumPy

    checked_name(config.data.dataset)
    from raffed.data.splits import parse_split  # late, because it loads NumPy

    parse_split(config.data.split, config.data.split_args)
    own_metrics(config.federation.metrics)
    if config.loss:
        loss_function(config.loss).load()
    schedule_of(config.local)
    if model_name(config.model.name) != config.model.name:
        check_choice("model", config.model.name, MODELS)
    if config.privacy.noise and importlib.util.find_spec("opacus") is None:
        raise UsageError(
            f"privacy.noise = {config.privacy.noise} needs opacus to compute ε: pip install 'raffed[privacy]'"
        )


def check_here(config: RunConfig) -> None:
    """Check the names, and that this process computes the bits that the run asks for.

    Raises:
        UsageError: A name does not exist, or the process is set up for other bits.
    """
    check_set(config.numerics.bits)
    check_names(config)


def check_space(method: str, axes: Collection[str]) -> None:
    """Check that a method has something to search: a file of tune_spaces, or an axis of --grid of its own."""
    info = method_info(method)
    if info.space is not None or has_space(method):
        return
    takes = {one.name for one in info.described().arguments}
    if not any(axis in takes or axis.startswith(f"{method}.") for axis in axes):
        raise UsageError(no_space(method))
