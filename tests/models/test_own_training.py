"""Runs with networks of one's own: the same algorithm, the same bits, and weights that go back and forth."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from safetensors.torch import load_file
from torch import Tensor, nn
from typer.testing import CliRunner

import raffed
from raffed.cli.app import app
from raffed.core.seeds import forked, seed
from raffed.data.transforms import prepare_inputs
from raffed.errors import UsageError
from raffed.results.runfile import read_run
from raffed.runtime.setup import Setup, prepare_run
from tests.models.own_nets import SmallNet, chain
from tests.params import one_in
from tests.tiny import digits

HOME = "tests.models.own_nets"
SMALL = raffed.Model(name=SmallNet, args={"width": 3})
STATES = dict[str, Tensor]


def config(model: raffed.Model = SMALL, method: str = "fedavg", **other: object) -> raffed.RunConfig:
    local = raffed.Local(lr=0.05, batch_size=64, epochs=2)
    made = digits("iid:3", method=method, samples=120, local_test=0.2, local=local)
    return replace(made, model=model, **other)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("own") / "run"
    raffed.run(config(), folder)
    return folder


def by_hand(asked: raffed.RunConfig) -> STATES:
    """FedAvg written out: every client takes full-batch steps of SGD, then the mean by samples."""
    setup = prepare_run(asked)
    with forked(seed(asked.seed, "weights")):
        net = SmallNet(10, width=3)
    server = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    for _ in range(asked.federation.rounds):
        ends = [trained(net, server, asked.local, *samples(setup, rows)) for rows in setup.partition.train]
        total = sum(setup.data.sizes)
        server = {
            name: sum(n / total * end[name] for n, end in zip(setup.data.sizes, ends, strict=True))
            for name in server
        }  # type: ignore[assignment]
    return server


def samples(setup: Setup, rows: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
    x = prepare_inputs(setup.dataset.x[rows], setup.data.transform, setup.dataset.max_value)
    return x, torch.from_numpy(setup.dataset.y[rows])


def trained(net: nn.Module, start: STATES, local: raffed.Local, x: Tensor, y: Tensor) -> STATES:
    net.load_state_dict(start)
    net.train()
    sgd = torch.optim.SGD(net.parameters(), local.lr, local.momentum, weight_decay=local.weight_decay)
    for _ in range(int(local.epochs)):
        sgd.zero_grad()
        F.cross_entropy(net(x), y).backward()
        sgd.step()
    return {name: tensor.clone() for name, tensor in net.state_dict().items()}


def test_fedavg_with_a_user_s_network_is_sgd_and_the_mean_written_out(finished: Path) -> None:
    found, wanted = raffed.load_model(finished).state_dict(), by_hand(config())
    for name in wanted:
        if not name.endswith("num_batches_tracked"):
            torch.testing.assert_close(found[name], wanted[name], atol=1e-6, rtol=0)


@pytest.mark.parametrize("cohort", one_in(2, [0, 3]))
def test_a_network_by_reference_has_the_bits_of_the_built_in_one(cohort: int) -> None:
    numerics = raffed.Numerics(cohort=cohort)
    names = ("mlp", "raffed.models.mlp:mlp", f"{HOME}:chain")
    results = [raffed.run(config(raffed.Model(name=name), numerics=numerics)).to_pandas() for name in names]
    kept = [rows.drop(columns=["run_id", "seconds"]) for rows in results]
    for other in kept[1:]:
        assert kept[0].equals(other)


@pytest.mark.parametrize("method", one_in(2, ["fedrep", "fedrod", "map", "fedproto"]))
def test_methods_that_divide_the_network_train_the_user_s(method: str) -> None:
    local = raffed.Local(lr=0.2, batch_size=8, epochs=5)
    one = raffed.run(config(replace(SMALL, args={"width": 6}), method, local=local))
    assert one.personalization > 0.2


@pytest.mark.parametrize("cohort", [0, 3])
@pytest.mark.parametrize("name", ["one_activation", "repeated"])
def test_the_model_of_a_run_has_the_accuracy_that_the_run_says(
    name: str, cohort: bool, tmp_path: Path
) -> None:
    """Also with an object that stands in two places of a Sequential."""
    asked = config(raffed.Model(f"{HOME}:{name}"), numerics=raffed.Numerics(cohort=cohort))
    result = raffed.run(replace(asked, local=raffed.Local(lr=0.1, batch_size=8, epochs=10)), tmp_path / "run")
    setup = prepare_run(asked)
    x = prepare_inputs(setup.dataset.x_test, setup.data.transform, setup.dataset.max_value)
    right = raffed.load_model(tmp_path / "run")(x).argmax(1).numpy() == setup.dataset.y_test
    assert result.accuracy == pytest.approx(right.mean(), abs=1e-6)


def test_load_model_returns_the_user_s_class_and_export_its_weights(finished: Path, tmp_path: Path) -> None:
    model, file = raffed.load_model(finished), tmp_path / "model.pt"
    assert type(model) is SmallNet
    assert not model.training
    done = CliRunner().invoke(app, ["export", str(finished), "--out", str(file)])
    assert done.exit_code == 0, done.output
    raffed.export(finished, tmp_path / "table.safetensors")
    own, x = SmallNet(10, width=3), torch.rand(5, 1, 8, 8)
    for weights in (torch.load(file, weights_only=True), load_file(tmp_path / "table.safetensors")):
        own.load_state_dict(weights)
        assert torch.equal(own.eval()(x), model(x))


def test_a_run_that_starts_from_an_export_goes_on_from_its_accuracy(finished: Path, tmp_path: Path) -> None:
    file, before = tmp_path / "model.pt", raffed.resume(finished).accuracy
    raffed.export(finished, file)
    still = raffed.Local(lr=1e-9, batch_size=64, momentum=0.0, weight_decay=0.0)
    asked = config(replace(SMALL, init=str(file)), local=still, federation=raffed.Federation(rounds=1))
    again = raffed.run(asked, tmp_path / "b")
    loaded, started = (raffed.load_model(one).state_dict() for one in (finished, tmp_path / "b"))
    torch.testing.assert_close(started["fc.weight"], loaded["fc.weight"], atol=1e-6, rtol=0)
    assert abs(again.accuracy - before) < 0.05  # BatchNorm's statistics move
    assert read_run(tmp_path / "b")["config"]["model"]["init_sha256"] == asked.model.init_sha256


def test_the_identity_covers_the_hash_of_the_first_weights_and_not_their_place(tmp_path: Path) -> None:
    for name, number in (("a.pt", 1.0), ("b.pt", 1.0), ("c.pt", 2.0)):
        torch.save({"w": torch.full((2,), number)}, tmp_path / "plain.pt")
        (tmp_path / "plain.pt").rename(tmp_path / name)
    a, b, c = (
        config(replace(SMALL, init=str(tmp_path / name))).identity() for name in ("a.pt", "b.pt", "c.pt")
    )
    assert a == b
    assert a != c
    assert config().identity() != a


def test_first_weights_that_are_gone_changed_or_do_not_fit_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "model.pt"
    with pytest.raises(UsageError, match="No such file"):
        raffed.Model(init=str(file))
    torch.save(chain(10).state_dict(), file)
    asked = config(replace(SMALL, init=str(file)))
    with pytest.raises(
        UsageError, match=r"does not fit the network: missing stem\.weight.*unexpected 1\.weight"
    ):
        raffed.run(asked)
    torch.save({}, file)
    with pytest.raises(UsageError, match="put that file back"):
        raffed.run(asked)


@pytest.mark.parametrize("method", ["fedrep", "fedala", "fedfomo"])
def test_a_client_s_personal_model_is_the_one_that_the_survey_scores(method: str, tmp_path: Path) -> None:
    """FedALA's attacker mixes by its flipped labels, and FedFomo's clients by their validation parts."""
    data = raffed.Data("digits", "dirichlet:3:0.5", local_test=0.5, validation=0.2)
    local, federation = raffed.Local(lr=0.3, batch_size=16, epochs=4), raffed.Federation(rounds=3, survey=1)
    faults = raffed.Faults(attack="label_flip", attacker_list="0") if method == "fedala" else raffed.Faults()
    asked = replace(config(method=method, federation=federation), data=data, local=local, faults=faults)
    rows = raffed.run(asked, tmp_path / "run").to_pandas()
    if method == "fedrep":
        with pytest.raises(UsageError, match=r"fedrep has no global model.*--client"):
            raffed.load_model(tmp_path / "run")
    setup = prepare_run(asked)
    rows = rows[(rows["metric"] == "accuracy_between") & (rows["model"] == "personal")]
    for client in range(3):
        x, y = samples(setup, setup.partition.test[client])
        found = (raffed.load_model(tmp_path / "run", client=client)(x).argmax(1) == y).float().mean()
        assert float(found) == pytest.approx(float(rows[rows["client"] == client]["value"].iloc[0]))


def test_a_batch_of_one_that_batchnorm_cannot_train_on_is_refused_before_work() -> None:
    local = raffed.Local(batch_size=31, epochs=1)  # clients have 32 training samples
    with pytest.raises(UsageError, match=r"batch of one sample \(BatchNorm\), and client 0 has 32 samples"):
        raffed.run(config(raffed.Model(name=f"{HOME}:flat_norm"), local=local))
    raffed.run(config(raffed.Model(name=f"{HOME}:flat_norm"), local=replace(local, drop_last=True)))


def test_a_batch_of_one_is_looked_for_in_every_stage() -> None:
    """Of 46 samples in each of two stages, batches of 9 leave one alone. Of 92 at once they would not."""
    run = config(raffed.Model(name=f"{HOME}:flat_norm"))
    data = replace(run.data, split="stages:4:3:2:if1", samples=400, local_test=None)
    run = replace(run, data=data, federation=raffed.Federation(rounds=2))
    sizes = prepare_run(run).data
    assert (sizes.sizes, sizes.sizes_at(0), sizes.sizes_at(1)) == ([92] * 4, [46] * 4, [46] * 4)
    with pytest.raises(UsageError, match=r"client 0 has 46 samples with batches of 9"):
        raffed.run(run.changed({"local.batch_size": 9}))
    raffed.run(run.changed({"local.batch_size": 7}))  # 92 at once would leave one alone
