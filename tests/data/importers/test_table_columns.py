"""What a column of a table is, where files write the same values differently or pandas adds a column."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from raffed.data.importers.imported import EncodedColumn
from raffed.data.importers.tables import encoded_rows, import_table
from raffed.errors import UsageError

Write = Callable[[str, str], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def written(name: str, content: str) -> Path:
        path = tmp_path / name
        path.write_text(content, encoding="utf-8")
        return path

    return written


def test_a_file_with_tests_has_the_clients_and_categories_of_training_by_their_letters(write: Write) -> None:
    """A column is numbers in one csv file and text in another one, because of one value."""
    train = write("train.csv", "y,site,zip\na,01,01\nb,2,2\na,B1,B1\nb,01,01\n")
    test = write("test.csv", "y,site,zip\na,01,01\nb,1,1\nb,2,2\n")
    found = import_table(train, label="y", client="site", categorical=("zip",), test=str(test))
    assert found.client_names == ("01", "2", "B1")
    assert found.test_clients is not None
    assert found.test_clients.tolist() == [0, -1, 1]
    assert found.x_test.tolist() == [[1, 0, 0], [0, 0, 0], [0, 1, 0]]


def test_new_rows_of_a_csv_file_have_the_categories_of_training(write: Write) -> None:
    column = EncodedColumn("zip", categories=("01", "02", "B"))
    assert encoded_rows(write("new.csv", "zip\n02\n2\n"), [column]).tolist() == [[0, 1, 0], [0, 0, 0]]


@pytest.mark.parametrize("client", ["", "site"])
@pytest.mark.parametrize("kind", ["csv", "read again", "parquet"])
def test_the_index_that_pandas_writes_is_no_feature(tmp_path: Path, kind: str, client: str) -> None:
    """Where the rows are sorted by class, their numbers would give the class away."""
    frame = pd.DataFrame({"a": [1.0, 2.0, 3.0, 5.0], "site": list("uuvv"), "y": list("aabb")})
    frame, path = frame.iloc[[0, 1, 3, 2]], tmp_path / f"t.{kind[:7]}"
    if kind == "parquet":
        frame.to_parquet(path)
    else:
        path = path.with_suffix(".csv")
        frame.to_csv(path)
        if kind == "read again":
            pd.read_csv(path).to_csv(path, index=False)
    found = import_table(path, label="y", client=client, drop=() if client else ("site",), test=0.0)
    assert [one.name for one in found.facts.columns] == ["a"]
    told = "has no name" if kind == "csv" else "numbers the rows"
    assert any(f"not used, because it {told}" in one for one in found.facts.notes)


def test_a_named_index_column_is_used_where_the_user_names_it(write: Write) -> None:
    path = write("t.csv", "Unnamed: 0,a,y\n3,1,u\n4,2,v\n")
    found = import_table(path, label="y", features=("Unnamed: 0", "a"), test=0.0)
    assert found.x.shape == (2, 2)
    text = write("u.csv", "Unnamed: 0,a,y\nred,1,u\nblue,2,v\n")
    assert import_table(text, label="y", test=0.0).x.shape == (2, 3)


def test_numbers_that_one_text_makes_categories_and_unknown_categories_are_told(write: Write) -> None:
    train = write("train.csv", "age,y\n20,a\n30,b\nunknown,a\n40,b\n")
    test = write("test.csv", "age,y\n20,a\n50,b\n60,b\n")
    notes = import_table(train, label="y", test=str(test)).facts.notes
    assert any("column 'age' is read as text with 4 categories, because 'unknown'" in one for one in notes)
    assert any("column 'age' has a category in 2 test rows that no training row has" in one for one in notes)
    declared = import_table(train, label="y", categorical=("age",), test=0.0)
    assert declared.facts.notes == ()


@pytest.mark.parametrize("word", ["", "NA", "?", "<NA>", "1.#QNAN"])
def test_what_other_programs_write_for_missing_is_missing(write: Write, word: str) -> None:
    path = write("t.csv", f"age,y\n1,a\n2,b\n{word},a\n4,b\n")
    with pytest.raises(UsageError, match="column 'age' has 1 missing values, the first in line 4"):
        import_table(path, label="y", test=0.0)


def test_a_column_of_parts_with_a_name_that_is_no_part_is_refused_unless_dropped(write: Write) -> None:
    path = write("t.csv", "a,split,y\n1,train,a\n2,test,b\n3,train,b\n4,unlabelled,b\n")
    with pytest.raises(UsageError, match="column 'split' names parts, and 'unlabelled', which is none"):
        import_table(path, label="y")
    assert import_table(path, label="y", drop=("split",), test=0.0).x.shape == (4, 1)


@pytest.mark.parametrize("table", [[[1, 2]], 3, "frame of intervals"], ids=["list", "number", "intervals"])
def test_what_is_no_table_or_no_category_is_refused_in_one_line(table: object) -> None:
    if isinstance(table, str):
        table = pd.DataFrame({"a": pd.cut(np.arange(4.0), 2), "y": list("abab")})
    with pytest.raises(UsageError, match=r"cannot be read as a table|column 'a' holds") as error:
        import_table(table, label="y")  # type: ignore[arg-type]
    assert "\n" not in str(error.value)
