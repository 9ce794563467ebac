"""A split of one's own, written as the docstring of `Split` teaches it."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import pytest

from raffed.config.validation import Doc, Range
from raffed.data import splits
from raffed.data.label_splits import Dirichlet, Iid
from raffed.data.partition import make_partition
from raffed.data.partition_file import Partition
from raffed.data.randomness import stream
from raffed.data.split import MAX_CLIENTS, Split
from raffed.data.splits import SPLITS, parse_split, register_split
from raffed.errors import UsageError

LABELS = np.arange(100) % 10


@dataclass(frozen=True)
class Halves(Split):
    name, syntax = "halves", "halves:CLIENTS:SHARE"
    meaning = "the first client has a share of everything, the others divide the rest"
    clients: Annotated[int, Range(2, MAX_CLIENTS), Doc("Number of clients.")]
    share: Annotated[float, Range(0.0, 1.0), Doc("Share of the first client.")] = 0.5

    def divide(self, labels: np.ndarray, seed: int, num_classes: int | None = None) -> list[np.ndarray]:
        order = stream(seed, "halves").permutation(len(labels))
        first = int(self.share * len(order))
        return [order[:first], *np.array_split(order[first:], self.clients - 1)]


@pytest.fixture(autouse=True)
def _registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(splits, "SPLITS", SPLITS)
    monkeypatch.setitem(SPLITS, "halves", Halves)


def test_it_is_typed_with_its_parameters_in_order_and_may_leave_defaults_out() -> None:
    assert parse_split("halves:10:0.3") == Halves(10, 0.3)
    assert parse_split("HALVES:10") == Halves(10, 0.5)
    assert Halves(10, 0.3).text == "halves:10:0.3"


def test_its_partition_has_local_tests_a_recipe_and_a_file_like_any_other(tmp_path: Path) -> None:
    made = make_partition(parse_split("halves:5:0.4"), LABELS, 10, None, seed=3)
    assert [len(part) for part in made.train] == [32, 12, 12, 12, 12]
    assert [len(part) for part in made.test] == [8, 3, 3, 3, 3]
    assert (made.recipe["split"], made.recipe["transform"]) == ("halves:5:0.4", "plain")
    made.save(tmp_path / "p.npz")
    assert Partition.load(tmp_path / "p.npz").sha256() == made.sha256()
    assert Halves(50, 0.4).shrunk() == Halves(10, 0.4)


def test_a_name_belongs_to_one_class() -> None:
    @dataclass(frozen=True)
    class Other(Split):
        name, syntax, meaning = "iid", "iid:X", "another"

    @dataclass(frozen=True)
    class Nameless(Split):
        pass

    assert register_split(Iid) is Iid
    with pytest.raises(UsageError, match="there already is a split called 'iid'"):
        register_split(Other)
    with pytest.raises(UsageError, match="split Nameless has no name"):
        register_split(Nameless)


def test_a_class_divides_labels_without_anything_else() -> None:
    parts = Dirichlet(clients=4, alpha=0.5).divide(LABELS, seed=0)
    assert sorted(np.concatenate(parts).tolist()) == list(range(100))
    with pytest.raises(UsageError, match=r"alpha = -1\.0 is outside"):
        Dirichlet(4, -1.0)


def test_every_parameter_of_every_split_is_declared_with_a_meaning_and_numbers_with_a_range() -> None:
    for name, split in SPLITS.items():
        assert set(split.declared()) == {field.name for field in dataclasses.fields(split)}
        for one in split.declared().values():
            assert one.doc, f"{name}: {one.name}"
            assert one.range is not None or not {"int", "float"} & set(one.kind.split(" | ")), one.name
