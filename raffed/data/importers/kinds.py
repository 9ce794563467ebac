"""The kinds of data that may be typed after `--dataset`. Reading this table imports nothing."""

from __future__ import annotations

from dataclasses import dataclass

TABLE = ("label", "client", "features", "drop", "categorical", "test", "seed")
HF = (
    "image",
    "x",
    "label",
    "client",
    "features",
    "drop",
    "size",
    "colour",
    "split",
    "test_split",
    "test",
    "seed",
)


@dataclass(frozen=True)
class Kind:
    """One kind of reference.

    Attributes:
        options: Keys that may be given.
        example: How it is written, for messages and listings.
        meaning: What it reads, in a few words.
    """

    options: tuple[str, ...]
    example: str
    meaning: str


KINDS: dict[str, Kind] = {
    "csv": Kind(
        (*TABLE, "na"), "csv:table.csv?label=y&client=site", "a table with a header line; .tsv with tabs"
    ),
    "parquet": Kind(TABLE, "parquet:table.parquet?label=y", "a Parquet table"),
    "npz": Kind(
        ("x", "y", "clients", "test", "seed"),
        "npz:arrays.npz",
        "NumPy arrays x, y, x_test, clients, …",
    ),
    "folder": Kind(
        ("size", "colour", "test", "seed"),
        "folder:./images?size=32",
        "images in CLASS/file or CLIENT/CLASS/file",
    ),
    "hf": Kind(
        HF,
        "hf:PATH_OR_NAME?image=img&label=y&client=writer",
        "a data set of Hugging Face's library",
    ),
    "pfllib": Kind((), "pfllib:DIR", "a folder of PFLlib's: train/ID.npz and test/ID.npz"),
}
