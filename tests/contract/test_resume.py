"""A run that was stopped, or whose process died, ends in the same bits as one that was not
(docs/papers/map.md §6 M6, docs/papers/baselines.md G1).
"""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

import raffed
from raffed import Data, Federation, Local, Model, RunConfig, RunResult, Runtime
from raffed.methods import METHODS
from raffed.results.runfile import read_run
from tests.params import one_in
from tests.tiny import SHORT

BASE = RunConfig(
    data=Data(split="dirichlet:6:0.3", samples=600),
    model=Model("mlp", {"hidden": [10]}),
    local=Local(lr=0.05, batch_size=32, epochs=1),
    federation=Federation(rounds=4, participation=0.5),
    runtime=Runtime(execution="serial", checkpoint_every=2),
)
BATCHNORM = replace(
    BASE,
    method="scamap",
    model=Model("resnet8"),
    local=Local(lr=0.05, batch_size=32, epochs=0.4),
    federation=Federation(rounds=3, participation=0.34),
)


def killed(config: RunConfig, path: Path, after: int) -> RunResult:
    """A run from beginning to end. A copy of its folder, as it was when round `after` + 1 was over and the
    newest checkpoint was that of round `after`, is resumed to the same weights, vaults and metrics.
    """
    done: list[int] = []

    def snapshot(event: object) -> None:
        done.append(len(done) + 1)
        if done[-1] == after + 1:  # no checkpoint of this round was written yet
            shutil.copytree(path / "whole", path / "killed")

    whole = raffed.run(config, out=path / "whole", watch=snapshot)
    assert set(whole.hashes) == {"weights", "vaults", "metrics"}
    assert read_run(path / "killed")["state"] == "running"
    assert raffed.resume(path / "killed").hashes == whole.hashes
    return whole


def check(config: RunConfig, path: Path, after: int) -> None:
    """Weights, vaults and metrics: as asked to stop after round `after`, and as killed in the round after
    that.
    """
    whole = killed(config, path, after)
    seen: list[object] = []
    stopped = raffed.run(config, out=path / "stopped", watch=seen.append, stop=lambda: len(seen) >= after)
    assert (stopped.state, stopped.hashes, len(seen)) == ("stopped", {}, after)
    assert raffed.resume(path / "stopped").hashes == whole.hashes
    assert raffed.resume(path / "whole").hashes == whole.hashes  # finished: nothing is done


@pytest.mark.parametrize("name", one_in(4, METHODS))
def test_dying_in_the_middle_and_resuming_gives_the_same_three_hashes(name: str, tmp_path: Path) -> None:
    killed(replace(BASE, method=name, args=SHORT.get(name, {})), tmp_path, after=2)


# What a method keeps is read from the same checkpoint after a stop as after a death, so a method of each kind
# of memory is enough: none, the client's and the server's, own layers, and the server's alone.
STOPPED = ("fedavg", "scamap", "fedrep", "creff")


@pytest.mark.parametrize(
    "name", [one if one in STOPPED else pytest.param(one, marks=pytest.mark.slow) for one in METHODS]
)
def test_stopping_in_the_middle_and_resuming_gives_the_same_three_hashes(name: str, tmp_path: Path) -> None:
    check(replace(BASE, method=name, args=SHORT.get(name, {})), tmp_path, after=2)


@pytest.mark.parametrize("after", [1, 2])
def test_gldp_s_snapshot_of_the_prototypes_comes_back_with_the_server_s_memory(
    after: int, tmp_path: Path
) -> None:
    """docs/papers/gldp.md A7: stopped inside a round of two stages and after one; what is sent is not
    what the server has.
    """
    args = {"body_epochs": 1.0, "head_epochs": 1.0, "proto_snapshot": True}
    check(replace(BASE, method="gldp", args=args, data=Data(split="stages:6:3:2:if4")), tmp_path, after)


@pytest.mark.slow
def test_the_same_with_batchnorm_memories_of_every_kind_and_a_stop_between_checkpoints(
    tmp_path: Path,
) -> None:
    check(BATCHNORM, tmp_path, after=1)


def test_each_methods_three_hashes_differ_from_fedavgs_where_it_keeps_something(tmp_path: Path) -> None:
    """The hashes see what they are meant to see: MAP's server with α = 1 is FedAvg's, its vaults are not."""
    plain, mine = raffed.run(BASE), raffed.run(replace(BASE, method="map", args={"alpha": 1.0}))
    assert plain.hashes["weights"] == mine.hashes["weights"]
    assert plain.hashes["vaults"] != mine.hashes["vaults"]
    assert plain.hashes["metrics"] != mine.hashes["metrics"]
