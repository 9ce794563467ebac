"""csv files as programs of other countries and habits write them: what a column is, where a fault lies."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from raffed.data.importers.imported import Imported
from raffed.data.importers.table_files import Table
from raffed.data.importers.tables import encoded_rows, import_table
from raffed.errors import UsageError

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


Read = Callable[..., Imported]


@pytest.fixture
def read(tmp_path: Path) -> Read:
    def made(rows: list[tuple[object, ...]], head: str, name: str = "t.csv", **more: object) -> Imported:
        with (tmp_path / name).open("w", newline="") as file:
            file.write(f"{head}\n")
            csv.writer(file, lineterminator="\n").writerows(rows)
        return import_table(tmp_path / name, **{"label": "y", "test": 0.0, **more})  # type: ignore[arg-type]

    return made


def said(found: Imported) -> str:
    return " ".join(found.facts.notes)


def test_what_names_something_keeps_its_letters_and_numbers_are_in_their_order(read: Read) -> None:
    wards = ["0012", "12", "0700", "700"]
    rows = [(n % 7 / 2, wards[n % 4], ["01", "1", "010", "10"][n % 4], f"{n % 3}.50") for n in range(80)]
    found = read(rows, "a,ward,y,code", client="ward", categorical=("code",))
    assert found.class_names == ("01", "1", "010", "10")
    assert found.client_names == ("0012", "12", "0700", "700")
    assert np.bincount(found.y).tolist() == [20] * 4
    assert found.facts.columns[1].categories == ("0.50", "1.50", "2.50")
    sites = [(n % 7 / 2, f"site {12 - n % 12}", n % 2) for n in range(48)]
    assert read(sites, "a,s,y", client="s").client_names == tuple(f"site {n}" for n in range(1, 13))


def test_the_words_for_missing_values_are_one_list_that_na_changes(read: Read) -> None:
    rows = [(n / 4, ["EU", "NA", "AP"][n % 3], ["None", "Insomnia", "?"][n % 3]) for n in range(9)]
    with pytest.raises(UsageError, match=r"'region' has 3 .*column 'y' 6; .*na=WORD,WORD says which words"):
        read(rows, "hours,region,y")
    assert read(rows, "hours,region,y", na=("-",)).class_names == ("?", "Insomnia", "None")
    with pytest.raises(UsageError, match="'y' has 3 missing values, the first in line 4"):
        read(rows, "hours,region,y", na=("?",))


def test_columns_of_parts_and_of_numbers_of_rows_are_no_features_and_it_is_told(read: Read) -> None:
    rows = [
        (
            n % 7 / 4,
            *(["test", "train"][n % 5 > 0], f"{['test', 'train'][n % 5 > 0]}_{n % 3}", n % 4),
            *(n + 7, 1000 + n * n, "new" if n % 5 == 0 else "old", n % 2),
        )
        for n in range(60)
    ]
    head = "a,fold,fold2,fold3,id,patient,kind,y"
    found = read(rows, head)
    assert (len(found.x), len(found.x_test)) == (48, 12)
    assert [column.name for column in found.facts.columns] == ["a", "patient", "kind"]
    assert said(found).count("is not used, because it names parts; features=... uses it") == 2
    assert "column 'id' is not used, because it numbers the rows; features=... uses it" in said(found)
    assert "column 'patient' has a value of its own in nearly every row" in said(found)
    assert "column 'kind' has a category in 12 test rows that no training row has" in said(found)
    assert read(rows, head, features=("a", "fold3")).x.shape == (60, 2)


def test_one_bad_value_among_numbers_and_a_label_that_is_a_quantity_are_refused(read: Read) -> None:
    rows: list[tuple[object, ...]] = [(f"\u2212{n % 6}.5", n % 2) for n in range(40)]
    assert read(rows, "a,y").x.shape == (40, 1), "a minus of typesetting is a minus"
    rows[7] = ("12.5x", 1)
    with pytest.raises(UsageError, match=r"column 'a' holds numbers, and '12\.5x' in line 9; correct it"):
        read(rows, "a,y")
    quantity = "column 'y' has 80 different values in 80 rows, so it is a quantity"
    with pytest.raises(UsageError, match=quantity):
        read([(n % 7, 1000 + 3 * n) for n in range(80)], "a,y")


def test_clients_and_categories_are_known_by_their_letters(write: Write, tmp_path: Path) -> None:
    """A column is numbers in one csv file and text in another one, because of one value."""
    test = tmp_path / "test.csv"
    test.write_text("y,site,zip\na,01,01\nb,1,1\nb,2,2\n")
    train = write("y,site,zip\na,01,01\nb,2,2\na,B1,B1\nb,01,01\n")
    found = import_table(train, label="y", client="site", categorical=("zip",), test=str(test))
    assert found.client_names == ("01", "2", "B1")
    assert found.test_clients.tolist() == [0, -1, 1]
    assert found.x_test.tolist() == [[1, 0, 0], [0, 0, 0], [0, 1, 0]]
    assert encoded_rows(test, list(found.facts.columns)).tolist() == found.x_test.tolist()


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
