"""The class methods of `Dataset` that read data of one's own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import numpy.typing as npt

from raffed.data.importers.arrays import MapStyle, import_arrays, import_npz, import_torch
from raffed.data.importers.hugging_face import import_flwr, import_hf
from raffed.data.importers.image_folder import import_folder
from raffed.data.importers.imported import TEST_SHARE, Imported
from raffed.data.importers.pfllib import import_pfllib
from raffed.data.importers.tables import import_table

if TYPE_CHECKING:
    import datasets as hf
    import pandas as pd
    import pyarrow as pa

Made = TypeVar("Made", bound="FromAnywhere")


class FromAnywhere:
    """A data set that can be made from what people have. Every method refuses faults in one line."""

    @classmethod
    def of(cls: type[Made], found: Imported) -> Made:
        """Return the data set of what an importer found."""
        raise NotImplementedError

    @classmethod
    def from_arrays(
        cls: type[Made],
        x: npt.ArrayLike,
        y: npt.ArrayLike,
        *,
        x_test: npt.ArrayLike | None = None,
        y_test: npt.ArrayLike | None = None,
        clients: npt.ArrayLike | None = None,
        test_clients: npt.ArrayLike | None = None,
        class_names: Iterable[str] = (),
        test: float = 0.0,
        seed: int = 0,
        name: str = "data",
    ) -> Made:
        """Make a data set from arrays.

        Args:
            x: Samples [N, ...]: uint8 pixels, floats, or integers that are ids.
            y: Labels [N]: integers, yes/no or text.
            x_test, y_test: The test set, if there is one.
            clients: The client of each sample [N], as integers or text, for `--split natural`.
            test_clients: The same of the test samples.
            class_names: Names of the classes 0, 1, ...; by default the labels found.
            test: Fraction of the samples that becomes the test set if none is given. Default 0: none.
            seed: Decides which samples are drawn for the test set.
            name: Name for messages and results.

        Raises:
            UsageError: The arrays cannot be used. The message names the array and the sample.
        """
        found = import_arrays(
            x,
            y,
            x_test=x_test,
            y_test=y_test,
            clients=clients,
            test_clients=test_clients,
            class_names=class_names,
            test=test,
            seed=seed,
            name=name,
        )
        return cls.of(found)

    @classmethod
    def from_npz(cls: type[Made], path: str | Path, *, test: float = TEST_SHARE, seed: int = 0) -> Made:
        """Read an npz file with the arrays x and y, and perhaps x_test, y_test, clients, test_clients.

        Args:
            path: The file.
            test, seed: The test set that is drawn if the file has none; see `drawn_test_part`.
        """
        return cls.of(import_npz(path, test=test, seed=seed))

    @classmethod
    def from_folder(
        cls: type[Made],
        path: str | Path,
        *,
        size: int = 0,
        colour: str = "auto",
        test: float = TEST_SHARE,
        seed: int = 0,
    ) -> Made:
        """Read images in CLASS/file or CLIENT/CLASS/file, perhaps below train/ and test/.

        Args:
            path: The folder.
            size: Side in pixels to which all images are resized. Default 0: they have one size.
            colour: "grey", "rgb" or "auto".
            test, seed: The test set that is drawn if there is no folder test; see `drawn_test_part`.
        """
        return cls.of(import_folder(path, size=size, colour=colour, test=test, seed=seed))

    @classmethod
    def from_table(
        cls: type[Made],
        table: pd.DataFrame | pa.Table | Mapping[str, npt.ArrayLike] | str | Path,
        *,
        label: str,
        client: str = "",
        features: tuple[str, ...] = (),
        drop: tuple[str, ...] = (),
        categorical: tuple[str, ...] = (),
        test: str | float = TEST_SHARE,
        seed: int = 0,
        name: str = "table",
    ) -> Made:
        """Read a csv or Parquet file, a data frame, or columns by name; see `import_table`.

        Args:
            table: The table.
            label: Column of the classes.
            client: Column of the clients, for `--split natural`.
            features: Columns that are features; all others by default.
            drop: Columns that are not used.
            categorical: Columns of integers that are categories.
            test, seed: Fraction of the rows that becomes the test set, or a second file with the test rows.
            name: Name for messages and results.
        """
        found = import_table(
            table,
            label=label,
            client=client,
            features=features,
            drop=drop,
            categorical=categorical,
            test=test,
            seed=seed,
            name=name,
        )
        return cls.of(found)

    @classmethod
    def from_torch(
        cls: type[Made],
        data: MapStyle,
        *,
        test_data: MapStyle | None = None,
        clients: npt.ArrayLike | None = None,
        class_names: Iterable[str] = (),
        test: float = 0.0,
        seed: int = 0,
    ) -> Made:
        """Read a map-style data set of PyTorch's kind, whose items are (sample, label).

        Args:
            data, test_data: The training part, and the test part if there is one.
            clients: The client of each sample.
            class_names: Names of the classes; by default `data.classes`.
            test, seed: The test set that is drawn if none is given.
        """
        found = import_torch(
            data, test_data=test_data, clients=clients, class_names=class_names, test=test, seed=seed
        )
        return cls.of(found)

    @classmethod
    def from_hf(
        cls: type[Made],
        data: hf.Dataset,
        *,
        image: str = "",
        x: str = "",
        label: str = "label",
        client: str = "",
        test_data: hf.Dataset | None = None,
        size: int = 0,
        test: float = TEST_SHARE,
        seed: int = 0,
        name: str = "hf",
    ) -> Made:
        """Read a data set of Hugging Face's library; see `import_hf` for the arguments."""
        found = import_hf(
            data,
            image=image,
            x=x,
            label=label,
            client=client,
            test_data=test_data,
            size=size,
            test=test,
            seed=seed,
            name=name,
        )
        return cls.of(found)

    @classmethod
    def from_flwr(
        cls: type[Made],
        partitions: Sequence[hf.Dataset],
        *,
        image: str = "",
        x: str = "",
        label: str = "label",
        test_data: hf.Dataset | None = None,
        size: int = 0,
        test: float = TEST_SHARE,
        seed: int = 0,
        name: str = "flwr",
    ) -> Made:
        """Read the partitions of flwr-datasets, one for each client; see `import_flwr` for the arguments."""
        found = import_flwr(
            partitions,
            image=image,
            x=x,
            label=label,
            test_data=test_data,
            size=size,
            test=test,
            seed=seed,
            name=name,
        )
        return cls.of(found)

    @classmethod
    def from_pfllib(cls: type[Made], folder: str | Path) -> Made:
        """Read a folder of PFLlib's: train/ID.npz and test/ID.npz."""
        return cls.of(import_pfllib(folder))
