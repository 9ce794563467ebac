"""On a real GPU, where there is one: every method trains there, the same bits each time and for any
packing.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import raffed
from raffed import Data, Federation, Local, Model, Numerics, Privacy, RunConfig, Runtime
from raffed.core.context import ClientData
from raffed.core.training import recorded_steps
from raffed.core.training.network import Network
from raffed.core.training.recorded_steps import GraphRecorder, Repeat
from raffed.methods import build_method
from raffed.runs.events import RoundEvent
from raffed.runtime.machine import deterministic_kernels
from raffed.testing.federation import PLAIN, SIZES
from tests.tiny import NOISY, Tiny, clients, module, over_methods, same_bits

if not torch.cuda.is_available():
    pytest.skip("no GPU here", allow_module_level=True)
DEVICE = "cuda"
LONG, FULL = replace(PLAIN, epochs=4), (8, 12, 8, 16)  # full batches, so that stacks repeat steps too
CONFIG = RunConfig(
    method="map",
    data=Data("digits", "dirichlet:6:0.3", local_test=0.2),
    model=Model("resnet8"),
    local=Local(lr=0.05, momentum=0.9, batch_size=32, epochs=1),
    federation=Federation(rounds=2),
    runtime=Runtime(execution="serial", gpu_fraction=1.0),
)


def trained(
    name: str,
    device: str,
    cohort: bool = False,
    recorder: GraphRecorder | None = None,
    sizes: Sequence[int] = SIZES,
    **options: Any,
) -> list[torch.Tensor]:
    """Server and vaults after two rounds, on the CPU."""
    net = Network(module(norm=True), device)
    data = [
        ClientData(one.x.to(device), one.y.to(device), one.class_counts.to(device))
        for one in clients(sizes=sizes)
    ]
    tiny = Tiny(build_method(name), net=net, data=data, cohort=cohort, augment=NOISY, **options)
    tiny.net.recorder = recorder
    return [t.cpu() for t in tiny.run(2, [0, 1, 2, 3]).everything()]


@pytest.mark.parametrize("cohort", [False, True], ids=["one by one", "stacks"])
@over_methods
def test_the_same_bits_twice_and_the_cpus_numbers(name: str, cohort: bool) -> None:
    deterministic_kernels()
    here, there, again = (trained(name, device, cohort) for device in ("cpu", DEVICE, DEVICE))
    assert same_bits(there, again)
    for a, b in zip(here, there, strict=True):
        torch.testing.assert_close(a.double(), b.double(), rtol=5e-2, atol=5e-2)


@pytest.mark.parametrize("cohort", [False, True], ids=["one by one", "stacks"])
@over_methods
def test_steps_recorded_as_cuda_graphs_have_the_bits_of_steps_by_themselves(
    name: str, cohort: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorded_steps, "FEWEST", 3)  # as in tests/contract/test_recorded_steps.py
    deterministic_kernels()
    recorder = Counted(torch.device(DEVICE))
    alone, recorded = (trained(name, DEVICE, cohort, one, FULL, local=LONG) for one in (None, recorder))
    assert same_bits(alone, recorded)
    assert not recorder.refused
    assert recorder.recordings > 0


@pytest.mark.parametrize("method", ["feddf", "fedic", "creff", "fedtgp"])
def test_a_server_that_trains_does_it_on_the_gpu(method: str, tmp_path: Path) -> None:
    """By one process or by one of two actors, with the same bits, which are not the CPU's."""
    config = replace(CONFIG, method=method)
    alone = raffed.run(config, tmp_path / "serial").hashes
    halves = replace(config, runtime=Runtime(execution="ray", gpu_fraction=0.5))
    assert raffed.run(halves, tmp_path / "halves").hashes == alone
    on_the_cpu = raffed.run(replace(config, runtime=Runtime(execution="serial")), tmp_path / "cpu").hashes
    assert on_the_cpu != alone  # FedTGP has no averaged weights; its clients' states differ


@pytest.mark.parametrize("cohort", [0, 3])
def test_actors_of_a_whole_half_and_third_of_a_gpu_have_the_bits_of_one_process(
    cohort: int, tmp_path: Path
) -> None:
    config = replace(CONFIG, numerics=Numerics(cohort))
    alone = raffed.run(config, tmp_path / "serial").hashes
    for k in (1, 2, 3):
        path = tmp_path / f"{k}"
        packed = replace(config, runtime=Runtime(execution="ray", gpu_fraction=1 / k))
        assert raffed.run(packed, path).hashes == alone
        places = json.loads((path / "run.json").read_text())["placement"]["places"]
        assert [place["device"] for place in places] == ["cuda"] * k
    on_the_cpu = raffed.run(replace(config, runtime=Runtime(execution="serial")), tmp_path / "cpu").hashes
    assert on_the_cpu["weights"] != alone["weights"]


