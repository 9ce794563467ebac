"""What is known, said and decided of a run before it starts: who takes part, what is scored, the network that
its method requires, warnings, the machine's memory and kernels, placement, the probe's advice, and nodes'
code.
"""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from raffed import Data, Federation, Local, Model, RunConfig, Runtime
from raffed.budget import free_memory
from raffed.errors import UsageError
from raffed.runs.federation import warn
from raffed.runs.record import hardware
from raffed.runtime import autosize
from raffed.runtime.autosize import Choice, Probe, choose, measure, repeats
from raffed.runtime.machine import kernels_enabled
from raffed.runtime.placement import Resources, make_plan, make_stacks
from raffed.runtime.ray import nodes
from raffed.runtime.ray.nodes import check_same, code_versions, hash_of
from raffed.runtime.run_method import network_of
from raffed.runtime.setup import Setup, prepare_run
from raffed.runtime.setup_model import make_network, make_spec
from raffed.runtime.worker import ClientWorker
from tests.runtime.conftest import small
from tests.tiny import digits


@pytest.mark.parametrize(
    ("share", "clients", "count"), [(0.29, 100, 29), (0.01, 3550, 36), (0.001, 100, 1), (1.0, 7, 7)]
)
def test_a_share_of_the_clients_is_rounded_not_cut(share: float, clients: int, count: int) -> None:
    """docs/papers/map.md §E1: int(0.29 · 100) = 28."""
    assert Federation(participation=share).participants(clients) == count


@pytest.mark.parametrize(("share", "rounds", "visits"), [(0.2, 150, 30), (0.29, 100, 29), (0.1, 4, 1)])
def test_a_client_is_expected_in_its_share_of_the_rounds_at_least_once(
    share: float, rounds: int, visits: int
) -> None:
    """docs/papers/map.md §2.1: max(int(Q·T), 1), 30 in MAP's tables, 10 in its Fig. 8."""
    setup = prepare_run(RunConfig(data=Data(split="iid:100"), federation=Federation(rounds, share)))
    assert make_spec(setup.data, 5).expected_visits == visits


def test_without_a_test_set_of_its_own_a_global_model_is_scored_on_all_local_test_parts() -> None:
    """docs/papers/map.md §E6, Fig. 12: the global test is the union of the local ones, as FEMNIST has no
    other.
    """
    setup = prepare_run(RunConfig(data=Data(split="incomplete:10", local_test=0.2)))
    own, rows = setup.data.scored_rows["test"]
    assert (own, len(rows)) == ("test", len(setup.dataset.y_test))
    local_only = replace(setup.dataset, x_test=setup.dataset.x_test[:0], y_test=setup.dataset.y_test[:0])
    without = replace(setup, dataset=local_only)
    pool, rows = without.data.scored_rows["test"]
    assert pool == "train"
    np.testing.assert_array_equal(np.sort(rows), np.sort(np.concatenate(setup.partition.test)))
    images, labels = without.data.test_set()
    np.testing.assert_array_equal(labels, setup.dataset.y[rows])
    assert len(images) == len(labels) > 100


def test_what_the_method_requires_is_added_to_what_the_run_gives() -> None:
    config = RunConfig("fedetf", {"scale": 2.0}, model=Model("mlp", {"hidden": [16], "features": "l2"}))
    added = {"feature_layer": True, "feature_scale": 2.0, "learn_scale": True}
    head = {"head_init": "etf", "head_bias": False}
    assert network_of(config).args == {"hidden": [16], "features": "l2", **added, **head}


