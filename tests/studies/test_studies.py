"""Every study at smoke scale: it runs, it is drawn in both colour schemes, and a seed gives the same bits."""

from __future__ import annotations

import importlib
import json
from functools import cache
from pathlib import Path

import pytest
import torch
from raffed.analysis.figures.theme import DARK, LIGHT, in_the_dark, svg
from raffed.analysis.studies import check_table, load_study, painted, painters
from raffed.reproductions.studies import STUDIES

from raffed.core.training.network import Network
from raffed.models import build
from raffed.tables.studies import Work, execute_study
from tests.papers import items
from tests.params import one_in

SLOW = ("features_tsne", "leakage")  # scikit-learn takes seconds to import, 18 attacks take ten
NAMES = [pytest.param(name, marks=pytest.mark.slow) if name in SLOW else name for name in STUDIES]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("studies")


@cache
def made(folder: Path, name: str, seed: int = 0, again: int = 0) -> Path:
    path = folder / f"{name}-{seed}-{again}"
    execute_study(Work(name, "smoke", seed, path))
    return path


def digests(path: Path) -> dict[str, str]:
    found: dict[str, str] = json.loads((path / "study.json").read_text())["rows_sha256"]
    return found


@pytest.mark.parametrize("name", one_in(3, NAMES))
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


@pytest.mark.more
@pytest.mark.parametrize("name", NAMES)
def test_the_same_seed_gives_the_same_bits(name: str, folder: Path) -> None:
    assert digests(made(folder, name)) == digests(made(folder, name, again=1))


def test_another_seed_gives_other_numbers(folder: Path) -> None:
    assert digests(made(folder, "proxy_statistics")) != digests(made(folder, "proxy_statistics", seed=1))


def test_smoke_decides_nothing_that_was_trained_and_mathematics_holds_at_any_scale(folder: Path) -> None:
    trained = check_table([load_study(made(folder, "proxy_statistics", seed=seed)) for seed in (0, 1)])
    exact = check_table([load_study(made(folder, "averaged_classifiers"))])
    assert trained is None
    assert exact is not None
    assert [line[-1] for line in exact.rows] == ["yes"]


def test_every_study_has_a_painter_and_an_item_and_every_item_s_study_is_there() -> None:
    assert set(painters()) == set(STUDIES)
    wanted = {item.study for item in items().values() if item.study}
    assert wanted == set(STUDIES)
    assert [item.missing() for item in items().values() if item.study and not item.cells] == [()] * len(
        wanted
    )


def test_progress_is_told_from_nothing_to_all_and_never_backwards(tmp_path: Path) -> None:
    told: list[float] = []
    execute_study(Work("proxy_statistics", "smoke", 0, tmp_path, tell=lambda _, share: told.append(share)))
    assert told == sorted(told)
    assert told[-1] == 1.0


def test_a_party_trains_the_same_first_round_alone_and_under_fedavg(folder: Path) -> None:
    """One start, one split, one order of batches: in round 1 its SOLO model is its FedAvg model, in round
    2 it is not.
    """
    study = load_study(made(folder, "solo_drift"))
    for panel in study.panels():
        gap = study.curve(panel, "the party's own", "mean squared distance")
        assert gap[1] == 0.0
        assert gap[2] > 0.0


def test_the_demo_s_downloaded_model_is_the_last_round_s_aggregated_one(folder: Path) -> None:
    study = load_study(made(folder, "two_client_demo"))
    for method in ("FedAvg", "MAP"):
        for client in ("client 1", "client 2"):
            before = study.value(method, client, "accuracy, aggregated", 1)
            assert study.value(method, client, "accuracy, downloaded", 2) == before


def test_map_s_server_in_the_demo_is_not_fedavg_s(folder: Path) -> None:
    """The restricted softmax changes what is trained from the first round on."""
    study = load_study(made(folder, "two_client_demo"))
    norms = [
        study.value(method, "client 1", "norm of missing proxies after training", 1)
        for method in ("FedAvg", "MAP")
    ]
    assert norms[0] != norms[1]


def test_the_data_that_a_study_states_are_those_that_it_reads() -> None:
    checked = 0
    for name, info in STUDIES.items():
        settings = getattr(importlib.import_module(f"raffed.reproductions.studies.{name}"), "SETTINGS", {})
        for scale, chosen in settings.items():
            stated = info.data.get(scale, ())
            assert stated == (() if chosen.dataset == "digits" else (chosen.dataset,)), (name, scale)
            checked += 1
    assert checked >= 18


@pytest.mark.parametrize(("model", "classes"), [("vgg11_bn", 10), ("vgg16_bn", 100), ("cnn5", 10)])
def test_the_networks_of_full_scale_take_their_images(model: str, classes: int) -> None:
    net = Network(build(model, (3, 32, 32), classes, 0))
    logits, _ = net.apply(net.initial, torch.zeros(2, 3, 32, 32))
    assert logits.shape == (2, classes)
