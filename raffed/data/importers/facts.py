"""What an importer found beside the arrays: names, how columns were encoded, and sentences for the user."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True)
class EncodedColumn:
    """How one column of a table was encoded.

    Attributes:
        name: Name of the column.
        mean, std: A column of numbers became (value - mean) / std.
        categories: A column of text became one column of 0 and 1 for each of these; empty for numbers.
    """

    name: str
    mean: float = 0.0
    std: float = 1.0
    categories: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """Return the column for a JSON file."""
        if self.categories:
            return {"name": self.name, "categories": list(self.categories)}
        return {"name": self.name, "mean": self.mean, "std": self.std}

    @staticmethod
    def from_json(found: Mapping[str, Any]) -> EncodedColumn:
        """Return the column that `as_json` described."""
        categories = tuple(map(str, found.get("categories", ())))
        mean, std = float(found.get("mean", 0.0)), float(found.get("std", 1.0))
        return EncodedColumn(str(found["name"]), mean, std, categories)


@dataclass(frozen=True)
class DataFacts:
    """What an importer found beside the arrays. None of it changes what a run computes.

    Attributes:
        kind: "table", "images", or "arrays" for all else.
        notes: Sentences about what a user may not expect, such as a part that is not used.
        client_names: Names of the clients, in the order of their numbers.
        label, client: Columns of a table that hold the classes and the clients.
        columns: The columns of a table that are features.
        resized: Whether images were resized to the size that the data set has.
    """

    kind: Literal["table", "images", "arrays"] = "arrays"
    notes: tuple[str, ...] = ()
    client_names: tuple[str, ...] = ()
    label: str = ""
    client: str = ""
    columns: tuple[EncodedColumn, ...] = ()
    resized: bool = False

    def as_json(self) -> dict[str, Any]:
        """Return what is known, for a JSON file. What is empty is left out."""
        found = {
            "kind": self.kind,
            "notes": list(self.notes),
            "client_names": list(self.client_names),
            "label": self.label,
            "client": self.client,
            "columns": [one.as_json() for one in self.columns],
            "resized": self.resized,
        }
        return {key: value for key, value in found.items() if value}

    @staticmethod
    def from_json(found: Mapping[str, Any]) -> DataFacts:
        """Return what `as_json` described. What is missing or unknown counts as empty."""
        kind = found.get("kind")
        return DataFacts(
            kind if kind in ("table", "images") else "arrays",
            tuple(map(str, found.get("notes", ()))),
            tuple(map(str, found.get("client_names", ()))),
            str(found.get("label", "")),
            str(found.get("client", "")),
            tuple(EncodedColumn.from_json(one) for one in found.get("columns", ())),
            bool(found.get("resized", False)),
        )


__all__ = ["DataFacts", "EncodedColumn"]
