"""What is done about missing values: they are refused, their rows left out, or they are filled in."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from raffed.data.importers.imported import Imported
from raffed.data.importers.reference import import_reference
from raffed.errors import UsageError

TRAINING = "age,town,y\n1,Bonn,a\n,Ulm,b\n3,,a\n2,Bonn,b\n"
TEST = "age,town,y\n,Ulm,a\n5,,b\n"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("t.csv").write_text(TRAINING)
    Path("u.csv").write_text(TEST)
    return tmp_path


def read(rule: str, more: str = "") -> Imported:
    return import_reference(f"csv:t.csv?label=y&test=u.csv{rule and '&missing='}{rule}{more}")


@pytest.mark.usefixtures("here")
def test_rows_with_a_missing_value_are_left_out_in_both_parts() -> None:
    """Without town, the ages 1, 3 and 2 are left, whose standard deviation is √(2/3). With it, 1 and 2."""
    found, age = read("drop", "&drop=town"), math.sqrt(2 / 3)
    assert np.allclose(found.x[:, 0], [-1 / age, 1 / age, 0])
    assert np.allclose(found.x_test[:, 0], [3 / age])
    notes = [f"{name}.csv: rows with a missing value are not used (1)" for name in "tu"]
    assert [note for note in found.facts.notes if "missing" in note] == notes
    both = import_reference("csv:t.csv?label=y&missing=drop&test=0")
    assert np.allclose(both.x, [[-1, 1], [1, 1]])
    assert "rows with a missing value are not used (2)" in both.facts.notes[0]


@pytest.mark.usefixtures("here")
def test_numbers_get_the_mean_of_the_training_rows_and_texts_a_category_of_their_own() -> None:
    """The mean of the ages 1, 3 and 2 is 0 after standardisation. Towns: Bonn, Ulm, missing."""
    found, age = read("mean"), math.sqrt(2 / 3)
    rows = [[-1 / age, 1, 0, 0], [0, 0, 1, 0], [1 / age, 0, 0, 1], [0, 1, 0, 0]]
    assert np.allclose(found.x, rows)
    assert np.allclose(found.x_test, [[0, 0, 1, 0], [3 / age, 0, 0, 1]])


@pytest.mark.usefixtures("here")
def test_a_word_is_for_texts_alone() -> None:
    with pytest.raises(UsageError, match=r"'age' has 1 missing values, the first in line 3; missing=drop"):
        read("word")
    found = read("word", "&drop=age")
    assert found.x.tolist() == [[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 0, 0]]


@pytest.mark.usefixtures("here")
def test_without_a_rule_all_columns_are_named_at_once_and_no_rule_invents_a_class() -> None:
    with pytest.raises(UsageError, match=r"column 'age' has 1 missing values.*column 'town' 1"):
        read("")
    Path("t.csv").write_text(TRAINING + "4,Ulm,\n")
    for rule in ("mean", "word"):
        with pytest.raises(UsageError, match="column 'y' has 1 missing values"):
            read(rule, "&drop=age")
    assert len(read("drop", "&drop=age").y) == 3
    with pytest.raises(UsageError, match="missing"):
        read("median")
    Path("t.csv").write_text("age,town,y\n1,,a\n,Ulm,b\n")
    with pytest.raises(UsageError, match="every row has a missing value"):
        read("drop")


@pytest.mark.usefixtures("here")
def test_the_line_of_a_later_fault_is_that_of_the_file_after_rows_were_left_out() -> None:
    Path("t.csv").write_text(TRAINING + "inf,Ulm,a\n")
    with pytest.raises(UsageError, match="column 'age' is infinite in line 6"):
        read("drop")
