"""The checks that need neither torch nor Ray: names and spellings, answered in a fraction of a second."""

from __future__ import annotations

import importlib.util

from raffed.core.config import RunConfig
from raffed.core.errors import UnknownNameError, UsageError, check_choice
from raffed.data.catalogue import dataset_name
from raffed.data.splits import parse_split
from raffed.methods import METHODS
from raffed.models import MODELS


def check_names(config: RunConfig) -> None:
    """Method, data set, split syntax, model and accountant exist; a UsageError lists the nearest."""
    if config.method not in METHODS:
        raise UnknownNameError("method", config.method, METHODS)
    dataset_name(config.data.dataset)
    parse_split(config.data.split)
    check_choice("model", config.model.name, MODELS)
    if config.privacy.noise and importlib.util.find_spec("opacus") is None:
        raise UsageError(f"privacy.noise = {config.privacy.noise} needs opacus to reckon ε: pip install 'raffed[privacy]'")
