"""Split texts have one canonical spelling, a partition gives the same images as a file, and what is held out:
validation parts of clients, samples of the server, test parts of a joined pool.
"""

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
from raffed.data.dataset import Dataset, joined
from raffed.data.datasets import load_dataset
from raffed.data.label_splits import ClassesPerClient, Dirichlet, Iid, LongTail
from raffed.data.partition import draw_server_holdout, held_out, make_partition, partition_beside
from raffed.data.partition_file import Partition
from raffed.data.preparation import STYLES, TRANSFORMS, Transform
from raffed.data.published_splits import CappedDirichlet, ClassGroups, LabelCount, PowerLaw
from raffed.data.split import LabelPool, Split
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
    return prepare_run(configured(split=split, transform=transform))


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


@pytest.fixture(scope="module")
def whole() -> Partition:
    data = load_dataset("digits")
    return make_partition(parse_split("p10c2"), data.y, 10, None, seed=3, local_test=0.2)


def test_every_client_gives_a_share_and_the_others_keep_their_order(whole: Partition) -> None:
    """The order decides the batches; what leaves must not move the others."""
    divided = held_out(whole, 0.25, seed=3)
    assert divided.num_clients == 10
    for client, before in enumerate(whole.train):
        assert len(divided.val[client]) == len(before) // 4
        left = set(divided.val[client].tolist())
        assert len(left) == len(before) // 4
        assert divided.train[client].tolist() == [one for one in before.tolist() if one not in left]
        assert divided.test[client] is whole.test[client]
    assert divided.sha256() == held_out(whole, 0.25, 3).sha256() != held_out(whole, 0.25, 4).sha256()


def test_a_share_of_zero_changes_no_bit(whole: Partition, tmp_path: Path) -> None:
    """The hash is the one that a default FedMR run had before validation parts existed."""
    assert held_out(whole, 0.0, 3) is whole
    identity = "0ed7dbb099793a1975d878b06f36a2d9f7c0b046cab411a2b705683c3ed4e811"
    assert RunConfig(method="fedmr").identity() == identity
    assert RunConfig(method="fedmr", data=Data(validation=0.1)).identity() != identity
    whole.save(tmp_path / "partition.npz")
    with np.load(tmp_path / "partition.npz") as stored:
        assert not any(name.startswith("val") for name in stored.files)
    assert Partition.load(tmp_path / "partition.npz").val == ()


def test_a_client_with_one_sample_keeps_it_and_one_with_two_gives_one() -> None:
    made = held_out(Partition((np.array([4]), np.array([1, 2])), (np.array([], np.int64),) * 2, 10), 0.5, 0)
    assert [len(own) for own in made.train] == [1, 1]
    assert [len(own) for own in made.val] == [0, 1]


def test_a_file_brings_its_validation_parts_along(whole: Partition, tmp_path: Path) -> None:
    divided = held_out(whole, 0.25, seed=3)
    divided.save(tmp_path / "partition.npz")
    again = Partition.load(tmp_path / "partition.npz", pool_size=1442)
    assert again.sha256() == divided.sha256()
    assert [own.tolist() for own in again.val] == [own.tolist() for own in divided.val]
    assert held_out(again, 0.5, 9) is again
    assert again.recipe["validation"] == 0.25
    Partition(whole.train, whole.test, 10, {}, val=whole.train).save(tmp_path / "double.npz")
    with pytest.raises(UsageError, match="a sample is listed twice"):
        Partition.load(tmp_path / "double.npz")


@pytest.mark.parametrize(
    ("split", "said"),
    [
        ("iid:1442", "no client has two training samples"),  # a set of nothing would have no accuracy
        ("stages:4:2:2:if2", "clients whose data come in stages"),
    ],
)
def test_where_nothing_can_be_held_out_the_run_is_refused(split: str, said: str) -> None:
    with pytest.raises(UsageError, match=rf"data\.validation = 0\.2: {said}"):
        prepare_run(configured(split=split, validation=0.2))


def tiny(**more: object) -> Dataset:
    x = np.arange(6, dtype=np.float32)[:, None]
    return Dataset(x[:4], [0, 1, 0, 1], x[4:], [1, 0], name="tiny", **more)  # type: ignore[arg-type]


def test_the_samples_of_the_test_part_follow_those_of_the_training_part() -> None:
    """Natural clients are kept only if the owner of every test sample is known."""
    pool = joined(tiny(clients=[0, 0, 1, 1], test_clients=[1, 0]))
    assert pool.x[:, 0].tolist() == list(range(6))
    assert pool.y.tolist() == [0, 1, 0, 1, 1, 0]
    assert len(pool.x_test) == len(pool.y_test) == 0
    assert pool.clients.tolist() == [0, 0, 1, 1, 1, 0]
    for more in ({"test_clients": [1, -1]}, {}):
        assert joined(tiny(clients=[0, 0, 1, 1], **more)).clients is None
    with pytest.raises(UsageError, match="tiny has no test set that could be joined; use train"):
        joined(pool)


