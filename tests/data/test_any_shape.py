"""Inputs of any shape pass through the data layer: rows of tables and numbers of words, as well as images."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from raffed import Data, Federation, Local, RunConfig, Runtime
from raffed.data.catalogue import DATASETS, DatasetInfo
from raffed.data.dataset import Dataset
from raffed.data.partition import make_partition
from raffed.data.preparation import AS_IT_IS, STYLES, Transform
from raffed.data.splits import parse_split
from raffed.data.transforms import prepare_inputs, transform_for
from raffed.errors import UsageError
from raffed.models.net import Net
from raffed.runs.federation import conduct_at
from raffed.runtime import network_setup
from raffed.runtime.checks import check_before_reading
from raffed.runtime.serial import SerialBackend
from raffed.runtime.setup import Setup

ROWS = 24
Y = np.arange(ROWS) % 2
TABLE = np.random.default_rng(0).normal(size=(ROWS, 5)).astype(np.float32)
WORDS = np.arange(ROWS * 4, dtype=np.int64).reshape(ROWS, 4)
seen: list[Tensor] = []


class Watched(nn.Module):
    """Keeps what it is given in training, and makes three features of it."""

    def __init__(self, words: bool) -> None:
        super().__init__()
        self.inner = nn.EmbeddingBag(WORDS.size, 3, mode="mean") if words else nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            seen.append(x.detach().clone())
        found: Tensor = self.inner(x)
        return found


@pytest.mark.parametrize("x", [TABLE, WORDS], ids=["table", "words"])
def test_a_table_and_numbers_of_words_reach_the_client_s_batches_unchanged(
    x: np.ndarray, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def network(*_: object, **__: object) -> Net:
        draws = torch.Generator().manual_seed(0)
        made = Net(Watched(x.dtype == np.int64), nn.Linear(3, 2))
        for one in made.parameters():
            one.data = torch.rand(one.shape, generator=draws) - 0.5
        return made

    monkeypatch.setattr(network_setup, "build_for", network)
    seen.clear()
    mine = Dataset(x, Y, x[:4], Y[:4], name="mine")
    config = RunConfig(
        data=Data(split="iid:2"),
        local=Local(batch_size=6, epochs=1, lr=0.1),
        federation=Federation(rounds=1),
        runtime=Runtime(execution="serial"),
    )
    setup = Setup(config, mine, make_partition(parse_split("iid:2"), mine.y, 2, None, 0))
    for _ in conduct_at(setup, tmp_path / "r", False, SerialBackend(setup, tmp_path / "v"), lambda: False):
        pass
    batches = torch.cat([batch for batch in seen if len(batch) == 6])
    assert batches.dtype == torch.from_numpy(x).dtype
    assert {tuple(row) for row in batches.tolist()} == {tuple(row) for row in x.tolist()}


@pytest.mark.parametrize(
    ("given", "prepared"),
    [
        (TABLE, torch.from_numpy(TABLE)),
        (WORDS, torch.from_numpy(WORDS)),
        (np.array([[0, 51, 255]], np.uint8), torch.tensor([[0.0, 0.2, 1.0]])),
        (np.array([[True, False]]), torch.tensor([[1.0, 0.0]])),
        (np.zeros((0, 7), np.int32), torch.zeros((0, 7), dtype=torch.int64)),
    ],
)
def test_without_a_transform_inputs_are_prepared_as_their_type_says(
    given: np.ndarray, prepared: Tensor
) -> None:
    found = prepare_inputs(given, AS_IT_IS)
    assert found.dtype == prepared.dtype
    torch.testing.assert_close(found, prepared, rtol=0, atol=1e-7)


def test_bytes_are_divided_by_the_value_that_means_one() -> None:
    assert prepare_inputs(np.array([[4, 16]], np.uint8), AS_IT_IS, 16).tolist() == [[0.25, 1.0]]


def test_words_as_text_are_refused() -> None:
    with pytest.raises(UsageError, match="must be numbers"):
        prepare_inputs(np.array([["a"]]), AS_IT_IS)


@pytest.mark.parametrize("style", STYLES)
def test_every_data_set_has_a_preparation_in_every_style_and_says_where_it_is_not_its_own(style: str) -> None:
    mine = Dataset(TABLE, Y, name="mine")
    assert mine.transform_in(style).transform == AS_IT_IS
    assert (f"mine has no {style} preparation" in mine.transform_in(style).note) == (style != "plain")
    own = Transform(mean=(0.5,), std=(0.5,))
    images = np.zeros((ROWS, 1, 2, 2), np.uint8)
    with_own = Dataset(images, Y, transform=own, transforms={"plain": Transform()})
    assert with_own.transform_in(style).transform == (Transform() if style == "plain" else own)
    assert (with_own.transform_in(style).note == "") == (style == "plain")


@pytest.mark.parametrize("split", ["dirichlet:3:1.0", "p3c1", "iid:3", "incomplete:3", "shards:3:1"])
def test_a_new_data_set_in_the_catalogue_can_be_divided_in_any_way(
    split: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It once ended in KeyError: ('mine', 'map')."""
    monkeypatch.setitem(DATASETS, "mine", DatasetInfo("Mine", 3, (1, 8, 8), 90, 0, (), "here"))
    check_before_reading(RunConfig(data=Data("mine", split)), parse_split(split))
    assert {transform_for("mine", style) for style in STYLES} == {AS_IT_IS}


def test_a_transform_for_images_is_refused_for_what_is_none() -> None:
    with pytest.raises(UsageError, match="one input has the shape"):
        Transform().check_fits("mine", (5,))
    with pytest.raises(UsageError, match="images have 3 channels, but the transform is for 1"):
        Transform().check_fits("mine", (3, 8, 8))
    AS_IT_IS.check_fits("mine", (5,))
    with pytest.raises(UsageError, match="needs a mean and a std"):
        Transform(mean=(), std=(), flip=True)


def test_the_shape_of_what_is_not_resized_is_kept_whatever_it_is() -> None:
    for shape in ((5,), (4, 7), (1, 8, 6), (2, 3, 4, 5)):
        assert AS_IT_IS.prepared_shape(shape) == shape
    assert Transform(size=32).prepared_shape((1, 8, 6)) == (1, 32, 32)
