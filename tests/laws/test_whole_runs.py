"""Laws of whole runs: the front door, personal slots that never move the server, rate 0."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import raffed
from raffed import Federation, Local, Model, RunConfig
from raffed.core.context import ClientData
from raffed.core.method import Method
from raffed.core.params import Params, State
from raffed.core.training.network import Network
from raffed.methods import build_method
from raffed.methods.feddc import ClientDrift, DriftControl, ServerCorrection
from raffed.methods.fedrs import fedrs
from raffed.methods.map import map_, scamap, scars
from raffed.methods.scaffold import ClientControl, ControlVariate, ServerControl
from raffed.models import build
from tests.params import one_in
from tests.tiny import NOISY, PLAIN, SHORT, Tiny, bare_context, digits, network, same_bits
from tests.tiny import body_point as point

# The laws through the front door: `raffed.run` on digits, serial, hashes of every round's weights.

BASE = digits(hidden=10, federation=Federation(3, 0.5))
BATCHNORM = replace(
    BASE,
    model=Model("resnet8"),
    local=Local(lr=0.05, batch_size=32, epochs=0.4),
    federation=Federation(rounds=2, participation=0.34),
)


def rounds_of(path: Path, method: str, config: RunConfig = BASE, **args: Any) -> list[str]:
    """SHA-256 of weights and buffers after every round."""
    raffed.run(replace(config, method=method, args=args), out=path / f"{method}-{len(list(path.iterdir()))}")
    found = max(path.iterdir(), key=lambda p: int(p.name.rpartition("-")[2]))
    hashes: list[str] = json.loads((found / "run.json").read_text())["round_hashes"]
    assert len(set(hashes)) == config.federation.rounds  # it trains
    return hashes


def test_fedavg_and_every_method_at_0_give_the_same_weights_after_every_round(tmp_path: Path) -> None:
    plain = rounds_of(tmp_path, "fedavg")
    assert rounds_of(tmp_path, "fedprox", mu=0.0) == plain
    assert rounds_of(tmp_path, "fedrs", alpha=1.0) == plain
    assert rounds_of(tmp_path, "fedmr", mu1=0.0, mu2=0.0) == plain
    assert rounds_of(tmp_path, "fedprox", mu=0.5) != plain


@pytest.mark.parametrize(("with_personal", "without"), one_in(2, [("map", "fedrs"), ("scamap", "scars")]))
def test_the_servers_of_map_and_scamap_are_those_of_fedrs_and_scars(
    with_personal: str, without: str, tmp_path: Path
) -> None:
    """docs/papers/map.md §6 M1 with a BatchNorm net."""
    mine = rounds_of(tmp_path, with_personal, BATCHNORM, lam=0.5, transfer="mmd")
    assert mine == rounds_of(tmp_path, without, BATCHNORM)


JUDGED_BY_MORE = (  # whose scores take more than a forward pass of what is sent or kept
    "map",
    "flda",
    "fedrod",
    "ditto",
    "fedproto",
    "feddf",
    "finetune",
    "pfedme",
    "perfedavg",
    "apfl",
    "gldp",
    "mpfedcon",
)


SHORT_OF_THEM = {"map", "fedrod", "ditto", "feddf", "gldp"}  # of each kind of judgement one


@pytest.mark.more
@pytest.mark.parametrize(
    "method",
    [pytest.param(m, marks=[] if m in SHORT_OF_THEM else [pytest.mark.slow]) for m in JUDGED_BY_MORE],
)
def test_evaluating_every_round_or_only_at_the_end_gives_the_same_weights_and_vaults(method: str) -> None:
    """docs/papers/baselines.md G4, with a BatchNorm net."""
    data = replace(BATCHNORM.data, local_test=0.2, samples=600)
    config = replace(BATCHNORM, method=method, args=SHORT.get(method, {}), data=data)
    seldom = replace(config, federation=replace(config.federation, eval_every=2))
    often, rare = raffed.run(config), raffed.run(seldom)
    assert often.hashes["weights"] == rare.hashes["weights"]
    assert often.hashes["vaults"] == rare.hashes["vaults"]
    assert often.metrics.num_rows > rare.metrics.num_rows


def test_every_method_has_the_same_split() -> None:
    """docs/papers/map.md §E2.3 S5: the hash of all index lists, whatever the method; but for those that
    take labelled images out of the pool first.
    """
    from raffed.methods import METHODS, build_method
    from raffed.runtime.setup import prepare_run

    reserving = {name for name in METHODS if build_method(name).server.required_data().labelled}
    args = {"fedfomo": {"judge": "train"}}  # by default it judges by samples that are held out
    found = {
        prepare_run(replace(BASE, method=name, args=args.get(name, {}))).partition.sha256()
        for name in METHODS
        if name not in reserving
    }
    assert len(found) == 1
    assert reserving == {"fedic"}


def test_scores_do_not_depend_on_alpha_where_weights_do_not() -> None:
    """docs/papers/map.md §6 R5: with rate 0 the model never moves, so every accuracy and test loss is the
    same for α = 0.1 and 1.
    """
    still = replace(BASE, method="fedrs", local=replace(BASE.local, lr=0.0))
    scores = []
    for alpha in (0.1, 1.0):
        rows = raffed.run(replace(still, args={"alpha": alpha})).to_pandas()
        rows = rows[rows["split"] != "train"]
        scores.append(
            rows[["round", "client", "class", "model", "split", "metric", "value"]].reset_index(drop=True)
        )
    assert len(scores[0]) > 30
    assert scores[0].equals(scores[1])


def test_the_personal_score_of_a_single_model_method_is_the_local_one_after_training() -> None:
    """docs/papers/baselines.md §0, Definition 2: FedAvg's Def. 2 is ω_k after local training; MAP's is
    not.
    """
    for method, equal in (("fedavg", True), ("map", False)):
        rows = raffed.run(replace(BASE, method=method)).to_pandas()
        rows = rows[(rows["split"] == "local_test") & (rows["metric"] == "accuracy") & rows["client"].notna()]
        rows = rows.sort_values(["round", "client"])
        values = [list(rows[rows["model"] == model]["value"]) for model in ("local", "personal")]
        assert len(values[0]) == 9  # 3 clients in each of 3 rounds
        assert (values[0] == values[1]) == equal


@pytest.mark.parametrize("split", one_in(2, ["stages:20:4:1:if5", "stages:4:4:5:if5"]))
def test_gldp_by_its_clients_own_prototypes_is_above_chance(split: str) -> None:
    """docs/papers/gldp.md §ED: t = 1, s = 2, K = 3. A client knows four classes at least: chance is 1/4
    or less.
    """
    stages = int(split.split(":")[3])
    config = digits(
        split,
        64,
        method="gldp",
        args={"body_epochs": 1.0, "head_epochs": 2.0},
        local=Local(0.05, 0.5, batch_size=8, epochs=3),
        federation=Federation(3 * stages, 0.2 if stages == 1 else 0.5),
    )
    rows = raffed.run(config).to_pandas()
    own = rows[(rows["model"] == "personal") & (rows["metric"] == "accuracy") & rows["client"].notna()]
    assert len(own) == 3 * stages * (4 if stages == 1 else 2)
    assert own["value"].mean() > 0.5


# A personal slot never changes w: MAP's server is FedRS's, ScaMAP's is ScaRS's, bit for bit
# (docs/papers/map.md §6 M1).
#
# The sharpest law there is: it catches uploading stage 2, a shared optimiser, a leaking random stream and
# in-place edits of ω_k.

PERSONAL: list[dict[str, Any]] = [
    {},
    {"lam": 0.9, "mu": 0.1},
    {"lam": 1.0, "mu": 1.0, "transfer": "mmd"},
    {"lam": 0.5, "transfer": "mmd", "share": 2.0},
    {"kd_student_tau": 4.0, "kd_tau_sq": True, "lr_scale": 1.0},
    {"share": 0.0, "least": 0},
]
PAIRS: dict[str, tuple[Callable[..., Method], Callable[..., Method]]] = {
    "MAP": (map_, fedrs),
    "ScaMAP": (scamap, scars),
}


def images() -> list[ClientData]:
    """4 clients of 1x8x8 images, 3 classes."""
    g = torch.Generator().manual_seed(0)
    made = []
    for owned in ((0, 1), (1, 2), (0,), (0, 1, 2)):
        y = torch.tensor([owned[i % len(owned)] for i in range(8)])
        x = torch.randn(8, 1, 8, 8, generator=g) + y[:, None, None, None]
        made.append(ClientData(x, y, torch.bincount(y, minlength=3)))
    return made


def resnet(method: Method) -> Tiny:
    net = Network(build("resnet8", (1, 8, 8), 3, 0))
    return Tiny(method, net=net, data=images(), local=Local(lr=0.05, batch_size=4, epochs=1), augment=NOISY)


SETTINGS: dict[str, Callable[[Method], Tiny]] = {
    "plain": Tiny,
    "batchnorm, augmented": lambda m: Tiny(m, net=network(norm=True), augment=NOISY),
    "dropout": lambda m: Tiny(m, net=network(norm=True, dropout=0.3)),
    "resnet8, augmented": resnet,
}


CASES = [
    (pair, setting, args)
    for pair in PAIRS
    for setting in SETTINGS
    for args in PERSONAL
    if setting != "resnet8, augmented" or args in PERSONAL[1:3]
]


@pytest.mark.parametrize(("pair", "setting", "args"), one_in(3, CASES))
def test_the_server_never_sees_the_private_stage(pair: str, setting: str, args: dict[str, Any]) -> None:
    """w, b, c, every upload and every reported loss; 3 rounds of 2 of 4 clients."""
    assert len(CASES) == 40
    with_personal, without = PAIRS[pair]
    mine, plain = SETTINGS[setting](with_personal(**args)), SETTINGS[setting](without())
    for _ in range(3):
        done, bare = mine.step(), plain.step()
        assert same_bits(mine.server, plain.server)
        for client in bare:
            assert same_bits(done[client].upload, bare[client].upload)
            assert same_bits(done[client].trained, bare[client].trained)
            assert done[client].loss == bare[client].loss


@pytest.mark.parametrize("pair", PAIRS)
@pytest.mark.parametrize(
    "change", [{"lam": 0.9}, {"mu": 0.1}, {"transfer": "mmd"}, {"share": 3.0}, {"lr_scale": 1.0}]
)
def test_but_the_private_model_does_depend_on_every_one_of_its_parameters(
    change: dict[str, Any], pair: str
) -> None:
    """The law is not vacuous: the HPMs differ after two visits."""
    make = PAIRS[pair][0]
    one, two = Tiny(make()).run(3, [0, 1]), Tiny(make(**change)).run(3, [0, 1])
    for client in (0, 1):
        assert not same_bits(
            one.client_states[client].slots["personal"], two.client_states[client].slots["personal"]
        )


@pytest.mark.parametrize(("pair", "setting"), one_in(3, itertools.product(PAIRS, SETTINGS)))
def test_scoring_the_private_models_in_between_changes_nothing(pair: str, setting: str) -> None:
    """docs/papers/baselines.md G4 in memory: apply every model that is scored, after every client."""
    quiet, watched = (SETTINGS[setting](PAIRS[pair][0]()) for _ in range(2))
    for _ in range(2):
        quiet.step()
        for client, done in watched.step().items():
            for state in (done.start, done.trained, done.personal_state(watched.method)):
                watched.net.apply(state, watched.data[client].x)
    assert same_bits(quiet.everything(), watched.everything())


# At rate 0 nobody moves, so neither does the server, and nothing is divided by the rate.

PAPER = ("fedavg", "fedprox", "fedproc", "fednova", "moon", "feddyn", "feddc", "fedmr")  # FedMR's Table 1
CONTROLLED = ("scaffold", "scars", "scamap")


@pytest.mark.parametrize("name", [*PAPER, *CONTROLLED])
def test_at_rate_0_two_rounds_leave_the_weights_as_they_were(name: str) -> None:
    tiny = Tiny(build_method(name), net=network(norm=True), local=replace(PLAIN, lr=0.0))
    before = tiny.server.w.flat.clone()
    tiny.run(2)
    assert tiny.server.round == 2
    assert same_bits(tiny.server.w.flat, before)


def test_at_rate_0_the_controls_keep_their_equations_without_the_displacement() -> None:
    """SCAFFOLD: c_i⁺ = c_i − c. FedDC: h_k stays, c_k⁺ = c_k − c/ω_k, and −c is sent; ω = 3 · 4/12 = 1
    and 3 · 4/6 = 2.
    """
    still, own, server = State(point(3.0, 3.0), Params({})), point(1.0, -2.0), point(0.5, 4.0)
    k = bare_context(start=still, state=still, steps=6, lr_sum=0.0, momentum=0.9)
    control, sent = ControlVariate().finish(k.replace(mine=ClientControl(own), server=ServerControl(server)))
    assert control.c["body.w"].tolist() == [0.5, -6.0]
    assert sent.dc["body.w"].tolist() == [-0.5, -4.0]
    k = k.replace(mine=ClientDrift(point(7.0, 8.0), own), server=ServerCorrection(server))
    for beta, (samples, weight) in itertools.product(("a_norm", "steps"), ((12, 1.0), (6, 2.0))):
        drift, delta = DriftControl(0.1, beta).finish(k.replace(spec=replace(k.spec, samples=samples)))
        assert drift.h["body.w"].tolist() == [7.0, 8.0]
        assert drift.c["body.w"].tolist() == [1.0 - 0.5 / weight, -2.0 - 4.0 / weight]
        assert delta.dc["body.w"].tolist() == [-0.5, -4.0]
