"""Split texts have one canonical spelling, and a partition gives the same images as a file."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from raffed import Data, Federation, RunConfig
from raffed.data import datasets
from raffed.data.benchmark_splits import Equal, FromFile, InStages, Natural
from raffed.data.label_splits import (
    ClassesPerClient,
    Dirichlet,
    Iid,
    LongTail,
)
from raffed.data.preparation import STYLES, TRANSFORMS, Transform
from raffed.data.published_splits import CappedDirichlet, ClassGroups, LabelCount, PowerLaw
from raffed.data.split import Split
from raffed.data.splits import SPLITS, parse_split, register_split, style_words
from raffed.data.transforms import prepare_inputs
from raffed.errors import UsageError
from raffed.runtime.setup import Setup, prepare_run


@pytest.mark.parametrize(
    ("text", "split"),
    [
        ("p10c2", ClassesPerClient(clients=10, classes=2)),
        ("P5C2:Duplicates", ClassesPerClient(clients=5, classes=2, duplicates=True)),
        ("Dirichlet:100:1e5", Dirichlet(clients=100, alpha=1e5)),
        ("EQUAL:100:5:duplicates", Equal(clients=100, classes=5, duplicates=True)),
        ("label-count:10:2:flower:42", LabelCount(10, 2, code="flower", seed=42)),
        (
            "Capped-Dirichlet:10:.5:256:pfllib:0.25:1",
            CappedDirichlet(10, 0.5, least=256, code="pfllib", common_test=0.25, seed=1),
        ),
        ("class-groups:10:2:fedvls:1", ClassGroups(10, 2, code="fedvls", seed=1)),
        ("power-law:1000:2:2:5:flower:42", PowerLaw(1000, 2, sigma=2.0, seed=42)),
        ("LongTail:10:0.5:50", LongTail(clients=10, alpha=0.5, imbalance=50.0)),
        ("Stages:20:4:5:IF1.5:Outer", InStages(20, 4, stages=5, imbalance=1.5, outer=True)),
        (
            "stages:4:4:5:if50:n500:balanced:sorted_shards",
            InStages(4, 4, stages=5, imbalance=50.0, n_max=500, algorithm="sorted_shards", balanced=True),
        ),
        ("natural:5", Natural(clients=5)),
        ("file:/A/b:c.npz", FromFile(path="/A/b:c.npz")),
    ],
)
def test_a_text_means_one_split(text: str, split: Split) -> None:
    assert parse_split(text) == split
    assert parse_split(split.text) == split


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("dirichlet:100", "dirichlet:CLIENTS:ALPHA"),
        ("stages:20:4:5", "stages:CLIENTS:CLASSES:STAGES:ifIMBALANCE"),
        ("stages:20:4:5:if50:outer:outer", "stages:CLIENTS:CLASSES:STAGES:ifIMBALANCE"),
        ("dirichlett:10:1", "nearest: dirichlet:CLIENTS:ALPHA"),
        ("iid:0", "clients = 0 is outside ["),
        ("dirichlet:10:0", "alpha = 0.0 is outside ["),
    ],
)
def test_nonsense_is_answered_with_the_syntax_or_the_range(text: str, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_split(text)
    assert said in str(caught.value)
    assert repr(text) in str(caught.value)


NAMES = (
    r"(iid|p\d+c|dirichlet|capped-dirichlet|class-groups|label-count|shards|equal:\d:\d|stages:\d:\d:\d:if)"
)


@pytest.mark.more
@settings(deadline=None)
@given(st.text(max_size=30) | st.from_regex(NAMES + r"[:\dc.e-]*(:outer|:n\d)*", fullmatch=True))
def test_any_text_is_a_split_that_reads_back_or_a_usage_error(text: str) -> None:
    try:
        split = parse_split(text)
    except UsageError:
        return
    assert parse_split(split.text) == split


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


FAMILIES = {
    "capped-dirichlet": ("capped-dirichlet:4:1.0:10:niid-bench:0.0", "plain"),
    "dirichlet": ("dirichlet:4:1.0", "map"),
    "iid": ("iid:4", "fedmr"),
    "natural": ("natural:4", "plain"),
    "stages": ("stages:2:4:2:if4", "plain"),
}
# Four styles that give four different images of digits, whose own styles are all alike
DIFFERENT = {style: Transform(mean=(0.1 * k,), size=None if k else 10) for k, style in enumerate(STYLES)}


@pytest.fixture
def digits_of_writers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Digits with ten natural clients and with styles that differ."""
    load = datasets.load_dataset
    monkeypatch.setitem(TRANSFORMS, "digits", DIFFERENT)

    def loaded(*given: Any) -> Any:
        found = load(*given)
        return replace(found, clients=np.arange(len(found.y)) % 10)

    monkeypatch.setattr(datasets, "load_dataset", loaded)


def prepared(split: str, transform: str = "auto") -> Setup:
    return prepare_run(
        RunConfig(data=Data(split=split, transform=transform), federation=Federation(rounds=2))
    )


def recorded(setup: Setup) -> str:
    """The style of preparation that a run's partition records."""
    return str(setup.partition.recipe["transform"])


def images(setup: Setup, client: int) -> torch.Tensor:
    own = setup.dataset.x[setup.partition.train[client]]
    return prepare_inputs(own, setup.data.transform, setup.dataset.max_value)


@pytest.mark.usefixtures("digits_of_writers")
@pytest.mark.parametrize("name", FAMILIES)
def test_a_partition_by_name_and_as_file_gives_the_same_images(name: str, tmp_path: Path) -> None:
    text, style = FAMILIES[name]
    named = prepared(text)
    named.partition.save(tmp_path / "p.npz")
    again = prepared(f"file:{tmp_path / 'p.npz'}")
    assert (recorded(named), recorded(again), SPLITS[name].style) == (style, style, style)
    assert again.partition.sha256() == named.partition.sha256()
    for client in range(named.partition.num_clients):
        assert torch.equal(images(named, client), images(again, client))


@pytest.mark.usefixtures("digits_of_writers")
def test_a_file_repeats_the_style_that_was_asked_for_by_name(tmp_path: Path) -> None:
    named, split = prepared("p10c2", "map"), f"file:{tmp_path / 'p.npz'}"
    named.partition.save(tmp_path / "p.npz")
    assert torch.equal(images(named, 3), images(prepared(split), 3))
    assert style_words("auto", split) == "map (auto: the style that the file records)"
    assert prepared("p10c2").data.transform != named.data.transform
    assert style_words("auto", "p10c2") == "fedmr (auto: the style of pXcY splits)"
    assert recorded(prepared(split, "plain")) == "plain", "what is typed goes first"


@pytest.mark.usefixtures("digits_of_writers")
def test_a_file_of_an_earlier_version_records_no_style_and_gives_plain_images(tmp_path: Path) -> None:
    made, split = prepared("p10c2").partition, f"file:{tmp_path / 'p.npz'}"
    recipe = {name: value for name, value in made.recipe.items() if name != "transform"}
    replace(made, recipe=recipe).save(tmp_path / "p.npz")
    assert recorded(prepared(split)) == "plain"
    assert style_words("auto", split) == "plain (auto: the file records no style)"
    replace(made, recipe={"transform": "sepia"}).save(tmp_path / "p.npz")
    with pytest.raises(UsageError, match=r"p\.npz: transform"):
        prepared(split)
