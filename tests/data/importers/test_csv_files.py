"""csv files as programs of other countries and habits write them, and where a fault is said to lie."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from raffed.data.importers.tables import import_table
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


@pytest.mark.parametrize(("mark", "named"), [(";", "semicolons"), ("\t", "tabs"), ("|", "bars")])
def test_columns_that_other_characters_separate_are_read_and_named(
    write: Write, mark: str, named: str
) -> None:
    path = write("age,city,y\n1.5,a b,x\n2.5,c,z\n".replace(",", mark))
    found = import_table(path, label="y", test=0.0)
    assert found.x.tolist() == [[-1, 1, 0], [1, 0, 1]]
    assert found.facts.notes == (f"{path}: its columns are separated by {named}",)


def test_a_comma_stays_the_separator_where_it_fits(write: Write) -> None:
    path = write('a,text,y\n1,"p;q",x\n2,"r;s",z\n')
    found = import_table(path, label="y", test=0.0)
    assert [one.name for one in found.facts.columns] == ["a", "text"]
    assert found.facts.notes == ()


@pytest.mark.parametrize(
    "content",
    ["a;b;y\n0,25;3;x\n-1,5;4;z\n0,25;3;x\n", 'a,b,y\n"0,25",3,x\n"-1,5",4,z\n"0,25",3,x\n'],
)
def test_decimal_commas_are_the_numbers_that_points_would_give(write: Write, content: str) -> None:
    found = import_table(write(content), label="y", test=0.0)
    frame = pd.DataFrame({"a": [0.25, -1.5, 0.25], "b": [3, 4, 3], "y": list("xzx")})
    assert np.array_equal(found.x, import_table(frame, label="y", test=0.0).x)


def test_commas_that_may_separate_thousands_are_refused_unless_the_column_holds_categories(
    write: Write,
) -> None:
    path = write("a;y\n1,100;x\n2,200;z\n1,100;x\n")
    assert "column 'a' may separate decimals or thousands, as in line 2" in refusal(path)
    assert import_table(path, label="y", test=0.0, categorical=("a",)).x.shape == (3, 2)


def test_text_of_a_typed_table_stays_text() -> None:
    frame = pd.DataFrame({"codes": ["1,2", "1,3", "1,2"], "y": ["x", "z", "x"]})
    assert import_table(frame, label="y", test=0.0).x.tolist() == [[1, 0], [0, 1], [1, 0]]


@pytest.mark.parametrize("letter", ["ü", "ï"])
def test_text_in_latin_1_is_refused_with_its_line_and_the_command_that_converts_it(
    write: Write, letter: str
) -> None:
    said = refusal(write(f"a,city,y\n1,Bonn,x\n2,Z{letter}rich,z\n".encode("latin-1")))
    assert f"is not UTF-8: line 3 holds the byte 0x{ord(letter):02X}, which is {letter!r}" in said
    assert "iconv -f WINDOWS-1252 -t UTF-8 t.csv" in said


def test_a_header_in_latin_1_and_a_file_in_utf_16_are_refused_by_their_encoding(write: Write) -> None:
    assert "not UTF-8: line 1" in refusal(write("größe,y\n1,x\n2,z\n".encode("latin-1")))
    assert "is UTF-16; save it as UTF-8" in refusal(write("a,y\n1,x\n".encode("utf-16")))


LINES = {
    "a missing number": ("a,y\n1,x\n\n,z\n", "line 4"),
    "a value too many": ("a,y\n1,x\n\n1,2,z\n", "line 4 has 3 values"),
    "a missing label": ("a,y\n1,x\n2,\n", "line 3"),
    "a blank label": ("a,y\n1,x\n2,' '\n3,z\n".replace("'", '"'), "1 missing values, the first in line 3"),
    "infinity": ("a,y\n1,x\ninf,z\n", "infinite in line 3"),
    "a fraction as a class": ("a,y\n1,1.0\n2,1.5\n", "holds 1.5 in line 3"),
    "a text of two lines before": ('a,t,y\n1,"p\nq",x\n,r,z\n', "line 4"),
    "a long number": ("a,y\n1,x\n9007199254740993,z\n", "line 3"),
}


@pytest.mark.parametrize("case", LINES)
def test_a_fault_of_a_csv_file_is_named_by_the_line_that_an_editor_shows(write: Write, case: str) -> None:
    content, words = LINES[case]
    assert words in refusal(write(content))


def test_a_label_that_only_the_test_file_has_is_named_by_its_line(write: Write, tmp_path: Path) -> None:
    (tmp_path / "test.csv").write_text("a,y\n1,x\n2,z\n3,new\n")
    assert "label 'new' in line 4" in refusal(write("a,y\n1,x\n2,z\n"), test=str(tmp_path / "test.csv"))


@pytest.mark.parametrize("number", ["9007199254740993", "123456789012345678901234"])
def test_numbers_longer_than_a_float_holds_are_refused_as_features_and_exact_as_categories_and_labels(
    write: Write, number: str
) -> None:
    other = number[:-1] + "9"
    path = write(f"id,a,y\n{number},1,x\n{other},2,z\n")
    said = refusal(path)
    assert "column 'id' holds whole numbers of 2^53 or more, the first in line 2" in said
    assert "drop=id or categorical=id" in said
    assert (
        import_table(path, label="y", test=0.0, categorical=("id",)).x[:, :2].tolist() == np.eye(2).tolist()
    )
    assert import_table(path, label="id", test=0.0, drop=("y",)).class_names == (number, other)


def test_long_numbers_of_other_tables_are_refused_too_and_2_to_53_minus_1_is_exact() -> None:
    frame = pd.DataFrame({"id": [2**53 - 1, 5], "y": ["x", "z"]})
    assert import_table(frame, label="y", test=0.0).facts.columns[0].mean == (2**53 - 1 + 5) / 2
    with pytest.raises(UsageError, match="whole numbers of 2\\^53 or more, the first in row 1"):
        import_table(frame.assign(id=[5, 2**53 + 1]), label="y", test=0.0)
    unsigned = frame.assign(y=np.array([2**64 - 1, 2**64 - 2], dtype=np.uint64))
    assert import_table(unsigned, label="y", test=0.0).class_names == (str(2**64 - 2), str(2**64 - 1))


@pytest.mark.parametrize("end", ["\r", "\r\n", "\n"])
def test_lines_may_end_as_on_any_system(write: Write, end: str) -> None:
    rows = ["a,b,y", "1,2,x", "3,4,z"]
    assert import_table(write(end.join(rows)), label="y", test=0.0).x.tolist() == [[-1, -1], [1, 1]]
    told = refusal(write(end.join([*rows, "5,6"])))
    assert "line 4 has 2 values" in told


def test_one_stray_carriage_return_is_a_fault_in_its_line(write: Write) -> None:
    assert "line 3 has 1 values" in refusal(write("a,b,y\n1,2,x\n3\r,4,z\n5,6,x\n"))


def test_a_fault_below_a_value_longer_than_python_reads_is_named_by_its_line(write: Write) -> None:
    assert "line 3 has 2 values" in refusal(write(f'a,b,y\n1,"{"x" * 200_000}",x\n1,2\n'))
