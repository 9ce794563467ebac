"""One partition gives the same images, whether it is asked for by the name of its split or as its file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import raffed
from raffed import Data, Federation, RunConfig, Runtime
from raffed.data import datasets
from raffed.data.catalogue import DATASETS
from raffed.data.partition_file import Partition
from raffed.data.preparation import STYLES, Transform
from raffed.data.splits import SPLITS, parse_split, style_words
from raffed.data.transforms import prepare_inputs
from raffed.errors import UsageError
from raffed.results.runfile import read_run
from raffed.runtime.setup import Setup, prepare_run

FAMILIES = {
    "capped-dirichlet": ("capped-dirichlet:4:1.0:10:niid-bench:0.0", "plain"),
    "class-groups": ("class-groups:10:2:pfllib", "plain"),
    "dirichlet": ("dirichlet:4:1.0", "map"),
    "dirichlet-client": ("dirichlet-client:4:1.0", "map"),
    "equal": ("equal:4:5", "plain"),
    "iid": ("iid:4", "fedmr"),
    "incomplete": ("incomplete:4", "map"),
    "label-count": ("label-count:4:5:niid-bench", "plain"),
    "lognormal": ("lognormal:10:3", "plain"),
    "longtail": ("longtail:4:1.0:5.0", "plain"),
    "natural": ("natural:4", "plain"),
    "pXcY": ("p4c5", "fedmr"),
    "power-law": ("power-law:10:2:1.0:1:flower", "plain"),
    "shards": ("shards:4:5", "plain"),
    "stages": ("stages:2:4:2:if4", "plain"),
}
# Four styles that give four different images of digits, whose own styles are all alike
DIFFERENT = {style: Transform(mean=(0.1 * k,), size=None if k else 10) for k, style in enumerate(STYLES)}


@pytest.fixture(autouse=True)
def _digits_of_writers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Digits with ten natural clients and with styles that differ."""
    load = datasets.load_dataset
    monkeypatch.setitem(DATASETS, "digits", replace(DATASETS["digits"], transforms=DIFFERENT))

    def loaded(*given: Any) -> Any:
        found = load(*given)
        return replace(found, clients=np.arange(len(found.y)) % 10)

    monkeypatch.setattr(datasets, "load_dataset", loaded)


def prepared(split: str, transform: str = "auto") -> Setup:
    return prepare_run(
        RunConfig(data=Data(split=split, transform=transform), federation=Federation(rounds=2))
    )


def images(setup: Setup, client: int) -> torch.Tensor:
    own = setup.dataset.x[setup.partition.train[client]]
    return prepare_inputs(own, setup.transform, setup.dataset.max_value)


@pytest.mark.parametrize("name", [name for name in SPLITS if name != "file"])
def test_a_partition_by_name_and_as_file_gives_every_client_the_same_images(
    name: str, tmp_path: Path
) -> None:
    text, style = FAMILIES[name]
    named = prepared(text)
    named.partition.save(tmp_path / "p.npz")
    again = prepared(f"file:{tmp_path / 'p.npz'}")
    assert (named.style, again.style) == (style, style)
    assert again.partition.sha256() == named.partition.sha256()
    for client in range(named.partition.num_clients):
        assert torch.equal(images(named, client), images(again, client))


@pytest.mark.parametrize("style", STYLES)
def test_a_file_repeats_the_style_that_was_asked_for_by_name(style: str, tmp_path: Path) -> None:
    named = prepared("p10c2", style)
    named.partition.save(tmp_path / "p.npz")
    again = prepared(f"file:{tmp_path / 'p.npz'}")
    assert torch.equal(images(named, 3), images(again, 3))
    others = [other for other in STYLES if other != style]
    assert all(prepared("p10c2", other).transform != again.transform for other in others)
    assert prepared(f"file:{tmp_path / 'p.npz'}", others[0]).style == others[0], "what is typed goes first"


def test_two_runs_by_name_and_as_file_end_with_the_same_weights_and_record_the_style(tmp_path: Path) -> None:
    def run(split: str, out: str) -> dict[str, str]:
        config = RunConfig(
            data=Data(split=split),
            model=raffed.Model("mlp", {"hidden": [4]}),
            federation=Federation(rounds=1),
            runtime=Runtime(execution="serial"),
        )
        hashes = raffed.run(config, tmp_path / out).hashes
        assert read_run(tmp_path / out)["transform"] == "fedmr"
        return {part: hashes[part] for part in ("weights", "vaults")}

    assert run("p5c2", "a") == run(f"file:{tmp_path}/a/partition.npz", "b")


def without_style(path: Path) -> str:
    """A file as earlier versions of raffed wrote it."""
    made = prepared("p10c2").partition
    recipe = {name: value for name, value in made.recipe.items() if name != "transform"}
    replace(made, recipe=recipe).save(path)
    return f"file:{path}"


def test_a_file_of_an_earlier_version_records_no_style_and_gives_plain_images(tmp_path: Path) -> None:
    split = without_style(tmp_path / "old.npz")
    assert prepared(split).style == "plain"
    assert style_words("auto", split) == "plain (auto: the file records no style)"


def test_the_style_is_told_in_words_with_the_reason_where_auto_chose_it(tmp_path: Path) -> None:
    assert style_words("map", "p10c2") == "map"
    assert style_words("auto", "p10c2") == "fedmr (auto: the style of pXcY splits)"
    prepared("incomplete:5").partition.save(tmp_path / "p.npz")
    said = "map (auto: the style that the file records)"
    assert style_words("auto", f"file:{tmp_path / 'p.npz'}") == said
    assert style_words("auto", "file:/nowhere.npz") == "auto"


def test_a_style_that_does_not_exist_is_refused_with_the_file_s_name(tmp_path: Path) -> None:
    made = prepared("p10c2").partition
    Partition(made.train, made.test, 10, {"transform": "sepia"}).save(tmp_path / "p.npz")
    with pytest.raises(UsageError, match=r"p\.npz: transform"):
        prepared(f"file:{tmp_path / 'p.npz'}")


def test_a_split_s_style_is_an_attribute_of_its_class() -> None:
    assert {name: split.style for name, split in SPLITS.items() if name != "file"} == {
        name: style for name, (_, style) in FAMILIES.items()
    }
    assert {split.style for split in SPLITS.values()} <= set(STYLES)


def test_every_family_of_splits_is_tried() -> None:
    assert set(FAMILIES) == set(SPLITS) - {"file"}
    for text, _ in FAMILIES.values():
        assert parse_split(text).text == text


@pytest.fixture
def saved(tmp_path: Path) -> Callable[[str], str]:
    def save(text: str) -> str:
        prepared(text).partition.save(tmp_path / "p.npz")
        return f"file:{tmp_path / 'p.npz'}"

    return save


def test_a_stored_partition_passed_on_from_run_to_run_keeps_its_style(
    saved: Callable[[str], str], tmp_path: Path
) -> None:
    second = prepared(saved("incomplete:4"))
    second.partition.save(tmp_path / "again.npz")
    assert prepared(f"file:{tmp_path / 'again.npz'}").style == "map"
