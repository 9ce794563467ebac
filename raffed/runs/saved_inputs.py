"""How a run turned its data into inputs, so that its model can be used on new rows and images."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy.typing as npt
from torch import Tensor

from raffed.data.importers.images import read_images
from raffed.data.importers.imported import DataFacts
from raffed.data.importers.tables import encoded_rows
from raffed.data.preparation import Transform, transform_from, transform_text
from raffed.data.transforms import prepare_inputs
from raffed.errors import DataFileError, UsageError
from raffed.results.runfile import read_run
from raffed.runtime.setup import Setup

if TYPE_CHECKING:
    import pandas as pd


def described_data(setup: Setup) -> dict[str, Any]:
    """Return what run.json holds about a run's data: names, encoding and preparation."""
    data = setup.dataset
    return {
        **data.facts.as_json(),
        "class_names": list(data.class_names),
        "stored": {"shape": list(data.input_shape), "dtype": str(data.x.dtype), "max_value": data.max_value},
        "prepared": json.loads(transform_text(setup.transform)),
    }


@dataclass(frozen=True)
class SavedInputs:
    """How the inputs of a finished run were made.

    Attributes:
        class_names: Names of the classes, in the order of the network's scores; empty if the data had none.
        facts: The columns of a table with their encoding, the names of the clients, and more.
        shape: Shape of one stored input, such as (channels, height, width).
        max_value: The pixel value that means 1.0.
        transform: What is done to stored inputs.
    """

    class_names: tuple[str, ...]
    facts: DataFacts
    shape: tuple[int, ...]
    max_value: int
    transform: Transform

    @staticmethod
    def load(place: str | Path) -> SavedInputs:
        """Read them from the folder of a run, or from the JSON file that `raffed export` writes.

        Raises:
            UsageError: There is no such file, or it does not say how inputs were made.
        """
        path = Path(place)
        try:
            about: Any = read_run(path) if path.is_dir() else json.loads(path.read_text(encoding="utf-8"))
        except UsageError:
            raise
        except (OSError, ValueError) as error:
            raise DataFileError(f"{path} cannot be read: {error}") from error
        found = about.get("dataset") if isinstance(about, Mapping) else None
        if not isinstance(found, Mapping):
            raise UsageError(f"{path} does not say how inputs were made; give a run's folder")
        try:
            transform = transform_from(json.dumps(found["prepared"]))
            assert transform is not None
            stored = found["stored"]
            return SavedInputs(
                tuple(found["class_names"]),
                DataFacts.from_json(found),
                tuple(stored["shape"]),
                int(stored["max_value"]),
                transform,
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise DataFileError(
                f"{path}: what it says about inputs is damaged ({error!r}); put back a copy of it"
            ) from error

    def rows(self, table: pd.DataFrame | Mapping[str, npt.ArrayLike] | str | Path) -> Tensor:
        """Return the inputs [N, encoded columns] of new rows of a table.

        Args:
            table: Path of a csv or Parquet file, a data frame, or columns by name. Columns that are not
                features, such as a label, are not looked at.

        Raises:
            UsageError: The run's data were no table, or a column is missing or cannot be used.
        """
        if not self.facts.columns:
            raise UsageError("the data of this run were not a table; prepare its inputs in another way")
        return prepare_inputs(encoded_rows(table, self.facts.columns), self.transform, self.max_value)

    def images(self, paths: Sequence[str | Path]) -> Tensor:
        """Return the inputs [N, channels, height, width] of new image files.

        Raises:
            UsageError: The run's data were no images, or a file cannot be read or has another size.
        """
        if len(self.shape) != 3 or self.shape[0] not in (1, 3):
            raise UsageError(f"the data of this run were not images but have the shape {self.shape}")
        channels, height, width = self.shape
        size = height if self.facts.resized else 0
        x = read_images([Path(one) for one in paths], size, "grey" if channels == 1 else "rgb")
        if x.shape[1:] != self.shape:
            raise UsageError(
                f"the images are {x.shape[3]}x{x.shape[2]} pixels, those of the run {width}x{height}"
            )
        return prepare_inputs(x, self.transform, self.max_value)


__all__ = ["SavedInputs", "described_data"]
