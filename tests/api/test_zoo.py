"""The zoo: every method has as many settings as another, chosen without test data, and fresh seeds."""

from __future__ import annotations

import json
import math
import shutil
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from raffed.reproductions.zoo.items import ITEMS, MLP, MOST_CITED
from raffed.reproductions.zoo.protocol import LADDER, RATES, SETTINGS, config, settings
from raffed.reproductions.zoo.rows import (
    global_measure,
    global_remark,
    is_personal,
    not_global,
    personal_measure,
    same_global_model,
)

from raffed.api.reproducing import Asked, executed, plan
from raffed.api.running import Run
from raffed.config.run import RunConfig
from raffed.config.sections import Numerics, Runtime
from raffed.errors import UsageError
from raffed.methods import METHODS, build_method
from raffed.tables.catalogue import find_item
from raffed.tables.item_file import write_item
from raffed.tables.items import Item, smoke
from raffed.tables.planner import Planned, PlannedRun, computed, unchosen
from raffed.tables.search import (
    FIRST_SEED,
    RowSearch,
    Tried,
    promoted,
    setting_name,
    with_setting,
)
from raffed.tables.searched import searched_runs
from tests.params import one_in
from tests.tiny import over_methods

SERIAL = Runtime(execution="serial")


@over_methods
def test_every_method_has_as_many_settings_and_each_can_be_made(name: str) -> None:
    """Every rate is crossed with every point, and the four common rates are among them."""
    run = config(name, "fashion-mnist", "p10c2", MLP)
    found = settings(run)
    assert len(found) == SETTINGS == len({setting_name(one) for one in found})
    for one in found:
        made = with_setting(run, one)
        build_method(name, made.args)
        assert RunConfig.from_dict(made.as_dict()).identity() == made.identity()
    rates = Counter(str(list(one.values())[-1]) for one in found)
    assert set(rates.values()) in ({1}, {2}, {3}), "every rate is tried equally often"
    if name != "pfedme":  # its rates are divided by λ
        assert set(map(str, RATES)) <= rates.keys()


def test_fedavg_searches_the_rate_alone_on_a_log_scale_that_has_the_rates_of_all_others() -> None:
    run = config("fedavg", "fashion-mnist", "p10c2", MLP)
    assert [one["local.lr"] for one in settings(run)] == list(LADDER)
    assert set(RATES) < set(LADDER)
    steps = [math.log10(rate) for rate in sorted(LADDER)]
    even = [math.log10(0.01) + number / 6 for number in range(12)]
    assert steps == pytest.approx(even, abs=0.02)  # as the E6 series rounds


def test_a_method_s_points_are_its_defaults_and_those_beside_them() -> None:
    def points(name: str) -> list[list[object]]:
        found = settings(config(name, "fashion-mnist", "p10c2", MLP))
        return [list(one.values())[:-1] for one in found[:3]]

    assert points("fedprox") == [[0.01], [0.001], [0.1]]  # of 0.001, 0.01, 0.1 and 1
    assert points("fedntd") == [[1.0, 1.0], [0.5, 1.0], [3.0, 3.0]]  # τ of 1 and 3: at an end
    assert points("scaffold") == [[1.0], [0.9], [0.5]]  # its default is at an end of 1, 0.9, 0.75 and 0.5


def test_a_table_of_global_models_has_no_two_rows_that_are_the_same_by_a_law() -> None:
    """Ditto and fine-tuning train FedAvg's global model, MAP FedRS's; FedPHP's own model teaches."""
    twins = {name: same_global_model(name) for name in ("ditto", "finetune", "map", "scamap", "fedphp")}
    assert twins == {"ditto": "fedavg", "finetune": "fedavg", "map": "fedrs", "scamap": "scars", "fedphp": ""}


def _here(name: str) -> RunConfig:
    """Return a small run of a method, in the bits of this process."""
    return replace(smoke(config(name, "fashion-mnist", "p10c2", MLP)), numerics=Numerics())


def test_a_model_that_never_trains_by_itself_and_one_that_is_fedavg_s_are_no_rows() -> None:
    """FLDA's shared model learns only within its mixture. APFL's step leaves out the private model."""
    said = {name: not_global(_here(name)) for name in ("flda", "apfl", "fedrod")}
    assert said["flda"] == "its global model is trained only within a mixture with private models"
    assert said["apfl"] == "its global model is FedAvg's, bit for bit"
    assert said["fedrod"] == ""


def test_models_are_scored_when_they_are_finished_and_on_images_that_their_servers_have_not_seen() -> None:
    runs = {name: config(name, "digits", "iid:10", MLP) for name in METHODS}
    measures = {name: measure for name, run in runs.items() if (measure := global_measure(run))}
    clean = "accuracy_clean_mean10"
    assert measures == {"ccvr": "accuracy_last", "feddf": clean, "fedic": clean}
    assert measures.keys() == {name for name, run in runs.items() if global_remark(run)}
    assert "after the last round alone" in global_remark(runs["ccvr"])
    assert global_remark(runs["feddf"]).startswith("its server has 500 test images without labels, ")
    last = {name for name, run in runs.items() if personal_measure(run)}
    assert last == {"ccvr", "fedbabu", "fedetf", "finetune"}


@over_methods
def test_every_method_is_a_row_of_one_of_the_two_tables(name: str) -> None:
    method = build_method(name, {})
    assert is_personal(method) or (method.has_global and not same_global_model(name))


