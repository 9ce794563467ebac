"""Tables: a class column, perhaps a client column, and features encoded by the training rows alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import parquet
from sklearn.datasets import load_breast_cancer, load_wine

from raffed.data.importers.imported import Imported
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


def test_integers_may_be_declared_categories() -> None:
    assert read(features=("zip",), categorical=("zip",)).x.shape == (6, 3)
    assert read(features=("zip",)).x.shape == (6, 1)


def test_statistics_are_those_of_the_training_rows() -> None:
    found = read(features=("age",), test=0.34)
    assert len(found.x_test) == 2
    assert found.x.mean() == pytest.approx(0, abs=1e-6)
    assert found.x.std() == pytest.approx(1, abs=1e-6)
    # The step between neighbouring ages is the same number in both parts
    everything = np.sort(np.concatenate([found.x, found.x_test])[:, 0])
    assert np.diff(everything) == pytest.approx(np.full(5, everything[1] - everything[0]), rel=1e-5)


def test_a_second_file_holds_the_test_rows_and_its_new_categories_become_zeros(tmp_path: Path) -> None:
    train, test = tmp_path / "train.csv", tmp_path / "test.csv"
    FRAME.to_csv(train, index=False)
    FRAME.assign(city="Rom").to_csv(test, index=False)
    found = import_table(train, label="ill", features=("age", "city"), test=str(test))
    assert np.array_equal(found.x_test[:, 0], found.x[:, 0])
    assert not found.x_test[:, 1:].any()
    assert found.y_test.tolist() == found.y.tolist()


def test_a_constant_column_becomes_zeros_and_huge_numbers_keep_their_order() -> None:
    found = read(FRAME.assign(age=3.7, zip=FRAME["zip"] * 1e300), features=("age", "zip"))
    assert not found.x[:, 0].any()
    assert np.array_equal(np.argsort(found.x[:, 1], kind="stable"), np.argsort(FRAME["zip"], kind="stable"))


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


def test_breast_cancer_of_scikit_learn_is_read_as_it_is() -> None:
    data = load_breast_cancer(as_frame=True)
    found = import_table(data.frame, label="target")
    # A fifth of the 212 malignant and the 357 benign samples, each rounded
    assert np.bincount(found.y_test).tolist() == [42, 71]
    assert found.x.shape == (569 - 42 - 71, 30)


REFUSED: dict[str, tuple[pd.DataFrame, dict[str, str | tuple[str, ...]], str]] = {
    "no label": (FRAME, {"label": ""}, r"give the column of the classes .* age, smoker, city"),
    "a mistyped label": (FRAME, {"label": "il"}, "column of mine for label 'il'; nearest: ill"),
    "a mistyped client": (FRAME, {"client": "sites"}, "for client 'sites'; nearest: site"),
    "a mistyped feature": (FRAME, {"features": ("agee",)}, "for features 'agee'; nearest: age"),
    "the label as a feature": (FRAME, {"features": ("ill",)}, "column 'ill' is a feature and also"),
    "no features left": (FRAME[["ill"]], {}, "no column is left for the features"),
    "a missing number": (
        FRAME.replace({"age": 30.0}, np.nan),
        {},
        "column 'age' has 1 missing values, the first in row 2",
    ),
    "a missing text": (
        FRAME.replace({"city": "Ulm"}, None),
        {},
        "column 'city' has 2 missing values, the first in row 3",
    ),
    "a missing label": (
        FRAME.replace({"ill": "yes"}, None),
        {},
        "column 'ill' has 3 missing values, the first in row 0",
    ),
    "a missing client": (
        FRAME.replace({"site": "south"}, None),
        {"client": "site"},
        "column 'site' has 3 missing",
    ),
    "infinity": (FRAME.replace({"age": 30.0}, np.inf), {}, "column 'age' is infinite in row 2"),
    "regression": (FRAME.assign(ill=FRAME["age"] / 7), {}, r"holds 1.428\d* in row 0, which is not a class"),
    "dates": (
        FRAME.assign(age=pd.Timestamp(0)),
        {},
        r"column 'age' holds values of type Timestamp.*drop=age",
    ),
    "lists": (FRAME.assign(age=[[1]] * 6), {}, "column 'age' holds values of type list"),
    "one class": (FRAME.assign(ill="no"), {}, "the one class 'no'"),
    "two columns of one name": (FRAME.rename(columns={"zip": "age"}), {}, "age"),
    "no rows": (FRAME.iloc[:0], {}, "mine has no rows"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_fault_is_refused_in_one_line_that_names_the_column_and_row(case: str) -> None:
    frame, change, words = REFUSED[case]
    with pytest.raises(UsageError, match=words) as error:
        read(frame, **change)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("missing", [None, float("nan")])
def test_a_missing_value_among_texts_of_a_list_is_no_category(missing: float | None) -> None:
    columns = {"city": ["Ulm", missing, "Bonn", "Ulm"], "y": [0, 1, 0, 1]}
    with pytest.raises(UsageError, match="column 'city' has 1 missing values, the first in row 1"):
        import_table(columns, label="y", test=0.0)


def test_a_masked_value_of_a_column_is_refused() -> None:
    columns = {"age": np.ma.masked_equal([20, -999, 30, 40], -999), "y": [0, 1, 0, 1]}
    with pytest.raises(UsageError, match="column 'age' has 1 masked values, the first in sample 1"):
        import_table(columns, label="y", test=0.0)


def test_a_column_that_names_rows_is_refused_as_a_category() -> None:
    frame = pd.DataFrame({"id": [f"row {n}" for n in range(60)], "y": np.arange(60) % 2})
    with pytest.raises(UsageError, match=r"60 different texts in 60 rows; leave it out \(drop=id\)"):
        import_table(frame, label="y", test=0.0)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("absent.csv", None, "absent.csv is missing"),
        ("empty.csv", b"", "empty.csv cannot be read as a table"),
        ("ragged.csv", b"a,y\n1,0\n1,2,3\n", "ragged.csv: line 3 has 3 values, and the header names 2"),
        ("text.parquet", b"a,y\n1,0\n", "text.parquet cannot be read as a table"),
        ("bytes.csv", b"a,y\n\xff\xfe\x00,0\n1,1\n", "bytes.csv is not UTF-8: line 2 holds the byte 0xFF"),
        ("words.csv", b"a,y\n1,0\n", "the one class|needs at least two"),
    ],
)
def test_a_file_that_cannot_be_read_is_named(
    tmp_path: Path, name: str, content: bytes | None, words: str
) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(UsageError, match=words) as error:
        import_table(tmp_path / name, label="y", test=0.0)
    assert "\n" not in str(error.value)


def test_a_test_file_of_other_types_is_refused_by_its_column(tmp_path: Path) -> None:
    test = tmp_path / "test.parquet"
    parquet.write_table(pa.table({"age": ["old"], "ill": ["yes"]}), test)
    with pytest.raises(UsageError, match="column 'age' holds text, and numbers in the training part"):
        read(features=("age",), test=str(test))
    with pytest.raises(DataFileError, match=r"nowhere\.csv is missing"):
        read(features=("age",), test="nowhere.csv")


TRAIN = "a,b,code,site,y\n1,10,7,n,x\n3,30,8,s,z\n"


@pytest.mark.parametrize(
    "tests",
    [
        "a,b,code,site,y\n1,30,8,n,z\n",
        "site,y,code,b,a\nn,z,8,30,1\n",
        "y;b;a;code;site\nz;30;1;8;n\n",
        "y,b,more,a,code\nz,30,5,1,8\n",
    ],
    ids=["same", "other order", "other separator", "one more and no clients"],
)
def test_a_second_table_has_its_features_by_their_names(tmp_path: Path, tests: str) -> None:
    """By their places, b would be read as a where somebody has saved the columns in another order."""
    (tmp_path / "train.csv").write_text(TRAIN)
    (tmp_path / "test.csv").write_text(tests)
    made = import_table(
        tmp_path / "train.csv",
        label="y",
        client="site",
        categorical=("code",),
        test=str(tmp_path / "test.csv"),
    )
    assert made.x.tolist() == [[-1, -1, 1, 0], [1, 1, 0, 1]]
    assert made.x_test.tolist() == [[-1, 1, 0, 1]]
    assert made.y_test.tolist() == [1]
    assert ("not used" in " ".join(made.facts.notes)) == ("more" in tests)


def test_a_second_table_without_a_feature_or_with_a_dropped_column_less(tmp_path: Path) -> None:
    (tmp_path / "train.csv").write_text(TRAIN)
    test = tmp_path / "test.csv"
    test.write_text("a,site,y\n1,n,z\n")
    with pytest.raises(UsageError, match=r"column of .*test\.csv for features 'b'"):
        import_table(tmp_path / "train.csv", label="y", client="site", test=str(test))
    made = import_table(tmp_path / "train.csv", label="y", client="site", drop=("b", "code"), test=str(test))
    assert made.x_test.tolist() == [[-1]]
