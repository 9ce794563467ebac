"""What tables of strangers mean: letters are kept, one parser reads all, and what is no feature is said."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from raffed.data.importers.imported import Imported
from raffed.data.importers.tables import import_table
from raffed.errors import UsageError

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


@pytest.mark.more
@pytest.mark.parametrize("count", [300, 30_000], ids=["small", "of several blocks"])
@pytest.mark.parametrize("first", [True, False])
def test_line_breaks_in_quotes_are_read_as_pythons_csv_module_reads_them(
    read: Read, tmp_path: Path, count: int, first: bool
) -> None:
    draws = np.random.default_rng(11)
    texts = ["seen twice\nlast in May, by phone", "seen once"]
    lines = [
        (["Ulm", "Jena", "Bonn"][draws.integers(3)], texts[int(draws.random() < 0.3)], "AB"[n % 2])
        for n in range(count)
    ]
    head = "y,remark,town" if first else "town,remark,y"
    found = read([line[::-1] if first else line for line in lines], head)
    with (tmp_path / "t.csv").open(newline="") as file:
        wanted = list(csv.DictReader(file))
    assert len(found.x) == len(wanted) == count
    assert found.y.tolist() == [int(row["y"] == "B") for row in wanted]
    town = next(one for one in found.facts.columns if one.name == "town")
    assert town.categories == ("Bonn", "Jena", "Ulm")
    assert found.x[:, 2 if first else 0].tolist() == [float(row["town"] == "Bonn") for row in wanted] or first


def test_blanks_behind_commas_and_in_the_header_do_not_count(read: Read, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text('age, work, y\n1, "a, b", <=50K\n2, c , >50K\n3, c, >50K\n')
    found = import_table(tmp_path / "t.csv", label="y", test=0.0)
    assert found.class_names == ("<=50K", ">50K")
    assert found.facts.columns[1].categories == ("a, b", "c")
    (tmp_path / "t.csv").write_text("age, work, y\n1, a, no\n2, ?, yes\n, c, yes\n")
    with pytest.raises(UsageError, match=r"'age' has 1 missing values, the first in line 4, column 'work' 1"):
        import_table(tmp_path / "t.csv", label="y", test=0.0)


def test_separators_at_the_ends_of_lines_are_no_column(read: Read, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a,b,y,\n1,2,x,\n3,5,z,\n")
    found = import_table(tmp_path / "t.csv", label="y", test=0.0)
    assert found.x.tolist() == [[-1, -1], [1, 1]]
    assert "column '' is not used, because it has no name" in said(found)


def test_the_words_for_missing_values_are_one_list_that_na_changes(read: Read) -> None:
    rows = [(n / 4, ["EU", "NA", "AP"][n % 3], ["None", "Insomnia", "?"][n % 3]) for n in range(9)]
    with pytest.raises(UsageError, match=r"'region' has 3 .*column 'y' 6; .*na=WORD,WORD says which words"):
        read(rows, "hours,region,y")
    assert read(rows, "hours,region,y", na=("-",)).class_names == ("?", "Insomnia", "None")
    with pytest.raises(UsageError, match="'y' has 3 missing values, the first in line 4"):
        read(rows, "hours,region,y", na=("?",))


def test_a_second_column_of_parts_and_numbers_of_folds_are_no_features(read: Read) -> None:
    rows = [
        (n % 7 / 4, ["test", "train"][n % 5 > 0], f"{['test', 'train'][n % 5 > 0]}_{n % 3}", n % 4, n % 2)
        for n in range(60)
    ]
    found = read(rows, "a,fold,fold2,fold3,y")
    assert (len(found.x), len(found.x_test)) == (48, 12)
    assert [column.name for column in found.facts.columns] == ["a"]
    assert said(found).count("is not used, because it names parts; features=... uses it") == 2
    assert read(rows, "a,fold,fold2,fold3,y", features=("a", "fold3")).x.shape == (60, 2)


def test_a_category_of_test_rows_that_a_column_divides_off_is_told(read: Read) -> None:
    rows = [(["u", "v"][n % 2] if n < 30 else "w", "train" if n < 30 else "test", n % 2) for n in range(40)]
    assert "column 'a' has a category in 10 test rows that no training row has" in said(
        read(rows, "a,part,y")
    )


def test_numbers_of_rows_are_no_feature_and_other_values_of_their_own_are_told(read: Read) -> None:
    rows = [(n + 7, 1000 + n * n, n % 5 / 4, n % 2) for n in range(40)]
    found = read(rows, "id,patient,a,y")
    assert [column.name for column in found.facts.columns] == ["patient", "a"]
    assert "column 'id' is not used, because it numbers the rows; features=... uses it" in said(found)
    assert "column 'patient' has a value of its own in nearly every row" in said(found)


@pytest.mark.parametrize(
    "way",
    [
        lambda v: f"{v}%",
        lambda v: f"${v}",
        lambda v: f"{v}\u00a0{100 + v}",
        lambda v: f" {v} months",
        lambda v: f"1.{v:03d},50",
        lambda v: f"<{v}" if v < 15 else f"{v}",
        lambda v: "-" if v % 5 < 3 else f"{v}",
    ],
    ids=["percent", "dollar", "space", "month", "german", "less", "gaps"],
)
def test_numbers_in_other_dress_are_named_in_a_note(read: Read, way: Callable[[int], str]) -> None:
    rows = [(way(10 + n % 10), "low" if n % 10 < 5 else "high") for n in range(100)]
    told = said(read(rows, "amount,y"))
    assert re.search(r"'amount' is read as text with \d+ categories, because .* is not a number", told)
    assert "categorical=amount" in told
    assert said(read(rows, "amount,y", categorical=("amount",))) == ""


def test_a_minus_of_typesetting_is_a_minus(read: Read) -> None:
    found = read([(f"\u2212{n % 5}", n % 2) for n in range(10)], "a,y")
    assert found.x[:, 0] == pytest.approx((2 - np.arange(10) % 5) / np.sqrt(2), abs=1e-6)


def test_one_bad_value_among_numbers_is_refused_with_its_line(read: Read) -> None:
    rows: list[tuple[object, ...]] = [(f"{n % 6}.5", n % 2) for n in range(40)]
    rows[7] = ("12.5x", 1)
    with pytest.raises(UsageError, match=r"column 'a' holds numbers, and '12\.5x' in line 9; correct it"):
        read(rows, "a,y")


def test_a_label_with_nearly_as_many_values_as_rows_is_a_quantity(read: Read) -> None:
    with pytest.raises(
        UsageError, match="column 'y' has 80 different values in 80 rows, so it is a quantity"
    ):
        read([(n % 7, 1000 + 3 * n) for n in range(80)], "a,y")
