"""Checks of a configuration and its split before the data are read, and of settings that would do nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from raffed.config.run import RunConfig
from raffed.data.catalogue import DATASETS, dataset_name
from raffed.data.preparation import check_numbers_given, with_numbers
from raffed.data.stages import Stages
from raffed.errors import UsageError
from raffed.runtime.config_checks import check_gpu, check_numbers
from raffed.runtime.setup_model import check_network

if TYPE_CHECKING:
    from raffed.data.splits import Split


def check_before_reading(config: RunConfig, split: Split) -> None:
    """Check what can be checked from the configuration and the catalogue entry of the data set.

    Raises:
        UsageError: Something is invalid.
    """
    from raffed.data.own_data import is_own

    Stages.check_rounds(split.stage_count, config.federation.rounds)
    if split.client_count is not None:
        check_numbers(config, split.client_count)
    check_gpu(config)
    check_numbers_given(config.data.transform_args)
    if not is_own(config.data.dataset):
        _check_published(config, split)


def _check_published(config: RunConfig, split: Split) -> None:
    """Check what the catalogue knows about a data set."""
    from raffed.data.transforms import transform_for

    name = dataset_name(config.data.dataset)
    info, data, clients = DATASETS[name], config.data, split.client_count
    style = split.style_of_auto().style if data.transform == "auto" else data.transform
    transform = with_numbers(transform_for(name, style), data.transform_args)
    pool = info.num_train + (info.num_test if data.pool == "joined" else 0)
    transform.check_fits(name, info.shape)
    if data.samples % info.num_classes:
        raise UsageError(
            f"data.samples = {data.samples} for {name}: it must be a multiple of its {info.num_classes} "
            "classes"
        )
    if data.samples > pool > 0:
        raise UsageError(f"data.samples = {data.samples} for {name}, which has only {pool} training samples")
    split.check_data(name, info.num_classes)
    if clients is not None and clients > (data.samples or pool) > 0:
        raise UsageError(
            f"{split.text}: {data.samples or pool} samples cannot give {clients} clients one each"
        )
    check_network(config, transform.prepared_shape(info.shape), info.num_classes)


__all__ = ["check_before_reading"]
