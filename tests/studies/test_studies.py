"""Every study at smoke scale: it runs, it is drawn in both colour schemes, and a seed gives the same bits."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import pytest

from analysis.figures import DARK, LIGHT, in_the_dark, svg
from analysis.studies import check_sheet, load_study, painted, painters
from raffed.experiments.registry import items
from raffed.studies import STUDIES, Work, carry_out

SLOW = ("features_tsne", "leakage")  # scikit-learn takes seconds to import, 18 attacks take ten
NAMES = [pytest.param(name, marks=pytest.mark.slow) if name in SLOW else name for name in STUDIES]
UNPAINTED: set[str] = set()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("studies")


@cache
def made(folder: Path, name: str, seed: int = 0, again: int = 0) -> Path:
    path = folder / f"{name}-{seed}-{again}"
    carry_out(Work(name, "smoke", seed, path))
    return path


def digests(path: Path) -> dict[str, str]:
    found: dict[str, str] = json.loads((path / "study.json").read_text())["rows_sha256"]
    return found


@pytest.mark.parametrize("name", NAMES)
def test_a_study_runs_and_is_drawn_and_judged(name: str, folder: Path) -> None:
    study = load_study(made(folder, name))
    assert study.about["settings"]
    shown = painted(study)
    assert shown.figures
    for one in shown.figures:
        light = svg(one.figure)
        assert in_the_dark(light) != light
        assert LIGHT.ink not in in_the_dark(light)
        assert DARK.ink in in_the_dark(light)
    assert shown.checks or shown.tables


@pytest.mark.parametrize("name", NAMES)
def test_the_same_seed_gives_the_same_bits(name: str, folder: Path) -> None:
    assert digests(made(folder, name)) == digests(made(folder, name, again=1))


def test_another_seed_gives_other_numbers(folder: Path) -> None:
    assert digests(made(folder, "proxy_statistics")) != digests(made(folder, "proxy_statistics", seed=1))


def test_smoke_decides_nothing_that_was_trained_and_mathematics_holds_at_any_scale(folder: Path) -> None:
    trained = check_sheet([load_study(made(folder, "proxy_statistics", seed=seed)) for seed in (0, 1)])
    exact = check_sheet([load_study(made(folder, "averaged_classifiers"))])
    assert trained is not None
    assert exact is not None
    assert {line[-1] for line in trained.lines} == {"–"}
    assert [line[-1] for line in exact.lines] == ["yes"]


def test_every_study_has_a_painter_and_an_item_and_every_item_s_study_is_there() -> None:
    assert set(painters()) | UNPAINTED == set(STUDIES)
    wanted = {item.study for item in items().values() if item.study}
    assert wanted == set(STUDIES)
    assert [item.missing() for item in items().values() if item.study and not item.cells] == [()] * len(wanted)


def test_progress_is_told_from_nothing_to_all_and_never_backwards(tmp_path: Path) -> None:
    told: list[float] = []
    carry_out(Work("proxy_statistics", "smoke", 0, tmp_path, tell=lambda _, share: told.append(share)))
    assert told == sorted(told)
    assert told[-1] == 1.0
