"""Clients on a device that is not the CPU, the server on it: every method trains there, and has the CPU's
bits.

A GPU's kernels round in their own way, which is all that such a device leaves out
(tests/devices/elsewhere.py): what is moved, and when, is here as it is there.
"""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from raffed.reproductions.studies import STUDIES
from torch import Tensor

import raffed
from raffed import Federation, Local, RunConfig
from raffed.core.aggregation.exact_sums import PointSum
from raffed.core.context import ClientData
from raffed.core.messages import ClientState
from raffed.core.params import Params
from raffed.core.training.network import Network
from raffed.methods import METHODS
from raffed.runs import federation
from raffed.runs.folder import RunFolder
from raffed.runtime.api import ActorShare, ParticipantOrder, RoundOrder
from raffed.runtime.setup import Setup, prepare_run
from raffed.runtime.worker import ClientWorker, SerialBackend
from raffed.tables.items import Work, execute_study
from raffed.testing.federation import with_last_layers
from tests.devices import elsewhere
from tests.devices.elsewhere import Elsewhere, MixedError
from tests.params import one_in
from tests.tiny import NOISY, OF_EACH_KIND, SHORT, Tiny, clients, digits, leaves, module, same_bits, short

BASE = digits(
    hidden=10,
    local_test=0.2,
    samples=300,
    local=Local(0.05, 0.9, batch_size=128, epochs=1),
    federation=Federation(2, 0.5),
)


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> torch.device:
    if torch.cuda.is_available():
        pytest.skip("torch has one accelerator at a time, and here it is a GPU (test_gpu.py)")
    return elsewhere.install(monkeypatch.setattr)


VARIANTS: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "survey, validation, spectrum": (
        {"data.validation": 0.2, "federation.survey": 1, "federation.measures": "spectrum"},
        tuple(METHODS),
    ),
    "stages": (
        {"data": {"split": "stages:4:3:3:if4"}, "federation.rounds": 3},
        ("gldp", "fedavg", "fedproto"),
    ),
    "clipped": ({"privacy.clip": 0.5}, ("fedavg", "fedprox")),
    "masks": ({"privacy.masks": True}, ("fedavg", "fedmr")),
    "damaged uploads": ({"faults.corrupt": 0.5, "faults.straggle": 0.5}, ("fedavg", "fedmr", "scaffold")),
}


@raffed.metric(unit="fraction")
def right(scores: Tensor, labels: Tensor) -> Tensor:
    """The share of right answers."""
    return (scores.argmax(-1) == labels).double().mean()


CLOSING = ("ccvr",)  # whose last round only looks at the model, and leaves its weights


class Posting(SerialBackend):
    """One process that posts what a host answers, as actors do: a tensor of the device cannot travel. All
    vaults but the one used last are on disk, where there is no device.
    """

    def __init__(self, setup: Setup, client_states: Path, device: torch.device | str) -> None:
        super().__init__(setup, client_states)
        self._worker = ClientWorker(setup, client_states, device)
        self._worker.store.limit = 1

    def train(self, job: RoundOrder) -> Any:
        asked = super().train(job)
        return lambda: posted(asked())

    asked: ClassVar[list[str]] = []  # kinds of the server's work

    def server_work(self, work: Any) -> Any:
        self.asked.append(type(work).__name__)
        return posted(super().server_work(posted(work)))


def posted(value: Any) -> Any:
    """As it arrives in another process."""
    return pickle.loads(pickle.dumps(value))


def outcome(config: RunConfig, path: Path, device: torch.device | str) -> tuple[Any, ...]:
    """Hashes of every round's weights and of the last vaults, and what a watcher saw, but for the time it
    took.
    """
    setup = prepare_run(config)
    runtime = Posting(setup, path / "vaults", device)
    run = federation.RoundLoop(setup, runtime, RunFolder(path / "run", setup))
    events = [
        replace(event, seconds=0.0, profile=None) for event in run.rounds(count=config.federation.rounds)
    ]
    digests = runtime.client_state_digests(run.now.versions)
    runtime.close()
    new = len(set(run.now.round_hashes)) + (config.method in CLOSING)
    assert new == config.federation.rounds or not run.method.has_global  # it trains
    return run.now.round_hashes, digests, str(events)


# Rules that train or measure on the server, and memories that are not summed: what is moved is their own
MOVING = ("creff", "fedaws", "fedic", "fedproto", "fedtgp", "pfedfda", "scaffold")
FAST = (*OF_EACH_KIND, *MOVING)


def run_of(variant: str, name: str) -> object:
    slow = [pytest.mark.slow] if variant.startswith("survey") and name not in FAST else []
    return pytest.param(variant, name, marks=slow, id=f"{variant}-{name}")


