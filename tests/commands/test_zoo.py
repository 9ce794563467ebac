"""The zoo: every method has as many settings as another, chosen without test data, and fresh seeds."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from raffed.commands.planned_jobs import carried_out
from raffed.commands.reproducing import Asked, in_stages, plan, written
from raffed.commands.running import start_or_continue
from raffed.config.run import RunConfig, Runtime
from raffed.core.method import Method
from raffed.core.parts import ParameterSplit
from raffed.errors import UsageError
from raffed.experiments.reproduction.catalogue import find_item
from raffed.experiments.reproduction.items import Item
from raffed.experiments.reproduction.planner import Planned, PlannedRun, unchosen
from raffed.experiments.reproduction.search import RowSearch, Tried, best, setting_name, with_setting
from raffed.experiments.reproduction.searched import searched_runs
from raffed.experiments.zoo.items import ITEMS, MLP
from raffed.experiments.zoo.protocol import LADDER, RATES, TRIALS, config, paired, settings
from raffed.experiments.zoo.rows import global_remark, is_personal, keeps_norms_alone, same_global_model
from raffed.methods import METHODS, build_method
from tests.tiny import over_methods

SERIAL = Runtime(execution="serial")


@over_methods
def test_every_method_has_as_many_settings_and_each_can_be_made(name: str) -> None:
    run = config(name, "fashion-mnist", "p10c2", MLP)
    found = settings(run)
    assert len(found) == TRIALS == len({setting_name(one) for one in found})
    for one in found:
        made = with_setting(run, one)
        build_method(name, made.args)
        assert RunConfig.from_dict(made.as_dict()).identity() == made.identity()
    rates = Counter(str(list(one.values())[-1]) for one in found)
    assert set(rates.values()) in ({1}, {2}), "every rate is tried equally often"


def test_fedavg_searches_the_rate_alone_and_the_rates_of_all_others_are_among_its_own() -> None:
    run = config("fedavg", "fashion-mnist", "p10c2", MLP)
    assert [one["local.lr"] for one in settings(run)] == list(LADDER)
    assert set(RATES) < set(LADDER)


@pytest.mark.parametrize("points", range(1, 7))
def test_pairs_of_points_and_rates_never_repeat_and_use_all_points_and_rates(points: int) -> None:
    own = [{"mu": float(number)} for number in range(points)]
    pairs = paired(own, RATES, TRIALS)
    seen = {(point["mu"], rate) for point, rate in pairs}
    assert len(seen) == len(pairs) == min(TRIALS, 3 * points)
    assert {point for point, _ in seen} == {float(number) for number in range(points)}
    assert {rate for _, rate in seen} == set(RATES)


def test_a_method_s_defaults_are_its_first_setting_if_its_grid_has_them() -> None:
    first = settings(config("fedprox", "fashion-mnist", "p10c2", MLP))[0]
    assert first == {"mu": 0.01, "local.lr": 0.1}


def test_a_table_of_global_models_has_no_two_rows_that_are_the_same_by_a_law() -> None:
    """Ditto and fine-tuning train FedAvg's global model, MAP FedRS's; FedPHP's own model teaches."""
    twins = {name: same_global_model(name) for name in ("ditto", "finetune", "map", "scamap", "fedphp")}
    assert twins == {"ditto": "fedavg", "finetune": "fedavg", "map": "fedrs", "scamap": "scars", "fedphp": ""}


def test_a_reader_is_told_of_what_makes_a_row_unlike_the_others() -> None:
    """FLDA's shared model learns only within its mixture; FedDF's and FEDIC's servers have images."""
    said = {name: global_remark(config(name, "digits", "iid:10", MLP)) for name in METHODS}
    assert said["flda"] == "its global model is trained only within a mixture with private models"
    assert said["feddf"].startswith("its server has 500 test images without labels, ")
    assert {name for name, what in said.items() if what} == {"flda", "feddf", "fedic"}


@over_methods
def test_every_method_is_a_row_of_one_of_the_two_tables(name: str) -> None:
    method = build_method(name, {})
    assert is_personal(method) or (method.has_global and not same_global_model(name))


def test_a_method_that_keeps_nothing_but_batchnorm_needs_it() -> None:
    """SiloBN keeps its statistics; SOLO keeps all layers and with them the statistics."""
    silo = Method("SiloBN", split=ParameterSplit("none", buffers="local"))
    assert keeps_norms_alone(silo)
    assert is_personal(silo)
    assert [keeps_norms_alone(build_method(name, {})) for name in ("solo", "fedrep", "fedavg")] == [False] * 3


def test_every_item_lists_every_method_on_every_split() -> None:
    for item in ITEMS:
        columns = {cell.column for cell in item.cells}
        assert Counter(cell.column for cell in item.cells) == dict.fromkeys(columns, len(METHODS))
    assert len({item.key for item in ITEMS}) == len(ITEMS)


