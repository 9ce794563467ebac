"""Tables: a class column, perhaps a client column, and features encoded by the training rows alone; and csv
files as programs of other countries and habits write them: what a column is, where a fault lies.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import parquet
from sklearn.datasets import load_wine

from raffed.data.importers.imported import Imported
from raffed.data.importers.reference import import_reference
from raffed.data.importers.table_files import Table
from raffed.data.importers.tables import encoded_rows, import_table
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


def test_new_rows_miss_values_by_the_words_and_the_rule_of_the_data_set(tmp_path: Path) -> None:
    """The mean of 1 and 3 is 2, their standard deviation 1. Towns: None, which is a word, Ulm, missing."""
    path = tmp_path / "t.csv"
    path.write_text("age,town,y\n1,None,a\n-9,Ulm,b\n3,-9,a\n")
    found = import_table(path, label="y", na=("-9",), missing="mean", test=0.0)
    assert found.x.tolist() == [[-1, 1, 0, 0], [0, 0, 1, 0], [1, 0, 0, 1]]
    assert encoded_rows(path, found.facts).tolist() == found.x.tolist()
    alone = {"age": [np.nan], "town": [None]}
    assert encoded_rows(alone, found.facts).tolist() == [[0, 0, 0, 1]]
    word = import_table(path, label="y", na=("-9",), missing="word", drop=("age",), test=0.0).facts
    assert encoded_rows(alone, word).tolist() == [[0, 0, 1]]
    every = replace(import_table(path, label="y", na=(), test=0.0).facts, missing="drop")
    assert encoded_rows(path, every)[:, 1:].tolist() == [[0, 1, 0], [0, 0, 1], [1, 0, 0]]
    with pytest.raises(UsageError, match=r"column 'age' has 1 missing values.*column 'town' 1"):
        encoded_rows(alone, every)


FLOORS = pd.Series([1, 2, None, 1, 2, 1])


@pytest.mark.parametrize("rule", ["mean", "word"])
@pytest.mark.parametrize("kind", ["float64", "Int64", "category", "categories of integers", "decimals"])
def test_categories_that_are_numbers_are_the_same_text_with_and_without_a_gap(rule: str, kind: str) -> None:
    if kind == "categories of integers":
        floors = pd.Series(pd.Categorical.from_codes([0, 1, -1, 0, 1, 0], categories=[1, 2]))
    elif kind == "decimals":
        floors = FLOORS.map(lambda floor: Decimal(f"{floor:.1f}"), na_action="ignore").astype(object)
    else:
        floors = FLOORS.astype(kind)
    found = read(FRAME.assign(floor=floors), features=("floor",), categorical=("floor",), missing=rule)
    assert found.facts.columns[0].categories == ("1", "2", "missing")
    assert np.argmax(found.x, axis=1).tolist() == [0, 1, 2, 0, 1, 0]
    for new in ([1, 2], [1.0, 2.0], ["1", "2"], pd.array([1, 2], "Int64"), pd.Categorical([1, 2])):
        rows = pd.DataFrame({"floor": new})
        assert encoded_rows(rows, found.facts).tolist() == [[1, 0, 0], [0, 1, 0]]


def test_a_number_is_the_same_category_whatever_numbers_stand_beside_it() -> None:
    whole, half = [1.0, 2.0, 1.0, 2.0, 1.0, 2.0], [1.0, 2.5, 1.0, 2.0**53, 1.0, 2.5]
    for floors, texts in ((whole, ("1", "2")), (half, ("1", "2.5", "9007199254740992.0"))):
        found = read(FRAME.assign(floor=floors), features=("floor",), categorical=("floor",))
        assert found.facts.columns[0].categories == texts


Write = Callable[[str | bytes], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def written(content: str | bytes) -> Path:
        path = tmp_path / "t.csv"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return written


def refusal(path: Path, **more: str | tuple[str, ...]) -> str:
    with pytest.raises(UsageError) as error:
        import_table(path, **{"label": "y", "test": 0.0, **more})  # type: ignore[arg-type]
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.mark.parametrize(("mark", "notes"), [("\t", ("tabs",)), (",", ())])
def test_other_separators_are_read_and_named(write: Write, mark: str, notes: tuple[str, ...]) -> None:
    path = write("age,city,y\n1.5,a b,x\n2.5,c,z\n".replace(",", mark))
    found = import_table(path, label="y", test=0.0)
    assert found.x.tolist() == [[-1, 1, 0], [1, 0, 1]]
    assert found.facts.notes == tuple(f"{path}: its columns are separated by {name}" for name in notes)


@pytest.mark.parametrize(
    "content", ["a;b;y\n0,25;3;x\n-1,5;4;z\n0,25;3;x\n", 'a,b,y\n"0,25",3,x\n"-1,5",4,z\n"0,25",3,x\n']
)
def test_decimal_commas_are_the_numbers_that_points_would_give(write: Write, content: str) -> None:
    found = import_table(write(content), label="y", test=0.0)
    frame = pd.DataFrame({"a": [0.25, -1.5, 0.25], "b": [3, 4, 3], "y": list("xzx")})
    assert np.array_equal(found.x, import_table(frame, label="y", test=0.0).x)


def test_commas_that_may_separate_thousands_are_refused_but_for_categories(write: Write) -> None:
    path = write("a;y\n1,100;x\n2,200;z\n1,100;x\n")
    assert "column 'a' may separate decimals or thousands, as in line 2" in refusal(path)
    assert import_table(path, label="y", test=0.0, categorical=("a",)).x.shape == (3, 2)


def test_text_in_another_encoding_is_refused_with_the_converting_command(write: Write) -> None:
    said = refusal(write("a,city,y\n1,Bonn,x\n2,Zürich,z\n".encode("latin-1")))
    assert "is not UTF-8: line 3 holds the byte 0xFC, which is 'ü'" in said
    assert "is UTF-16; save it as UTF-8" in refusal(write("a,y\n1,x\n".encode("utf-16")))
    assert "iconv -f WINDOWS-1252 -t UTF-8 t.csv" in said


LINES = {
    "a value too many": ("a,y\n1,x\n\n1,2,z\n", "line 4 has 3 values"),
    "a blank label": ("a,y\n1,x\n2,' '\n3,z\n".replace("'", '"'), "1 missing values, the first in line 3"),
    "a text of two lines before": ('a,t,y\n1,"p\nq",x\n,r,z\n', "line 4"),
    "a stray carriage return": ("a,b,y\n1,2,x\n3\r,4,z\n5,6,x\n", "line 3 has 1 values"),
}


@pytest.mark.parametrize("case", LINES)
def test_a_fault_of_a_csv_file_is_named_by_the_line_that_an_editor_shows(write: Write, case: str) -> None:
    content, words = LINES[case]
    assert words in refusal(write(content))


def test_numbers_longer_than_a_float_holds_are_exact_or_refused(write: Write) -> None:
    number, other = "9007199254740993", "9007199254740999"
    path = write(f"id,a,y\n{number},1,x\n{other},2,z\n")
    said = refusal(path)
    assert "column 'id' holds whole numbers of 2^53 or more, the first in line 2" in said
    assert "drop=id or categorical=id" in said
    encoded = import_table(path, label="y", test=0.0, categorical=("id",)).x[:, :2]
    assert encoded.tolist() == np.eye(2).tolist()
    assert import_table(path, label="id", test=0.0, drop=("y",)).class_names == (number, other)
    frame = pd.DataFrame({"id": [2**53 - 1, 5], "y": ["x", "z"]})
    assert import_table(frame, label="y", test=0.0).facts.columns[0].mean == (2**53 - 1 + 5) / 2


RowsRead = Callable[..., Imported]


@pytest.fixture
def rows_read(tmp_path: Path) -> RowsRead:
    def made(rows: list[tuple[object, ...]], head: str, name: str = "t.csv", **more: object) -> Imported:
        with (tmp_path / name).open("w", newline="") as file:
            file.write(f"{head}\n")
            csv.writer(file, lineterminator="\n").writerows(rows)
        return import_table(tmp_path / name, **{"label": "y", "test": 0.0, **more})  # type: ignore[arg-type]

    return made


def said(found: Imported) -> str:
    return " ".join(found.facts.notes)


def test_what_names_something_keeps_its_letters_and_numbers_are_in_their_order(rows_read: RowsRead) -> None:
    wards = ["0012", "12", "0700", "700"]
    rows = [(n % 7 / 2, wards[n % 4], ["01", "1", "010", "10"][n % 4], f"{n % 3}.50") for n in range(80)]
    found = rows_read(rows, "a,ward,y,code", client="ward", categorical=("code",))
    assert found.class_names == ("01", "1", "010", "10")
    assert found.client_names == ("0012", "12", "0700", "700")
    assert np.bincount(found.y).tolist() == [20] * 4
    assert found.facts.columns[1].categories == ("0.50", "1.50", "2.50")
    sites = [(n % 7 / 2, f"site {12 - n % 12}", n % 2) for n in range(48)]
    assert rows_read(sites, "a,s,y", client="s").client_names == tuple(f"site {n}" for n in range(1, 13))


def test_the_words_for_missing_values_are_one_list_that_na_changes(rows_read: RowsRead) -> None:
    rows = [(n / 4, ["EU", "NA", "AP"][n % 3], ["None", "Insomnia", "?"][n % 3]) for n in range(9)]
    with pytest.raises(UsageError, match=r"'region' has 3 .*column 'y' 6; .*na=WORD,WORD says which words"):
        rows_read(rows, "hours,region,y")
    assert rows_read(rows, "hours,region,y", na=("-",)).class_names == ("?", "Insomnia", "None")
    with pytest.raises(UsageError, match="'y' has 3 missing values, the first in line 4"):
        rows_read(rows, "hours,region,y", na=("?",))


def test_columns_of_parts_and_of_numbers_of_rows_are_no_features_and_it_is_told(rows_read: RowsRead) -> None:
    rows = [
        (
            n % 7 / 4,
            *(["test", "train"][n % 5 > 0], f"{['test', 'train'][n % 5 > 0]}_{n % 3}", n % 4),
            *(n + 7, 1000 + n * n, "new" if n % 5 == 0 else "old", n % 2),
        )
        for n in range(60)
    ]
    head = "a,fold,fold2,fold3,id,patient,kind,y"
    found = rows_read(rows, head)
    assert (len(found.x), len(found.x_test)) == (48, 12)
    assert [column.name for column in found.facts.columns] == ["a", "patient", "kind"]
    assert said(found).count("is not used, because it names parts; features=... uses it") == 2
    assert "column 'id' is not used, because it numbers the rows; features=... uses it" in said(found)
    assert "column 'patient' has a value of its own in nearly every row" in said(found)
    assert "column 'kind' has a category in 12 test rows that no training row has" in said(found)
    assert rows_read(rows, head, features=("a", "fold3")).x.shape == (60, 2)


def test_one_bad_value_among_numbers_and_a_label_that_is_a_quantity_are_refused(rows_read: RowsRead) -> None:
    rows: list[tuple[object, ...]] = [(f"\u2212{n % 6}.5", n % 2) for n in range(40)]
    assert rows_read(rows, "a,y").x.shape == (40, 1), "a minus of typesetting is a minus"
    rows[7] = ("12.5x", 1)
    with pytest.raises(UsageError, match=r"column 'a' holds numbers, and '12\.5x' in line 9; correct it"):
        rows_read(rows, "a,y")
    quantity = "column 'y' has 80 different values in 80 rows, so it is a quantity"
    with pytest.raises(UsageError, match=quantity):
        rows_read([(n % 7, 1000 + 3 * n) for n in range(80)], "a,y")


def test_clients_and_categories_are_known_by_their_letters(write: Write, tmp_path: Path) -> None:
    """A column is numbers in one csv file and text in another one, because of one value."""
    test = tmp_path / "test.csv"
    test.write_text("y,site,zip\na,01,01\nb,1,1\nb,2,2\n")
    train = write("y,site,zip\na,01,01\nb,2,2\na,B1,B1\nb,01,01\n")
    found = import_table(train, label="y", client="site", categorical=("zip",), test=str(test))
    assert found.client_names == ("01", "2", "B1")
    assert found.test_clients.tolist() == [0, -1, 1]
    assert found.x_test.tolist() == [[1, 0, 0], [0, 0, 0], [0, 1, 0]]
    assert encoded_rows(test, found.facts).tolist() == found.x_test.tolist()


@pytest.mark.parametrize("kind", ["csv", "read again", "parquet"])
def test_the_index_that_pandas_writes_is_no_feature_unless_it_is_named(tmp_path: Path, kind: str) -> None:
    """Where the rows are sorted by class, their numbers would give the class away."""
    frame = pd.DataFrame({"a": [1.0, 2.0, 5.0, 3.0], "y": list("aabb")}, index=[0, 1, 3, 2])
    path = tmp_path / ("t.parquet" if kind == "parquet" else "t.csv")
    if kind == "parquet":
        frame.to_parquet(path)
    else:
        frame.to_csv(path)
        if kind == "read again":
            pd.read_csv(path).to_csv(path, index=False)
            named = import_table(path, label="y", features=("Unnamed: 0", "a"), test=0.0)
            assert named.x.shape == (4, 2)
    found = import_table(path, label="y", test=0.0)
    assert [one.name for one in found.facts.columns] == ["a"]
    told = "has no name" if kind == "csv" else "numbers the rows"
    assert any(f"not used, because it {told}" in one for one in found.facts.notes)


def test_a_column_of_parts_with_a_name_that_is_no_part_is_refused_unless_dropped(write: Write) -> None:
    path = write("a,split,y\n1,train,a\n2,test,b\n3,train,b\n4,unlabelled,b\n")
    assert "column 'split' names parts, and 'unlabelled', which is none" in refusal(path, test=0.2)
    assert import_table(path, label="y", drop=("split",), test=0.0).x.shape == (4, 1)


@pytest.mark.parametrize("word", ["7", "-0", "1e5", "1e400", ".5", "9007199254740993"])
def test_what_arrow_reads_is_the_number_that_python_reads(word: str) -> None:
    numbers, whole = Table(pd.DataFrame({"a": ["2.5", word]}), "t", typed=False)._numbers("a")
    assert numbers.tolist() == [2.5, float(word)]
    assert whole.tolist() == [False, word.lstrip("+-").isdigit()]