def test_every_item_lists_every_method_on_every_split() -> None:
    for item in ITEMS:
        columns = {cell.column for cell in item.cells}
        first = list(dict.fromkeys(cell.config.method for cell in item.cells))[: len(MOST_CITED)]
        assert tuple(first) == MOST_CITED
        assert Counter(cell.column for cell in item.cells) == dict.fromkeys(columns, len(METHODS))
    assert len({item.key for item in ITEMS}) == len(ITEMS)
    assert len(set(MOST_CITED)) == 23
    assert not any(not_global(_here(name)) for name in MOST_CITED)


def test_the_highest_mean_scores_are_promoted_as_soon_as_all_trials_have_ended() -> None:
    def trials(mu: float, *scores: float) -> list[Tried]:
        return [Tried({"mu": mu}, Path("a"), "finished", score) for score in scores]

    low, high, same = trials(1.0, 0.5, 0.5), trials(2.0, 0.9, 0.3), trials(3.0, 0.3, 0.9)
    lost = [*trials(4.0, 0.99), Tried({"mu": 4.0}, Path("b"), "diverged")]
    begun = [*trials(5.0, 0.1), Tried({"mu": 5.0}, Path("c"), "stopped")]
    assert promoted([low, high, same, lost], 2) == [{"mu": 2.0}, {"mu": 3.0}], "the first of equals first"
    assert promoted([low, high, lost], 3) == [{"mu": 2.0}, {"mu": 1.0}], "one that diverged is left out"
    assert promoted([low, high, begun], 1) == []
    assert promoted([lost], 1) == []


def _tiny(rates: tuple[float, ...], seeds: int = 1) -> Item:
    """A table of the zoo with other rates, in the bits of this process."""
    item = computed(find_item("zoo/fashion-mnist"), bits="machine")
    assert item.search is not None
    search = replace(item.search, settings=lambda run: [{"local.lr": rate} for rate in rates])
    return replace(item, search=replace(search, seeds=seeds))


def _executed(item: Item, out: Path, method: str = "fedavg") -> list[Planned]:
    asked = Asked(item, "smoke", out, (method, "p10c2"), 2, SERIAL)

    def do(job: Planned) -> None:
        assert isinstance(job, PlannedRun)
        Run.alone(job.config, job.folder).go_on(lambda event: None)

    planned = plan(asked, None, lambda text: None)
    after = executed(asked, planned, None, lambda text: None, do, lambda runs: {})
    write_item(item, "smoke", out, after)
    return after


def _trials(jobs: Sequence[Planned]) -> list[PlannedRun]:
    return [job for job in jobs if isinstance(job, PlannedRun) and job.trial is not None]


def test_trials_choose_by_validation_and_the_choice_runs_with_fresh_seeds(tmp_path: Path) -> None:
    """The second of two trials diverges, which is an outcome: the first goes on, and both seeds run."""
    after = _executed(_tiny((0.1, 1e3)), tmp_path)
    runs = [job for job in after if isinstance(job, PlannedRun)]
    trials, finals = _trials(after), [job for job in runs if job.trial is None]
    assert {(job.config.data.validation, job.config.seed) for job in trials} == {(0.2, 0)}
    assert [job.config.federation.rounds for job in trials] == [1, 1, 2]
    assert {(job.config.data.validation, job.config.local.lr) for job in finals} == {(0.0, 0.1)}
    assert [job.seed for job in finals] == [FIRST_SEED, FIRST_SEED + 1]
    assert all(job.done for job in finals)
    about = json.loads((tmp_path / "zoo" / "fashion-mnist" / "smoke" / "item.json").read_text())
    [row] = about["search"]["rows"]
    assert row["chosen"] == "lr=0.1"
    assert [one["state"] for one in row["trials"]] == ["finished", "diverged", "finished"]
    assert [len(cell["runs"]) for cell in about["cells"]] == [2]
    assert about["left_out"] == []
    assert "Ditto" in {one["row"] for one in about["search"]["excluded"]}
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("run.json")}
    _executed(_tiny((0.1, 1e3)), tmp_path)
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("run.json")} == before, "all were kept"


@pytest.mark.parametrize("method", one_in(3, ["fedavg", "ccvr", "fedproc"]))
def test_a_trial_that_goes_on_has_the_bits_of_one_begun_with_all_rounds(tmp_path: Path, method: str) -> None:
    """FedProc's rounds depend on their total, and CCVR's last one: these begin again."""
    after = _executed(_tiny((0.1, 0.05)), tmp_path / "on", method)
    short, _, long = _trials(after)
    assert not (short.folder / "checkpoints").exists(), "nothing goes on from it any more"
    about = json.loads((long.folder / "run.json").read_text())
    assert [one["until"] for one in about.get("earlier", [])] == {"fedavg": [1], "ccvr": [0]}.get(method, [])
    Run.alone(long.config, tmp_path / "alone").go_on(lambda event: None)
    alone = json.loads((tmp_path / "alone" / "run.json").read_text())
    assert about["identity"] == alone["identity"]
    assert about["hashes"] == alone["hashes"]


def test_trials_that_only_item_json_records_are_not_run_again(tmp_path: Path) -> None:
    """Trials of another protocol have other names, and do not count."""
    after = _executed(_tiny((0.1, 0.05)), tmp_path)
    trials = [job.folder for job in _trials(after)]
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
    assert search.trial(RunConfig(), {}, 25, 2).data.validation == 0.2
    assert search.final(RunConfig(), {}, 0).data.validation == 0.0
    assert search.final(RunConfig("fedfomo"), {}, 0).data.validation == search.validation
    trials = {search.trial(RunConfig(), {}, 25, seed).seed for seed in range(search.tuning_seeds)}
    assert not trials & {search.final(RunConfig(), {}, number).seed for number in range(search.seeds)}
