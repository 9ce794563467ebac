"""The zoo: every method has as many settings as another, chosen without test data, and fresh seeds."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from raffed.reproductions.zoo.items import MLP
from raffed.reproductions.zoo.protocol import RATES, SETTINGS, config, settings
from raffed.reproductions.zoo.rows import not_global, same_global_model

from raffed.api.reproducing import Asked, executed, plan
from raffed.api.running import Run
from raffed.config.run import RunConfig
from raffed.config.sections import Numerics, Runtime
from raffed.errors import UsageError
from raffed.methods import build_method
from raffed.tables.catalogue import find_item
from raffed.tables.item_file import searched_runs, write_item
from raffed.tables.items import Item, smoke
from raffed.tables.planner import Planned, PlannedRun, computed
from raffed.tables.search import FIRST_SEED, RowSearch, Tried, promoted, setting_name, with_setting
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


def test_the_highest_mean_scores_are_promoted_as_soon_as_all_trials_have_ended() -> None:
    def trials(mu: float, *scores: float) -> list[Tried]:
        return [Tried({"mu": mu}, Path("a"), "finished", score) for score in scores]

    low, high, same = trials(1.0, 0.1), trials(2.0, 0.3, 0.2, 0.1), trials(3.0, 0.1, 0.2, 0.3)
    assert 0.3 + 0.2 + 0.1 < 0.1 + 0.2 + 0.3, "but for rounding these are equal"
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
