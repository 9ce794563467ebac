"""What a person types after `--dataset`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from raffed.data.importers.reference import guessed, import_reference, parse_reference
from raffed.errors import UsageError


def test_a_reference_has_a_kind_a_place_and_options() -> None:
    found = parse_reference("csv:data/a table.csv?label=y&client=site&drop=id,name&test=0.3&seed=7")
    assert found is not None
    assert (found.kind, found.place) == ("csv", "data/a table.csv")
    assert found.options == {"label": "y", "client": "site", "drop": ("id", "name"), "test": 0.3, "seed": 7}


def test_values_may_be_percent_encoded_and_plus_is_plus() -> None:
    found = parse_reference("csv:a.csv?label=x%26y&client=c++")
    assert found is not None
    assert found.options == {"label": "x&y", "client": "c++"}


@pytest.mark.parametrize(
    "text", ["digits", "mylab.data:load", "./data.py:load", "cifar10", "C:\\data\\a.csv"]
)
def test_other_names_are_not_references_to_files(text: str) -> None:
    assert parse_reference(text) is None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("csv:", r"the path is missing, as in csv:table\.csv"),
        ("csv:a.csv?label", "'label' is not key=value"),
        ("csv:a.csv?label=", "'label=' is not key=value"),
        ("csv:a.csv?lable=y", "option of csv: 'lable'; nearest: label"),
        ("csv:a.csv?label=y&label=z", "label is given twice"),
        ("folder:a?size=big", "size = 'big'; it must be a whole number"),
        ("folder:a?size=-3", "size = '-3'; it must be a whole number"),
        ("npz:a.npz?test=half", "test = 'half'; it must be a fraction"),
        ("pfllib:a?test=0.2", "option of pfllib: 'test'"),
    ],
)
def test_a_mistyped_reference_is_refused_before_anything_is_read(text: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        parse_reference(text)


def test_a_bare_path_is_answered_with_the_reference_that_it_means(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.zeros((10, 2)), y=np.arange(10) % 2)
    assert guessed(str(tmp_path / "a.npz")) == f"npz:{tmp_path / 'a.npz'}"
    assert guessed(str(tmp_path)) == f"folder:{tmp_path}"
    assert guessed("digits") is None
    with pytest.raises(UsageError, match=r"did you mean npz:.*a\.npz"):
        import_reference(str(tmp_path / "a.npz"))
    found = import_reference(f"npz:{tmp_path / 'a.npz'}?test=0.4")
    assert len(found.y_test) == 4
    assert found.source == f"npz:{tmp_path / 'a.npz'}?test=0.4"
