"""Say why a cell of a table has no number.

It has no run, its runs may not be compared with the others, or they do not have the measure.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ..runs.files import JsonObject
from ..runs.load import Runs
from .cell_values import ROUNDS, SIGNS, values_of
from .item_runs import Place, Reproduction, cell_at, cell_names, loaded_names, measure_of, parts_of, stray_of

NOT_RUN = "not run"
NOT_COMPARABLE = "not comparable"
NOT_MEASURED = "not measured"
DIVERGED = "diverged"
ORDER = (NOT_COMPARABLE, DIVERGED, NOT_RUN, NOT_MEASURED)  # what is said first where several are true


class Absence(NamedTuple):
    """Why there is no number.

    Attributes:
        word: the verdict, one of ORDER; empty if there is a number.
        why: the reason in words; empty if none is known.
    """

    word: str = ""
    why: str = ""


def absence(item: Reproduction, place: Place, runs: Runs) -> Absence:
    """Return why a cell has no number, also for a cell of a column of averages."""
    if values_of(item, place, runs):
        return Absence()
    parts = parts_of(item, place)
    if parts == [place]:
        return _of_cell(item, place, runs)
    absent = first_said([absence(item, part, runs) for part in parts])
    return absent if absent.word else Absence(NOT_RUN, "its columns share no seed")


def first_said(absences: Sequence[Absence]) -> Absence:
    """Return the absence that is said first of several; an empty one if nothing is absent."""
    absent = [reason for reason in absences if reason.word]
    return min(absent, key=lambda reason: ORDER.index(reason.word)) if absent else Absence()


def _of_cell(item: Reproduction, place: Place, runs: Runs) -> Absence:
    cell = cell_at(item, place)
    if cell is None:
        return Absence(NOT_RUN)
    if not loaded_names(item, cell["runs"], runs):
        if lost := lost_runs(item, place):
            return Absence(DIVERGED, _lost(lost, len(lost)))
        return Absence(NOT_RUN, planned_reason(item, place))
    if not cell_names(item, cell, runs):
        return Absence(NOT_COMPARABLE, stray_of(item, cell, runs))
    measure, baseline = measure_of(item, cell), item.about["baseline"]
    if (measure in ROUNDS or measure in SIGNS) and place[0] != baseline:
        against = absence(item, (baseline, place[1]), runs)
        if against.word:
            return Absence(NOT_MEASURED, f"{measure} compares with {baseline}, which is {against.word}")
    return Absence(NOT_MEASURED, f"its runs have no values of {measure}")


def setting_absence(item: Reproduction, cell: JsonObject, setting: str, runs: Runs) -> str:
    """Return why a setting that was tried for a cell has no mean, in a few words."""
    folders = next(tried["runs"] for tried in cell["settings"] if tried["setting"] == setting)
    if not loaded_names(item, folders, runs):
        return NOT_RUN
    return "fewer seeds" if cell_names(item, {"runs": folders}, runs) else NOT_COMPARABLE


def remark(item: Reproduction, place: Place, runs: Runs) -> str:
    """Return which of the runs behind a number are left out, and why; empty if none is."""
    cell = cell_at(item, place)
    if cell is None:
        return ""
    names, said = loaded_names(item, cell["runs"], runs), list[str]()
    if why := stray_of(item, cell, runs):
        count = len(names) - len(cell_names(item, {"runs": cell["runs"]}, runs))
        said.append(f"{count} of its {len(names)} runs {'is' if count == 1 else 'are'} left out, {why}")
    if lost := lost_runs(item, place):
        said.append(_lost(lost, len(names) + len(lost)))
    return "; ".join(said)


def lost_runs(item: Reproduction, place: Place) -> list[str]:
    """Return why runs of a cell have no result, one reason for each run with which training diverged."""
    begin = f"{', '.join(place)}: {DIVERGED}: "
    told = (str(text) for text in item.about.get("left_out", ()))
    return [text.removeprefix(begin) for text in told if text.startswith(begin)]


def _lost(lost: Sequence[str], whole: int) -> str:
    """Return in words that some of a cell's runs diverged, and the first error."""
    return f"{len(lost)} of its {whole} runs {DIVERGED}, {lost[0].partition('; ')[0]}"


def planned_reason(item: Reproduction, place: Place) -> str:
    """Return why the plan of the item left out runs of a cell; empty if it left out none."""
    cell = cell_at(item, place)
    name = ", ".join(place)
    ends = (": ", ", ") if cell and cell.get("settings") else (": ",)
    for text in item.about["left_out"]:
        if text.startswith(tuple(name + end for end in ends)):
            return str(text[len(name) :]).partition(": ")[2]
    return ""
