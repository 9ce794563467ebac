"""Split texts: each has one canonical spelling, and nonsense is answered with the syntax."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raffed.data.splits import SPLITS, Split, parse_split
from raffed.errors import UsageError


@pytest.mark.parametrize(
    ("text", "split"),
    [
        ("iid:10", Split("iid", clients=10)),
        ("IID:10", Split("iid", clients=10)),
        ("p10c2", Split("pXcY", clients=10, classes=2)),
        ("P10C2", Split("pXcY", clients=10, classes=2)),
        ("P5C2:Duplicates", Split("pXcY", clients=5, classes=2, options=("duplicates",))),
        (" incomplete:100 ", Split("incomplete", clients=100)),
        ("dirichlet:100:0.5", Split("dirichlet", clients=100, alpha=0.5)),
        ("dirichlet-client:100:1.0", Split("dirichlet-client", clients=100, alpha=1.0)),
        ("Dirichlet:100:1e5", Split("dirichlet", clients=100, alpha=1e5)),
        ("shards:100:2", Split("shards", clients=100, shards=2)),
        ("equal:100:5", Split("equal", clients=100, classes=5)),
        ("EQUAL:100:5:duplicates", Split("equal", clients=100, classes=5, options=("duplicates",))),
        ("lognormal:150:3", Split("lognormal", clients=150, classes=3)),
        ("stages:20:4:5:if50", Split("stages", clients=20, classes=4, stages=5, imbalance=50.0)),
        (
            "Stages:20:4:5:IF1.5:Outer",
            Split("stages", clients=20, classes=4, stages=5, imbalance=1.5, options=("outer",)),
        ),
        (
            "stages:4:4:5:if50:n500:balanced:sorted_shards",
            Split("stages", 4, 4, stages=5, imbalance=50.0, n_max=500, options=("sorted_shards", "balanced")),
        ),
        ("natural", Split("natural")),
        ("natural:5", Split("natural", clients=5)),
        ("file:/A/b:c.npz", Split("file", path="/A/b:c.npz")),
    ],
)
def test_a_text_means_one_split(text: str, split: Split) -> None:
    assert parse_split(text) == split
    assert parse_split(split.text) == split


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("iid", "iid:CLIENTS"),
        ("iid:ten", "iid:CLIENTS"),
        ("iid:10:2", "iid:CLIENTS"),
        ("iid:-1", "iid:CLIENTS"),
        ("dirichlet:100", "dirichlet:CLIENTS:ALPHA"),
        ("dirichlet:100:x", "dirichlet:CLIENTS:ALPHA"),
        ("dirichlet-client:1.5:1", "dirichlet-client:CLIENTS:ALPHA"),
        ("shards:100", "shards:CLIENTS:SHARDS"),
        ("equal:100", "equal:CLIENTS:CLASSES"),
        ("equal:100:5:outer", "equal:CLIENTS:CLASSES"),
        ("lognormal:150:3:duplicates", "lognormal:CLIENTS:CLASSES"),
        ("stages:20:4:5", "stages:CLIENTS:CLASSES:STAGES:ifIMBALANCE"),
        ("stages:20:4:5:50", "stages:CLIENTS:CLASSES:STAGES:ifIMBALANCE"),
        ("stages:20:4:5:ifx", "stages:CLIENTS:CLASSES:STAGES:ifIMBALANCE"),
        ("stages:20:4:5:if50:inside", "stages:CLIENTS:CLASSES:STAGES:ifIMBALANCE"),
        ("stages:20:4:5:if50:outer:outer", "stages:CLIENTS:CLASSES:STAGES:ifIMBALANCE"),
        ("stages:20:4:5:if50:n1:n2", "stages:CLIENTS:CLASSES:STAGES:ifIMBALANCE"),
        ("stages:20:4:5:if50:sorted_shards:fedrep_shards", "stages:CLIENTS:CLASSES:STAGES:ifIMBALANCE"),
        ("natural:", "natural or natural:CLIENTS"),
        ("file:", "file:PATH"),
        ("p10", "pCLIENTScCLASSES"),
        ("p10c", "pCLIENTScCLASSES"),
        ("p10c2:", "pCLIENTScCLASSES"),
        ("p10c2:outer", "pCLIENTScCLASSES"),
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
        ("iid:0", "count = 0"),
        ("p0c2", "count = 0"),
        ("p2c0", "count = 0"),
        ("shards:10:0", "count = 0"),
        ("iid:2000000", "count = 2000000"),
        ("stages:20:4:0:if50", "count = 0"),
        ("stages:20:4:5:if0.5", "imbalance = 0.5"),
        ("stages:20:4:5:ifnan", "imbalance = nan"),
        ("stages:20:4:5:if50:n0", "count = 0"),
        ("dirichlet:10:0", "alpha = 0"),
        ("dirichlet:10:-1", "alpha = -1"),
        ("dirichlet-client:10:nan", "alpha = nan"),
        ("dirichlet:10:inf", "alpha = inf"),
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
        r"(iid|p\d+c|dirichlet|shards|equal:\d:\d|stages:\d:\d:\d:if)[:\dc.e-]*(:outer|:n\d)*", fullmatch=True
    )
)
def test_any_text_is_a_split_that_reads_back_or_a_usage_error(text: str) -> None:
    try:
        split = parse_split(text)
    except UsageError:
        return
    assert parse_split(split.text) == split


def test_the_listing_names_every_scheme_once() -> None:
    names = [info.name for info in SPLITS]
    assert sorted(names) == sorted(set(names))
    assert len(names) == 11