def configured(**data: object) -> RunConfig:
    return RunConfig(data=replace(Data(), **data), federation=Federation(rounds=2))  # type: ignore[arg-type]


def test_clients_divide_all_samples_and_the_global_model_is_scored_on_their_test_parts() -> None:
    setup = prepare_run(configured(split="class-groups:10:2", pool="joined"))
    everything = np.concatenate([*setup.partition.train, *setup.partition.test])
    np.testing.assert_array_equal(np.sort(everything), np.arange(1797))
    images, labels = setup.data.test_set()
    assert len(images) == len(labels) == sum(map(len, setup.partition.test))
    assert len(labels) / 1797 == pytest.approx(0.25, abs=10 / 1797)  # rounded up in each of ten clients


def test_a_common_test_part_is_exactly_what_the_global_model_is_scored_on() -> None:
    setup = prepare_run(configured(split="capped-dirichlet:5:0.5:10:pfllib:0.25:1", pool="joined"))
    order = np.random.RandomState(1).permutation(1797)  # as train_test_split
    np.testing.assert_array_equal(setup.data.scored_rows["test"][1], order[:450])
    np.testing.assert_array_equal(np.sort(np.concatenate(setup.partition.train)), np.sort(order[450:]))


def test_a_joined_pool_counts_its_samples_in_the_identity_and_needs_local_test_parts() -> None:
    more = {"split": "iid:10", "local_test": 0.2, "samples": 1700}
    with pytest.raises(UsageError, match="has only 1442 training samples"):
        prepare_run(configured(**more))
    assert len(prepare_run(configured(**more, pool="joined")).dataset.y) == 1700
    with pytest.raises(UsageError, match=r"set data\.local_test above 0"):
        prepare_run(configured(split="label-count:10:2", pool="joined"))
    usual = RunConfig(federation=Federation(rounds=2)).identity()
    assert configured(pool="train").identity() == usual != configured(pool="joined").identity()


def test_the_server_s_samples_are_drawn_from_the_seed_and_no_class_is_taken_whole() -> None:
    pool = np.repeat([0, 1, 2], 3)
    taken = draw_server_holdout(pool, 3, 2, seed=5)
    assert np.bincount(pool[taken]).tolist() == [2, 2, 2]
    assert taken.tolist() == sorted(set(taken.tolist())) == draw_server_holdout(pool, 3, 2, seed=5).tolist()
    with pytest.raises(UsageError, match="needs 3 samples of class 0, but there are only 3"):
        draw_server_holdout(pool, 3, 3, seed=5)
    assert draw_server_holdout(pool, 4, 0, seed=0).tolist() == [], (
        "class 3 has no sample, but none is asked for"
    )
    with pytest.raises(UsageError, match="class 3, but there are only 0"):
        draw_server_holdout(pool, 4, 1, seed=0)


def test_natural_clients_keep_their_names_or_the_server_s_rule_is_refused() -> None:
    """Client 1 has two samples. Without them, client 2 would be the second one, under client 1's name."""
    pool = LabelPool(np.tile([0, 1], 5), 2, np.array([0, 0, 0, 0, 1, 1, 2, 2, 2, 2]))
    for split in (Natural(), Natural(clients=2)):
        kept = partition_beside(np.array([0, 5]), split, pool, seed=0, local_test=0.0)
        owners = [set(pool.clients[part].tolist()) for part in kept.train]
        assert owners == [{0}, {1}, {2}][: split.clients]
        with pytest.raises(UsageError, match="would take all training samples of client 1; let it ask for"):
            partition_beside(np.array([4, 5]), split, pool, seed=0, local_test=0.0)
    assert partition_beside(np.array([4, 5]), Iid(2), pool, seed=0).num_clients == 2


def test_more_clients_than_samples_are_possible_only_where_clients_share_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code = "def many(labels, clients: int = 1500):\n    return [[k % len(labels)] for k in range(clients)]\n"
    for name, mark in (("shared", "@raffed.split(overlapping=True)\n"), ("alone", "")):
        Path(f"{name}.py").write_text(f"import raffed\n\n\n{mark}{code}")
    assert prepare_run(configured(split="./shared.py:many", local_test=0.0)).partition.num_clients == 1500
    with pytest.raises(UsageError, match="1442 samples cannot give 1500 clients one each"):
        prepare_run(configured(split="./alone.py:many", local_test=0.0))
