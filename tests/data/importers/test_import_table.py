"""Tables: a class column, perhaps a client column, and features encoded by the training rows alone."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import parquet
from sklearn.datasets import load_wine

from raffed.data.importers.imported import Imported
from raffed.data.importers.reference import import_reference
from raffed.data.importers.tables import import_table
from raffed.errors import DataFileError, UsageError

FRAME = pd.DataFrame(
    {
        "age": [10.0, 20.0, 30.0, 40.0, 50.0, 60.0],
        "smoker": [True, False, True, False, True, False],
        "city": ["Bonn", "Köln", "Bonn", "Ulm", "Ulm", "Bonn"],
        "zip": [53, 50, 53, 89, 89, 53],
        "site": ["north", "south"] * 3,
        "ill": ["yes", "no", "no", "yes", "no", "yes"],
    }
)


def read(frame: pd.DataFrame = FRAME, **more: str | float | tuple[str, ...]) -> Imported:
    return import_table(frame, **{"label": "ill", "name": "mine", "test": 0.0, **more})  # type: ignore[arg-type]


def test_numbers_are_standardised_and_text_becomes_one_column_a_category() -> None:
    found = read(client="site", drop=("zip",))
    assert found.class_names == ("no", "yes")
    assert found.client_names == ("north", "south")
    assert found.x.dtype == np.float32
    age = (FRAME["age"] - 35) / np.sqrt(((FRAME["age"] - 35) ** 2).mean())
    assert found.x[:, 0] == pytest.approx(age.to_numpy(), abs=1e-6)
    assert found.x[:, 1].tolist() == [1, -1, 1, -1, 1, -1]
    cities = [[1, 0, 0], [0, 1, 0], [1, 0, 0], [0, 0, 1], [0, 0, 1], [1, 0, 0]]
    assert found.x[:, 2:].tolist() == cities
    assert read(features=("zip",), categorical=("zip",)).x.shape == (6, 3)
    odd = read(FRAME.assign(age=3.7, zip=FRAME["zip"] * 1e300), features=("age", "zip")).x
    assert not odd[:, 0].any(), "a constant column becomes zeros"
    assert np.array_equal(np.argsort(odd[:, 1], kind="stable"), np.argsort(FRAME["zip"], kind="stable"))


def test_statistics_are_those_of_the_training_rows() -> None:
    found = read(features=("age",), test=0.34)
    assert len(found.x_test) == 2
    assert found.x.mean() == pytest.approx(0, abs=1e-6)
    assert found.x.std() == pytest.approx(1, abs=1e-6)
    # The step between neighbouring ages is the same number in both parts
    everything = np.sort(np.concatenate([found.x, found.x_test])[:, 0])
    assert np.diff(everything) == pytest.approx(np.full(5, everything[1] - everything[0]), rel=1e-5)


def test_csv_parquet_frame_and_columns_give_the_same_data_set(tmp_path: Path) -> None:
    frame = load_wine(as_frame=True).frame
    frame.to_csv(tmp_path / "wine.csv", index=False)
    frame.to_csv(tmp_path / "wine.tsv", index=False, sep="\t")
    frame.to_parquet(tmp_path / "wine.parquet")
    sources = [
        *(tmp_path / f"wine.{kind}" for kind in ("csv", "tsv", "parquet")),
        frame,
        pa.Table.from_pandas(frame),
        {name: frame[name].to_numpy() for name in frame},
    ]
    found = [import_table(one, label="target") for one in sources]
    assert all(np.array_equal(one.x, found[0].x) for one in found)
    assert found[0].x.shape == (142, 13)
    assert np.bincount(found[0].y_test).tolist() == [12, 14, 10]


REFUSED: dict[str, tuple[object, dict[str, str | tuple[str, ...]], str]] = {
    "no label": (FRAME, {"label": ""}, r"give the column of the classes .* age, smoker, city"),
    "a mistyped label": (FRAME, {"label": "il"}, "column of mine for label 'il'; nearest: ill"),
    "a missing number": (
        FRAME.replace({"age": 30.0}, np.nan),
        {},
        "'age' has 1 missing values, the first in row 2",
    ),
    "regression": (FRAME.assign(ill=FRAME["age"] / 7), {}, r"holds 1.428\d* in row 0, which is not a class"),
    "dates": (
        FRAME.assign(age=pd.Timestamp(0)),
        {},
        r"column 'age' holds values of type Timestamp.*drop=age",
    ),
    "names of rows": (
        pd.DataFrame({"id": [f"row {n}" for n in range(60)], "ill": np.arange(60) % 2}),
        {},
        r"60 different texts in 60 rows; leave it out \(drop=id\)",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_fault_is_refused_in_one_line_that_names_the_column_and_row(case: str) -> None:
    table, change, words = REFUSED[case]
    with pytest.raises(UsageError, match=words) as error:
        read(table, **change)  # type: ignore[arg-type]
    assert "\n" not in str(error.value)


def test_a_test_file_of_other_columns_types_or_labels_is_refused_by_its_column(tmp_path: Path) -> None:
    test = tmp_path / "test.parquet"
    parquet.write_table(pa.table({"age": ["old"], "ill": ["yes"]}), test)
    with pytest.raises(UsageError, match="column 'age' holds text, and numbers in the training part"):
        read(features=("age",), test=str(test))
    with pytest.raises(UsageError, match=r"column of .*test\.parquet for features 'zip'"):
        read(features=("age", "zip"), test=str(test))
    with pytest.raises(DataFileError, match=r"nowhere\.csv is missing"):
        read(features=("age",), test="nowhere.csv")
    (tmp_path / "test.csv").write_text("age,ill\n1,yes\n2,no\n3,new\n")
    with pytest.raises(UsageError, match="label 'new' in line 4"):
        read(features=("age",), test=str(tmp_path / "test.csv"))


@pytest.mark.parametrize(
    "tests",
    ["site,y,code,b,a\nn,z,8,30,1\n", "y;b;a;code;site\nz;30;1;8;n\n", "y,b,more,a,code\nz,30,5,1,8\n"],
    ids=["other order", "other separator", "one more and no clients"],
)
def test_a_second_table_has_its_features_by_their_names(tmp_path: Path, tests: str) -> None:
    """By their places, b would be read as a where somebody has saved the columns in another order. A new
    category becomes zeros.
    """
    (tmp_path / "train.csv").write_text("a,b,code,site,y\n1,10,7,n,x\n3,30,8,s,z\n")
    (tmp_path / "test.csv").write_text(f"{tests}{tests.splitlines()[1].replace('8', '9')}\n")
    ends = {"label": "y", "client": "site", "categorical": ("code",)}
    made = import_table(tmp_path / "train.csv", test=str(tmp_path / "test.csv"), **ends)
    assert made.x.tolist() == [[-1, -1, 1, 0], [1, 1, 0, 1]]
    assert made.x_test.tolist() == [[-1, 1, 0, 1], [-1, 1, 0, 0]]
    assert made.y_test.tolist() == [1, 1]
    assert ("not used" in " ".join(made.facts.notes)) == ("more" in tests)


# What is done about missing values: they are refused, their rows left out, or they are filled in.

TRAINING = "age,town,y\n1,Bonn,a\n,Ulm,b\n3,,a\n2,Bonn,b\n"
TEST = "age,town,y\n,Ulm,a\n5,,b\n"


@pytest.fixture
def two_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("t.csv").write_text(TRAINING)
    Path("u.csv").write_text(TEST)
    return tmp_path


def read_gaps(rule: str, more: str = "") -> Imported:
    return import_reference(f"csv:t.csv?label=y&test=u.csv{rule and '&missing='}{rule}{more}")


@pytest.mark.usefixtures("two_tables")
def test_rows_with_a_missing_value_are_left_out_in_both_parts() -> None:
    """Without town, the ages 1, 3 and 2 are left, whose standard deviation is √(2/3). With it, 1 and 2."""
    found, age = read_gaps("drop", "&drop=town"), math.sqrt(2 / 3)
    assert np.allclose(found.x[:, 0], [-1 / age, 1 / age, 0])
    assert np.allclose(found.x_test[:, 0], [3 / age])
    notes = [f"{name}.csv: rows with a missing value are not used (1)" for name in "tu"]
    assert [note for note in found.facts.notes if "missing" in note] == notes
    both = import_reference("csv:t.csv?label=y&missing=drop&test=0")
    assert np.allclose(both.x, [[-1, 1], [1, 1]])
    assert "rows with a missing value are not used (2)" in both.facts.notes[0]


@pytest.mark.usefixtures("two_tables")
def test_numbers_get_the_mean_of_the_training_rows_and_texts_a_category_of_their_own() -> None:
    """The mean of the ages 1, 3 and 2 is 0 after standardisation. Towns: Bonn, Ulm, missing."""
    found, age = read_gaps("mean"), math.sqrt(2 / 3)
    rows = [[-1 / age, 1, 0, 0], [0, 0, 1, 0], [1 / age, 0, 0, 1], [0, 1, 0, 0]]
    assert np.allclose(found.x, rows)
    assert np.allclose(found.x_test, [[0, 0, 1, 0], [3 / age, 0, 0, 1]])


@pytest.mark.usefixtures("two_tables")
def test_without_a_rule_all_columns_are_named_at_once_and_no_rule_invents_a_class() -> None:
    with pytest.raises(UsageError, match=r"column 'age' has 1 missing values.*column 'town' 1"):
        read_gaps("")
    Path("t.csv").write_text(TRAINING + "4,Ulm,\n")
    for rule in ("mean", "word"):
        with pytest.raises(UsageError, match="column 'y' has 1 missing values"):
            read_gaps(rule, "&drop=age")
    assert len(read_gaps("drop", "&drop=age").y) == 3
    with pytest.raises(UsageError, match="missing"):
        read_gaps("median")
    Path("t.csv").write_text("age,town,y\n1,,a\n,Ulm,b\n")
    with pytest.raises(UsageError, match="every row has a missing value"):
        read_gaps("drop")