def test_the_highest_score_wins_as_soon_as_all_trials_have_ended() -> None:
    low, high = Tried({"mu": 1.0}, Path("a"), "finished", 0.5), Tried({"mu": 2.0}, Path("b"), "finished", 0.6)
    lost = Tried({"mu": 3.0}, Path("c"), "diverged")
    assert best([low, high, lost]) == high
    assert best([low, high, Tried({"mu": 4.0}, Path("d"), "stopped")]) is None
    assert best([lost]) is None
    assert best([replace(high, setting={"mu": 5.0}), high]) == replace(high, setting={"mu": 5.0})


def _tiny(rates: tuple[float, ...]) -> Item:
    """A table of the zoo with FedAvg alone, at these rates; infinite losses at the last of them."""
    item = find_item("zoo/fashion-mnist")
    assert item.search is not None
    search = replace(item.search, settings=lambda run: [{"local.lr": rate} for rate in rates])
    return replace(item, search=search)


def _executed(item: Item, out: Path) -> list[Planned]:
    asked = Asked(item, "smoke", out, ("fedavg", "p10c2"), 2, SERIAL)

    def do(job: Planned) -> None:
        assert isinstance(job, PlannedRun)
        start_or_continue(job.config, job.folder, lambda event: None)

    def execute(jobs: list[Planned], seconds: float | None) -> list[Planned]:
        return carried_out(jobs, do, seconds)

    after = in_stages(asked, plan(asked, None, lambda text: None), None, lambda text: None, execute)
    written(item, "smoke", out, after)
    return after


def test_trials_choose_by_validation_and_the_choice_runs_with_fresh_seeds_and_all_data(
    tmp_path: Path,
) -> None:
    """The second of two trials diverges, which is an outcome: the first is chosen, and both seeds run."""
    after = _executed(_tiny((0.1, 1e3)), tmp_path)
    runs = [job for job in after if isinstance(job, PlannedRun)]
    trials, finals = [job for job in runs if job.trial], [job for job in runs if job.trial is None]
    assert [job.config.data.validation for job in trials] == [0.2, 0.2]
    assert [(job.seed, job.config.data.validation, job.config.local.lr) for job in finals] == [
        (1, 0.0, 0.1),
        (2, 0.0, 0.1),
    ]
    assert all(job.done for job in finals)
    about = json.loads((tmp_path / "zoo" / "fashion-mnist" / "smoke" / "item.json").read_text())
    [row] = about["search"]["rows"]
    assert row["chosen"] == "lr=0.1"
    assert [one["state"] for one in row["trials"]] == ["finished", "diverged"]
    assert [len(cell["runs"]) for cell in about["cells"]] == [2]
    assert about["left_out"] == []
    assert "Ditto" in {one["row"] for one in about["search"]["excluded"]}
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("run.json")}
    _executed(_tiny((0.1, 1e3)), tmp_path)
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("run.json")} == before, "all were kept"


def test_trials_that_only_item_json_records_are_not_run_again(tmp_path: Path) -> None:
    """Records are packed without them. Trials of another protocol have other names, and do not count."""
    after = _executed(_tiny((0.1, 0.05)), tmp_path)
    trials = [job.folder for job in after if isinstance(job, PlannedRun) and job.trial]
    for folder in trials:
        shutil.rmtree(folder)
    written_before = json.loads((tmp_path / "zoo" / "fashion-mnist" / "smoke" / "item.json").read_text())
    _executed(_tiny((0.1, 0.05)), tmp_path)
    assert not any(folder.exists() for folder in trials)
    again = json.loads((tmp_path / "zoo" / "fashion-mnist" / "smoke" / "item.json").read_text())
    assert again == written_before
    assert unchosen(searched_runs(_tiny((0.1, 0.05)), "smoke", tmp_path, ["fedavg", "p10c2"], 2, SERIAL)) == 0
    planned = searched_runs(_tiny((0.1, 0.04)), "smoke", tmp_path, ["fedavg", "p10c2"], 2, SERIAL)
    assert [job.trial for job in planned] == [{"local.lr": 0.04}]
    assert unchosen(planned) == 1


def test_a_method_that_is_no_row_of_a_table_is_refused_with_the_reason(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="its global model is FedRS's, bit for bit"):
        searched_runs(find_item("zoo/fashion-mnist"), "smoke", tmp_path, ["map"], 1)


def test_a_search_scores_no_test_data() -> None:
    """Its trials hold out a part of the training data, and only that part's accuracy is read."""
    search = RowSearch(lambda run: [{}], lambda run: "")
    assert search.trial(RunConfig(), {}).data.validation == 0.2
    assert search.final(RunConfig(), {}, 0).data.validation == 0.0
    assert [search.final(RunConfig(), {}, number).seed for number in range(3)] == [1, 2, 3]