def _option_runs() -> dict[str, RunConfig]:
    """Every option of training, selection, means and attacks, privacy and bf16, on the small ResNet."""
    from tests.contract.test_training_options import OPTIONS as TRAINING
    from tests.contract.test_training_options import ROUND_OPTIONS as ROUNDS

    plain = replace(CONFIG, method="fedavg")
    found = {
        **{f"local {name}": replace(plain, local=replace(plain.local, **o)) for name, o in TRAINING.items()},
        **{name: replace(one, method="fedavg", model=plain.model) for name, one in ROUNDS.items()},
        "clipped updates": replace(plain, privacy=Privacy(clip=0.5), model=Model("mlp", {"hidden": [16]})),
        "masks": replace(plain, privacy=Privacy(masks=True)),
        "bf16": replace(plain, numerics=Numerics(precision="bf16")),
        "bf16, stacks, adamw": replace(
            plain, numerics=Numerics(3, "bf16"), local=replace(plain.local, optimizer="adamw")
        ),
        "stacks, kept adam": replace(
            plain,
            numerics=Numerics(3),
            local=replace(plain.local, optimizer="adam", keep_optimizer=True, schedule="cosine"),
        ),
    }
    on_a_gpu = Runtime(execution="serial", gpu_fraction=1.0, checkpoint_every=1)
    return {name: replace(one, runtime=on_a_gpu) for name, one in found.items()}


class Counted(GraphRecorder):
    """CUDA graphs, and how many of them there were."""

    recordings = 0

    def record(self, step: Callable[[], torch.Tensor]) -> tuple[torch.Tensor, Repeat]:
        made = super().record(step)
        self.recordings += 1
        return made


@pytest.mark.parametrize("numerics", [Numerics(), Numerics(3), Numerics(3, "bf16")], ids=str)
@pytest.mark.parametrize("method", ["map", "fedavg", "fedrep", "fedbabu"])
def test_a_run_with_and_without_cuda_graphs_has_the_same_bits(
    method: str, numerics: Numerics, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One by one, MAP records steps for each client, FedAvg once for all, FedRep once for each part."""
    long = replace(CONFIG, local=replace(CONFIG.local, epochs=6, batch_size=16))
    one, hashes = replace(long, method=method, numerics=numerics), []
    for value in ("on", "off"):
        monkeypatch.setenv("RAFFED_CUDA_GRAPHS", value)
        hashes.append(raffed.run(one, tmp_path / value).hashes)
    assert hashes[0] == hashes[1]


def test_what_reads_a_number_within_a_step_is_trained_without_a_graph() -> None:
    recorder, x = GraphRecorder(torch.device(DEVICE)), torch.ones(3, device=DEVICE)

    def reading() -> torch.Tensor:
        return x * float(x.sum())

    with pytest.raises(RuntimeError):
        recorder.record(reading)
    found, repeat = recorder.record(lambda: x * 2)
    x.fill_(5.0)
    repeat()
    assert found.tolist() == [10.0] * 3


RUNS = _option_runs()


@pytest.mark.parametrize("name", RUNS)
def test_a_run_with_any_option_has_the_same_bits_when_it_is_resumed_and_verifies(
    name: str, tmp_path: Path
) -> None:
    done: list[int] = []
    whole = raffed.run(RUNS[name], tmp_path / "whole")
    raffed.run(
        RUNS[name], tmp_path / "cut", watch=lambda e: done.append(e.round), stop=lambda: len(done) == 1
    )
    assert raffed.resume(tmp_path / "cut").hashes == whole.hashes
    assert raffed.verify(tmp_path / "whole", progress=False).ok


@pytest.mark.parametrize("name", ["map", "scaffold", "fedproto", "apfl"])
def test_a_killed_actor_of_half_a_gpu_changes_no_bit(name: str, tmp_path: Path) -> None:
    """The actor that comes instead of it finds its clients' private states on the GPU again."""
    config = replace(CONFIG, method=name, federation=Federation(rounds=3))
    alone = raffed.run(config, tmp_path / "serial").hashes
    packed = replace(config, runtime=Runtime(execution="ray", gpu_fraction=0.5, checkpoint_every=1))
    killed: list[int] = []

    def kill(event: RoundEvent) -> None:
        if not killed:
            place = json.loads((tmp_path / "ray" / "run.json").read_text())["placement"]["places"][0]
            killed.append(place["pid"])
            os.kill(killed[0], signal.SIGKILL)

    assert raffed.run(packed, tmp_path / "ray", watch=kill).hashes == alone
    assert killed