@pytest.mark.parametrize("method", ["fedavg", "fedetf", "fednh", "fedloge"])
def test_first_weights_replace_a_frame_that_the_method_requires_by_such_a_frame_alone(
    method: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Rows that change their signs keep their lengths and angles, and rows twice as long do not."""
    setup = prepare_run(small(method))
    first = make_network(setup.network, setup.data).module.state_dict()
    for factor, kept in ((-1.0, -1.0), (2.0, 2.0 if method == "fedavg" else 1.0)):
        torch.save({**first, "head.weight": factor * first["head.weight"]}, file := tmp_path / f"{kept}.pt")
        begun = prepare_run(replace(setup.config, model=replace(setup.config.model, init=str(file))))
        found = make_network(begun.network, begun.data).module.state_dict()
        assert torch.equal(found["head.weight"], kept * first["head.weight"])
    warn(begun, resumed=False)
    assert ("without such rows is left out" in caplog.text) == (method != "fedavg")


@pytest.mark.parametrize(
    ("method", "model", "said"),
    [
        ("fedetf", Model("mlp", {"features": "raw"}), "features = l2, and model.args has features = raw"),
        ("fedetf", Model("tests.models.own_nets:OwnFeatures"), "of this name itself; rename that one"),
        ("fedgela", Model("mlp", {"hidden": [8]}), "8 is below 10; use a network with wider features"),
        *((name, Model("linear"), "linear has no weights") for name in ("fedrep", "mpfedcon", "pfedfda")),
    ],
)
def test_a_network_that_the_method_cannot_have_is_refused_before_work_starts(
    method: str, model: Model, said: str
) -> None:
    with pytest.raises(UsageError, match=said):
        prepare_run(replace(small(method), model=model))


SIMPLE = Model("mlp", {"hidden": [4]})


@pytest.mark.parametrize(
    ("method", "model", "args", "resumed", "warned"),
    [
        ("fedmr", SIMPLE, {}, False, True),
        ("fedmr", SIMPLE, {}, True, False),
        ("fedmr", Model("resnet8"), {}, False, False),
        ("fedmr", SIMPLE, {"prototype_from": "global"}, False, False),
        ("fedmr", SIMPLE, {"mu2": 0.0}, False, False),
        ("fedavg", SIMPLE, {}, False, False),
    ],
)
def test_fedmr_s_local_prototypes_in_a_network_without_normalisation_are_warned_of_once(
    method: str,
    model: Model,
    args: dict[str, Any],
    resumed: bool,
    warned: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    config = replace(small(method), model=model, args=args, data=Data("digits", "p5c2"))
    warn(prepare_run(config), resumed=resumed)
    assert caplog.text.count("can destroy training in a network without normalisation") == warned


def test_free_memory_is_what_the_machine_has_within_the_containers_limit(tmp_path: Path) -> None:
    """Of 8 GB free on the machine, a container of 2 GB that uses 1.5, 0.3 of them file cache, has 0.8."""
    meminfo, v2, v1 = tmp_path / "meminfo", tmp_path / "v2", tmp_path / "v1"
    meminfo.write_text("MemTotal: 16000000 kB\nMemAvailable: 8000000 kB\n")
    v2.mkdir()
    (v1 / "memory").mkdir(parents=True)
    for folder, limit, used, cache in (
        (v2, "memory.max", "memory.current", "inactive_file"),
        (v1 / "memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    ):
        (folder / limit).write_text("2000000000\n")
        (folder / used).write_text("1500000000\n")
        (folder / "memory.stat").write_text(f"anon 1200000000\n{cache} 300000000\n")
    assert free_memory(str(meminfo), str(v2)) == free_memory(str(meminfo), str(v1)) == 0.8e9
    (v2 / "memory.max").write_text("max\n")
    assert free_memory(str(meminfo), str(v2)) == free_memory(str(meminfo), str(tmp_path / "none")) == 8.192e9
    (v2 / "memory.max").write_text("1000000000\n")
    assert free_memory(str(meminfo), str(v2)) == 0.0
    assert free_memory(str(tmp_path / "none")) is None


def test_kernels_are_on_unless_the_variable_says_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAFFED_KERNELS", raising=False)
    assert kernels_enabled()
    assert "kernels" not in hardware()
    monkeypatch.setenv("RAFFED_KERNELS", "off")
    assert not kernels_enabled()
    assert hardware()["kernels"] == "off"
    monkeypatch.setenv("RAFFED_KERNELS", "no")
    with pytest.raises(UsageError, match=r"RAFFED_KERNELS = 'no': it can be 'on' \(the default\) or 'off'"):
        kernels_enabled()


TINY = replace(
    digits("iid:40", local_test=0.0, local=Local(batch_size=16, epochs=1), federation=Federation(rounds=3)),
    runtime=Runtime(),
)


@pytest.fixture(scope="module")
def setup() -> Setup:
    return prepare_run(TINY)


def test_the_probe_measures_one_by_one_and_stacks_up_to_the_participants_and_changes_nothing(
    setup: Setup,
) -> None:
    before = setup.config, setup.partition.sha256()
    probe = measure(setup)
    assert list(probe.seconds) == [1, 8, 32]  # 40 participants
    assert all(0 < s < 10 for s in probe.seconds.values())
    assert probe.steps == TINY.local.steps(1437 // 40)
    assert probe.sent == 4 * (64 * 8 + 8 + 8 * 10 + 10)
    assert (setup.config, setup.partition.sha256()) == before


@pytest.mark.parametrize(
    ("changes", "steps"),
    [
        ({}, 3),  # 35 samples in batches of 16
        ({"local.epochs_to": 3}, 6),  # the mean of 1, 2 and 3 epochs
        ({"method": "fedrep"}, 3 * 10 + 3),  # ten epochs of the head, then the body
    ],
)
def test_the_probe_divides_its_time_by_the_steps_that_were_made(
    monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], steps: int
) -> None:
    """By a clock on which each step takes a second, a step takes a second."""
    clock, train = [0.0], ClientWorker.train

    def counted(self: ClientWorker, *args: Any) -> Any:
        partial, reports = train(self, *args)
        clock[0] += sum(report.steps for report in reports)
        return partial, reports

    monkeypatch.setattr(ClientWorker, "train", counted)
    monkeypatch.setattr(autosize, "time", SimpleNamespace(perf_counter=lambda: clock[0]))
    probe = measure(prepare_run(TINY.changed(changes)), sizes=[1])
    assert (probe.seconds, probe.steps) == ({1: 1.0}, steps)


@pytest.mark.parametrize(
    ("seconds", "execution", "cohort"),
    [
        ({1: 1e-3}, "serial", 0),  # 120 clients of 3 steps: 0.4 s, Ray's start alone is longer
        ({1: 1.0}, "ray", 0),  # 360 s against 12 + 180
        ({1: 1.0, 8: 0.9}, "ray", 0),  # a tenth is noise: the reference execution is kept
        ({1: 1.0, 8: 0.5}, "ray", 8),  # 5 stacks on 2 actors, 3 in turn: 12 + 180 · 3/5 = 120 s
    ],
)
def test_what_ends_first_is_chosen(
    setup: Setup, seconds: dict[int, float], execution: str, cohort: int
) -> None:
    choice = choose(setup, Probe(seconds, 0, steps=3), cores=2)
    assert (choice.execution, choice.cohort) == (execution, cohort)


@pytest.mark.parametrize(
    ("runtime", "choice", "options"),
    [
        ({}, Choice("ray", 0, 5, 1.0, ""), "--execution ray --actors 5"),
        ({"clients_per_actor": 10}, Choice("ray", 0, 5, 1.0, ""), "--execution ray"),
        # All digits, or the option would name another share
        ({"gpu_fraction": 1 / 3}, Choice("ray", 0, 8, 1.0, ""), f"--execution ray --gpu-fraction {1 / 3}"),
        (
            {},
            Choice("serial", 8, 1, 1.0, "", "compiled"),
            "--execution serial --cohort 8 --convolutions compiled",
        ),
    ],
)
def test_the_advice_is_the_options_that_follow_it(
    runtime: dict[str, object], choice: Choice, options: str
) -> None:
    config = replace(TINY, runtime=replace(TINY.runtime, **runtime))  # type: ignore[arg-type]
    assert repeats(config, choice) == options


LAPTOP = Resources(cores=2, gpus=0, memory=16 * 2**30)


def config(**runtime: object) -> RunConfig:
    return RunConfig(runtime=Runtime(**runtime))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("participation", "resources", "actors"),
    [
        (1.0, LAPTOP, 2),
        (0.01, Resources(8, 0, 2**40), 1),  # as many as participants
        (1.0, Resources(64, 0, 2 * 2**30), 4),  # 450 MiB each
    ],
)
def test_auto_takes_as_many_actors_as_cores_participants_and_memory_allow(
    participation: float, resources: Resources, actors: int
) -> None:
    asked = RunConfig(federation=Federation(participation=participation))
    assert len(make_plan(asked, 100, resources).homes) == actors


def test_a_hundred_actors_do_not_fit_a_laptop_and_the_message_says_what_does() -> None:
    with pytest.raises(UsageError, match=r"100 actors need about 43\.9 GiB.*at most 36.*at least 3"):
        make_plan(config(clients_per_actor=1), 100, LAPTOP)


def test_gpu_actors_get_unit_fractions_rounded_down() -> None:
    plan = make_plan(config(gpu_fraction=1 / 3), 30, Resources(16, 2, 2**40))
    assert (len(plan.homes), plan.num_gpus) == (6, 0.3333)


@given(st.integers(1, 8), st.lists(st.integers(1, 60), min_size=1, max_size=40), st.randoms())
def test_shares_cover_every_participant_once_and_no_actor_exceeds_the_mean_by_more_than_one_client(
    actors: int, work: list[int], random: object
) -> None:
    clients = max(len(work), actors)
    plan = make_plan(config(actors=actors), clients, Resources(actors, 0, 2**40))
    participants = list(range(clients))[: len(work)]
    shares = plan.shares([(c,) for c in participants], work)
    assert sorted(c for share in shares for (c,) in share) == participants
    loads = [sum(work[c] for (c,) in share) for share in shares]
    assert max(loads) <= sum(work) / actors + max(work)


@given(st.lists(st.integers(1, 60), min_size=1, max_size=40), st.integers(0, 12))
def test_stacks_cover_the_participants_once_and_hold_clients_of_neighbouring_sizes(
    sizes: list[int], cohort: int
) -> None:
    stacks = make_stacks(range(len(sizes)), sizes, cohort)
    assert sorted(c for stack in stacks for c in stack) == list(range(len(sizes)))
    assert all(len(stack) <= max(cohort, 1) for stack in stacks)
    if cohort > 1:
        # Only the last is shorter
        assert [len(stack) for stack in stacks[:-1]] == [cohort] * (len(stacks) - 1)
        order = [sizes[c] for stack in stacks for c in stack]
        assert order == sorted(order, reverse=True)


def test_the_hash_follows_contents_and_names_of_modules_of_the_package_in_use(tmp_path: Path) -> None:
    """A wheel also holds analysis/ and its like inside the package; bytecode and data files say nothing."""
    package = Path(shutil.copytree(nodes.PACKAGE, tmp_path / "raffed"))
    (package / "core/__pycache__").mkdir(exist_ok=True)
    (package / "core/__pycache__/more.cpython-311.pyc").write_bytes(b"\0")
    (package / "core/_sums.abi3.so").write_bytes(b"\0")
    (package / "analysis").mkdir()
    (package / "analysis/__init__.py").write_text("x = 1\n")
    found = [hash_of(package)]
    assert found == [code_versions().raffed]
    text = (package / "core/seeds.py").read_text()
    (package / "core/seeds.py").write_text(text[:-1])
    found.append(hash_of(package))
    (package / "core/seeds.py").rename(package / "core/seed.py")
    found.append(hash_of(package))
    (package / "core/more.py").touch()
    found.append(hash_of(package))
    assert len(set(found)) == 4


def test_other_code_is_refused_and_the_same_is_not() -> None:
    check_same(code_versions())
    check_same(None)
    with pytest.raises(UsageError, match=r"node [\d.]+: NumPy is .* there and 1\.0 here; all nodes need"):
        check_same(code_versions()._replace(numpy="1.0"))
