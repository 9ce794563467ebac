"""What a table says first: how many differences have the printed sign, in which order its rows are, and how
many levels agree.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from raffed.analysis.item_tables import item_markdown
from raffed.analysis.loading import load_runs
from raffed.analysis.reproduction.differences_first import difference_matrix, first_sentence
from raffed.analysis.reproduction.item_runs import Reproduction, run_folders
from raffed.analysis.runs.load import Runs
from raffed.analysis.sections import paper_section

from tests.analysis.written_item import written_item

WriteRun = Callable[..., Path]
PRINTED = {"FedAvg": 50.0, "MAP": 54.0, "MOON": 53.0, "FedRS": 48.0, "FedProx": 50.5}
OURS = {  # FedProx is printed within the margin of FedAvg
    "FedAvg": [0.500, 0.510, 0.520],
    "MAP": [0.530, 0.541, 0.549],  # gains 3, 3.1, 2.9
    "MOON": [0.480, 0.489, 0.501],  # gains −2, −2.1, −1.9
    "FedRS": [0.500, 0.500, 0.525],  # gains 0, −1, 0.5
    "FedProx": [0.505, 0.515, 0.526],
}


@pytest.fixture
def table(tmp_path: Path, write_run: WriteRun) -> Callable[..., tuple[Reproduction, Runs]]:
    def write(
        ours: Mapping[str, Sequence[float]] = OURS, columns: int = 1, **about: Any
    ) -> tuple[Reproduction, Runs]:
        names = {
            row: [
                write_run(f"{row}-{seed}", [value], method=row.lower(), seed=seed).name
                for seed, value in enumerate(values)
            ]
            for row, values in ours.items()
        }
        cells = [
            {"row": row, "column": f"split {number}", "printed": {"value": printed}, "runs": names[row]}
            for number in range(1, columns + 1)
            for row, printed in PRINTED.items()
        ]
        item = written_item(tmp_path, cells, **about)
        return item, load_runs(run_folders(item))

    return write


SIGNS = (
    "Of 3 printed differences to FedAvg that are larger than 1: 1 with the same sign here, 1 with the other "
    "sign, 1 not separated from none."
)


def test_the_sentence_counts_signs_orders_and_levels(table: Any) -> None:
    """In print FedRS, FedAvg, FedProx, MOON, MAP; here MOON 49, FedRS 50.8, FedAvg 51, FedProx 51.5, MAP 54.

    Σ d² = 1 + 1 + 1 + 9 + 0 = 12, so the correlation is 1 − 6 · 12 / (5 · 24) = 0.4.
    """
    said = first_sentence(*table())
    correlation = "The rank correlation of the printed order and ours is 0.40 in split 1."
    assert said.startswith(f"{SIGNS} {correlation} ")
    assert said.endswith("0 of 5 agree; FedAvg in their place: 0 of 5.")


def test_many_columns_are_summarised(table: Any) -> None:
    said = first_sentence(*table(columns=5))
    assert "is 0.40 to 0.40 in 5 columns, with the median 0.40." in said


def test_the_differences_stand_before_the_levels_with_the_printed_ones(table: Any) -> None:
    """The gains 3, 3.1 and 2.9 have the interval 3 ± 4.303 · 0.1 / √3 = 0.25."""
    item, runs = table()
    matrix = difference_matrix(item, runs)
    assert matrix is not None
    assert list(matrix.rows[0]) == ["MAP", "+3.00 ± 0.25 / +4.00"]
    assert list(matrix.rows[-1]) == ["Rank correlation with the printed order", "0.40"]
    for text in (item_markdown(item, runs), str(paper_section(item, runs))):
        first, differences = text.index("Of 3 printed differences"), text.index("+3.00 ± 0.25 / +4.00")
        assert first < differences < text.index("54.00")


def test_a_proxy_says_signs_and_order_and_no_level_and_smoke_says_nothing(table: Any) -> None:
    item, runs = table(scale="proxy")
    assert first_sentence(item, runs) == (
        f"{SIGNS} The rank correlation of the printed order and ours is 0.40 in split 1."
    )
    assert difference_matrix(item, runs) is None
    smoke = item._replace(about={**item.about, "scale": "smoke"})
    assert first_sentence(smoke, runs) == ""


def test_one_seed_has_too_few_of_them_for_any_sign(table: Any) -> None:
    said = first_sentence(*table({row: values[:1] for row, values in OURS.items()}))
    assert said.startswith("Of 3 printed differences to FedAvg that are larger than 1: 3 with too few seeds.")
    assert said.endswith("0 of 5 agree; FedAvg in their place: 0 of 5.")


def test_a_row_that_lost_runs_has_no_rank(table: Any) -> None:
    """Without MOON the order here is that of the print."""
    item, runs = table(left_out=["MOON, split 1: diverged: seed 3: a value is not finite"])
    assert "is 1.00 in split 1" in first_sentence(item, runs)
