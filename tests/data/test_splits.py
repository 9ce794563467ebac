"""Split texts: each has one canonical spelling, and nonsense is answered with the syntax."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raffed.data.benchmark_splits import Equal, FromFile, InStages, Natural
from raffed.data.label_splits import (
    ClassesPerClient,
    Dirichlet,
    DirichletByClient,
    Iid,
    Incomplete,
    LogNormalSizes,
    LongTail,
    Shards,
)
from raffed.data.published_splits import CappedDirichlet, ClassGroups, LabelCount, PowerLaw
from raffed.data.split import Split
from raffed.data.splits import SPLITS, parse_split
from raffed.errors import UsageError


@pytest.mark.parametrize(
    ("text", "split"),
    [
        ("iid:10", Iid(clients=10)),
        ("IID:10", Iid(clients=10)),
        ("p10c2", ClassesPerClient(clients=10, classes=2)),
        ("P10C2", ClassesPerClient(clients=10, classes=2)),
        ("P5C2:Duplicates", ClassesPerClient(clients=5, classes=2, duplicates=True)),
        (" incomplete:100 ", Incomplete(clients=100)),
        ("dirichlet:100:0.5", Dirichlet(clients=100, alpha=0.5)),
        ("dirichlet-client:100:1.0", DirichletByClient(clients=100, alpha=1.0)),
        ("Dirichlet:100:1e5", Dirichlet(clients=100, alpha=1e5)),
        ("shards:100:2", Shards(clients=100, shards=2)),
        ("equal:100:5", Equal(clients=100, classes=5)),
        ("EQUAL:100:5:duplicates", Equal(clients=100, classes=5, duplicates=True)),
        ("lognormal:150:3", LogNormalSizes(clients=150, classes=3)),
        ("label-count:10:2", LabelCount(clients=10, classes=2)),
        ("label-count:10:2:flower:42", LabelCount(10, 2, code="flower", seed=42)),
        ("capped-dirichlet:10:0.5", CappedDirichlet(clients=10, alpha=0.5)),
        (
            "Capped-Dirichlet:10:.5:256:pfllib:0.25:1",
            CappedDirichlet(10, 0.5, least=256, code="pfllib", common_test=0.25, seed=1),
        ),
        ("class-groups:20:2", ClassGroups(clients=20, classes=2)),
        ("class-groups:10:2:fedvls:1", ClassGroups(10, 2, code="fedvls", seed=1)),
        ("power-law:1000:2:2:5:flower:42", PowerLaw(1000, 2, sigma=2.0, seed=42)),
        ("LongTail:10:0.5:50", LongTail(clients=10, alpha=0.5, imbalance=50.0)),
        ("stages:20:4:5:if50", InStages(clients=20, classes=4, stages=5, imbalance=50.0)),
        (
            "Stages:20:4:5:IF1.5:Outer",
            InStages(clients=20, classes=4, stages=5, imbalance=1.5, outer=True),
        ),
        (
            "stages:4:4:5:if50:n500:balanced:sorted_shards",
            InStages(4, 4, stages=5, imbalance=50.0, n_max=500, algorithm="sorted_shards", balanced=True),
        ),
        ("natural", Natural()),
        ("natural:5", Natural(clients=5)),
        ("file:/A/b:c.npz", FromFile(path="/A/b:c.npz")),
    ],
)
def test_a_text_means_one_split(text: str, split: Split) -> None:
    assert parse_split(text) == split
    assert parse_split(split.text) == split


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("iid", "iid:CLIENTS"),
        ("dirichlet:100", "dirichlet:CLIENTS:ALPHA"),
        ("equal:100", "equal:CLIENTS:CLASSES"),
        ("lognormal:150:3:duplicates", "lognormal:CLIENTS:CLASSES"),
        ("stages:20:4:5", "stages:CLIENTS:CLASSES:STAGES:ifIMBALANCE"),
        ("stages:20:4:5:ifx", "stages:CLIENTS:CLASSES:STAGES:ifIMBALANCE"),
        ("stages:20:4:5:if50:outer:outer", "stages:CLIENTS:CLASSES:STAGES:ifIMBALANCE"),
        ("natural:", "natural or natural:CLIENTS"),
        ("file:", "file:PATH"),
        ("p10", "pCLIENTScCLASSES"),
        ("p10c2:", "pCLIENTScCLASSES"),
        ("", "pCLIENTScCLASSES"),
        ("dirichlett:10:1", "nearest: dirichlet:CLIENTS:ALPHA"),
    ],
)
def test_nonsense_is_answered_with_the_syntax(text: str, wanted: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_split(text)
    assert wanted in str(caught.value)
    assert repr(text) in str(caught.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("iid:0", "clients = 0"),
        ("shards:10:0", "shards = 0"),
        ("iid:2000000", "clients = 2000000"),
        ("stages:20:4:5:if0.5", "imbalance = 0.5"),
        ("stages:20:4:5:ifnan", "imbalance = nan"),
        ("stages:20:4:5:if50:n0", "n_max = 0"),
        ("dirichlet:10:0", "alpha = 0"),
        ("dirichlet-client:10:nan", "alpha = nan"),
    ],
)
def test_impossible_numbers_are_named_with_their_range(text: str, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_split(text)
    assert said in str(caught.value)
    assert "outside [" in str(caught.value)


@settings(deadline=None, max_examples=60)
@given(
    st.text(max_size=30)
    | st.from_regex(
        r"(iid|p\d+c|dirichlet|capped-dirichlet|class-groups|label-count|shards|equal:\d:\d|stages:\d:\d:\d:if)[:\dc.e-]*(:outer|:n\d)*",
        fullmatch=True,
    )
)
def test_any_text_is_a_split_that_reads_back_or_a_usage_error(text: str) -> None:
    try:
        split = parse_split(text)
    except UsageError:
        return
    assert parse_split(split.text) == split


def test_the_listing_names_every_scheme_once() -> None:
    assert {name: split.name for name, split in SPLITS.items()} == {name: name for name in SPLITS}
    assert len(SPLITS) == 16