@pytest.mark.parametrize(
    ("variant", "name"), one_in(4, [run_of(v, name) for v, (_, names) in VARIANTS.items() for name in names])
)
def test_a_run_whose_clients_are_on_a_device_has_the_bits_of_one_on_the_cpu(
    variant: str, name: str, tmp_path: Path, device: torch.device
) -> None:
    config = BASE.changed({**VARIANTS[variant][0], "method": name, "args": SHORT.get(name, {})})
    assert outcome(config, tmp_path / "there", device) == outcome(config, tmp_path / "here", "cpu")


def test_the_server_works_with_a_network_where_clients_train(tmp_path: Path, device: torch.device) -> None:
    """Otherwise a ResNet's distillation, or its scores on a test set, would take a GPU's user hours of one
    core. On the CPU nothing is sent.
    """
    config = replace(BASE, method="feddf", data=replace(BASE.data, validation=0.2))
    config = replace(config, federation=replace(BASE.federation, metrics=f"{__name__}:right"))
    Posting.asked.clear()
    here = outcome(config, tmp_path / "here", "cpu")
    assert not Posting.asked
    assert outcome(config, tmp_path / "there", device) == here
    assert Posting.asked == ["RuleStep", "ModelScoring", "ModelScores", "ModelScores"] * 2


def rounds_of(name: str, cohort: bool) -> object:
    slow = [] if name in OF_EACH_KIND else [pytest.mark.slow]
    return pytest.param(name, cohort, marks=slow, id=f"{'stacks' if cohort else 'one by one'}-{name}")


@pytest.mark.parametrize(
    ("name", "cohort"), one_in(2, [rounds_of(n, c) for c in (False, True) for n in METHODS])
)
def test_rounds_with_dropout_batchnorm_and_augmentation(
    name: str, cohort: bool, device: torch.device
) -> None:
    """Server and vaults, bit for bit; the server's side holds nothing of the device."""
    ended = []
    for where in (torch.device("cpu"), device):
        net = Network(with_last_layers(module(norm=True, dropout=0.3), short(name)), where)
        data = [ClientData(one.x.to(where), one.y.to(where), one.class_counts.to(where)) for one in clients()]
        tiny = Tiny(short(name), net=net, data=data, cohort=cohort, augment=NOISY).run(2, [1, 3])
        assert all(
            (type(t) is Elsewhere) == (where == device)
            for c in tiny.client_states
            for t in leaves(tiny.client_states[c])
            if t.numel()
        )
        assert not any(type(t) is Elsewhere for t in leaves(tiny.server))
        ended.append([t.cpu() for t in tiny.everything()])
    assert same_bits(*ended)


QUICK_STUDIES = (
    "averaged_classifiers",
    "proxy_statistics",
)  # the others take longer than all methods


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[] if n in QUICK_STUDIES else [pytest.mark.slow]) for n in STUDIES]
)
def test_a_study_that_trains_on_a_device_has_the_bits_of_one_on_the_cpu(
    name: str, tmp_path: Path, device: torch.device
) -> None:
    for place, where in (("here", "cpu"), ("there", str(device))):
        execute_study(Work(name, "smoke", 0, tmp_path / place, device=where))
    files = sorted(path.relative_to(tmp_path / "here") for path in (tmp_path / "here").rglob("*.parquet"))
    assert files
    for file in files:
        assert (tmp_path / "here" / file).read_bytes() == (tmp_path / "there" / file).read_bytes(), file


@pytest.mark.parametrize("first_here", [True, False])
def test_layers_that_clients_keep_are_summed_wherever_they_lie(
    first_here: bool, monkeypatch: pytest.MonkeyPatch, device: torch.device
) -> None:
    """One vault in memory, another read back from disk."""
    host = ClientWorker(prepare_run(replace(BASE, method="fedrep")), None, device)
    own = [Params({"head.weight": torch.full((2, 3), value)}).clone() for value in (1.0, 5.0)]
    where = [own[0], own[1].to(device)] if first_here else [own[0].to(device), own[1]]
    monkeypatch.setattr(host.store, "get", lambda client, version: ClientState(where[client], Params({}), {}))
    total = PointSum()
    total.merge(
        host.own_layers(ActorShare(((ParticipantOrder(0, 0.5, 1), ParticipantOrder(1, 0.5, 1)),), False))
    )
    assert total.value(own[0])["head.weight"].tolist() == [[3.0] * 3] * 2


def test_the_device_refuses_what_a_gpu_refuses(device: torch.device) -> None:
    """Else the tests above could not fail."""
    there = torch.ones(3, 4).to(device)
    with pytest.raises(MixedError, match="on the CPU"):
        there + torch.ones(3, 4)
    with pytest.raises(MixedError):
        there.index_select(0, torch.tensor([0]))
    with pytest.raises(RuntimeError):
        there.numpy()
    with pytest.raises(RuntimeError, match="travels"):
        pickle.dumps(there)
    assert type(there[torch.tensor([0])]) is Elsewhere  # a GPU takes indices of the CPU's
    assert type(there * torch.tensor(2.0)) is Elsewhere  # and numbers
    with pytest.raises(MixedError):
        torch.ones(3, 4) * torch.tensor(2.0).to(device)  # but not the other way round
