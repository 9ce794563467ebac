"""Transforms as text, so that they can lie beside arrays in the cache."""

from __future__ import annotations

import json
from dataclasses import asdict

from raffed.data.preparation import FlambyAugment, Transform


def transform_text(transform: Transform | None) -> str:
    """Return a transform as JSON; "" for None."""
    return "" if transform is None else json.dumps(asdict(transform), sort_keys=True)


def transform_from(text: str) -> Transform | None:
    """Return the transform that `transform_text` wrote.

    Raises:
        ValueError, TypeError, KeyError: The text is not one that it writes.
        UsageError: A number in it is out of range.
    """
    if not text:
        return None
    values = json.loads(text)
    flamby = values.pop("flamby")
    mean, std = tuple(values.pop("mean")), tuple(values.pop("std"))
    return Transform(mean=mean, std=std, flamby=None if flamby is None else FlambyAugment(**flamby), **values)
