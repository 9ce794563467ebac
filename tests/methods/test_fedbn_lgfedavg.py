"""FedBN with SiloBN, and LG-FedAvg: what of the network is private."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from raffed.core.context import Context
from raffed.core.ingredients import Correction
from raffed.core.method import Method
from raffed.core.params import Params
from raffed.core.parts import ParameterSplit, Pass, in_part
from raffed.core.server import Mean
from raffed.core.training.network import Network
from raffed.methods.fedavg import fedavg
from raffed.methods.fedbn import fedbn
from raffed.methods.fedrep import fedper
from raffed.methods.lgfedavg import lgfedavg
from raffed.methods.solo import solo
from raffed.models import build
from tests.golden.regenerate import section
from tests.methods.test_moon_mpfedcon import projected
from tests.tiny import PLAIN, Tiny, clients, network, same_bits

UNIFORM = replace(fedavg(), mean=Mean("clients"))
NORM = {"body.norm.weight", "body.norm.bias"}


class NormAtRest(Correction):
    """The gradient of BatchNorm's scales and offsets becomes zero."""

    plain_sgd = False

    def gradient(self, g: Params, k: Context) -> Params:
        return Params({n: torch.zeros_like(t) if n in k.spec.norms else t for n, t in g.tensors.items()})


@pytest.mark.parametrize("kept", ["layers", "statistics"])
def test_without_batchnorm_fedbn_is_fedavg_with_uniform_weights(kept: str) -> None:
    """(1), bit for bit."""
    mine, plain = Tiny(fedbn(kept)).run(3), Tiny(UNIFORM).run(3)
    assert same_bits(mine.everything(), plain.everything())
    assert not mine.client_states


def test_batchnorm_never_travels_in_either_direction() -> None:
    """(2): neither scales and offsets nor statistics, and what stays differs from client to client."""
    tiny = Tiny(fedbn(), net=network(norm=True)).run(2, [0, 1])
    for sent in (tiny.server.broadcast(), tiny.last[0].upload):
        assert not NORM & set(sent.w.names)
        assert not len(sent.b)
    assert set(tiny.client_states[0].v.names) == NORM
    assert not same_bits(tiny.client_states[0].v, tiny.client_states[1].v)
    assert not same_bits(tiny.client_states[0].b, tiny.client_states[1].b)
    assert not same_bits(tiny.server, Tiny(UNIFORM, net=network(norm=True)).run(2, [0, 1]).server)


def test_batchnorm_is_found_by_type_also_in_shortcuts_and_whatever_its_name() -> None:
    """(2): ResNet's shortcuts and EfficientNet number their layers, so names do not show the type."""
    for model, shape in (("resnet8", (3, 8, 8)), ("efficientnet_b0", (3, 33, 33))):
        net = Network(build(model, shape, 10, 0))
        owners = {name.rpartition(".")[0] for name in net.initial.b.names}  # only BatchNorm has statistics
        assert owners
        assert set(net.norm_names) == {f"{name}.{leaf}" for name in owners for leaf in ("weight", "bias")}
        shared = fedbn().split.shared(net.initial.w, net.norm_names)
        assert not set(shared.names) & set(net.norm_names)
    resnet = Network(build("resnet8", (3, 8, 8), 10, 0))
    assert "body.stage2.0.shortcut.norm.weight" in resnet.norm_names


def test_with_batchnorm_s_weights_at_rest_it_is_silobn() -> None:
    """(3): the only difference of both is where scales and offsets are; these must not move here."""
    local = replace(PLAIN, momentum=0.0, weight_decay=0.0)
    still = [replace(fedbn(kept), correction=NormAtRest()) for kept in ("layers", "statistics")]
    mine, silo = (Tiny(one, net=network(norm=True), local=local).run(3, [0, 1, 2]) for one in still)
    assert all(same_bits(mine.last[c].trained, silo.last[c].trained) for c in (0, 1, 2))
    apart = [
        Tiny(fedbn(kept), net=network(norm=True), local=local).run(3, [0, 1, 2])
        for kept in ("layers", "statistics")
    ]
    assert not same_bits(apart[0].last[0].trained, apart[1].last[0].trained)


def test_a_client_s_first_round_begins_with_the_initial_batchnorm() -> None:
    """(4): not with another client's."""
    tiny = Tiny(fedbn(), net=network(norm=True)).run(3, [0, 1])
    start = tiny.visit(3).start
    assert all(torch.equal(start.w[n], tiny.net.initial.w[n]) for n in NORM)
    assert same_bits(start.b, tiny.net.initial.b)
    assert torch.equal(start.w["body.fc.weight"], tiny.server.w["body.fc.weight"])


@pytest.mark.parametrize("kept", ["layers", "statistics"])
def test_the_server_has_no_whole_model(kept: str) -> None:
    """Its statistics are nobody's, so there is no accuracy on the global test set."""
    assert not fedbn(kept).has_global


def test_the_part_of_batchnorm_needs_its_names() -> None:
    """Without them the part would silently be empty."""
    with pytest.raises(ValueError, match="needs the names"):
        in_part("body.norm.weight", "norm")
    with pytest.raises(ValueError, match="needs the names"):
        ParameterSplit("norm").shared(network(norm=True).initial.w)


def test_a_pass_can_train_batchnorm_alone() -> None:
    """The other weights stay bit for bit, and the statistics move, since these layers are trained."""
    for cohort in (False, True):
        tiny = Tiny(Method("Norm", passes=(Pass("norm"),)), net=network(norm=True), cohort=cohort)
        before = tiny.server
        tiny.step([0, 1])
        moved = {n for n in before.w.names if not torch.equal(tiny.server.w[n], before.w[n])}
        assert moved == NORM
        assert not same_bits(tiny.server.b, before.b)


def test_lgfedavg_of_one_client_is_local_training() -> None:
    """(3): the mean of one upload is this upload, to the rounding of exact sums."""
    data = [clients()[3]]
    mine, alone = (Tiny(one, data=data, net=network(True)).run(3, [0]) for one in (lgfedavg(), solo()))
    torch.testing.assert_close(
        mine.last[0].trained.w.flat, alone.last[0].trained.w.flat, rtol=1e-6, atol=1e-7
    )


def test_lgfedavg_is_the_mirror_image_of_fedper() -> None:
    """(4): what one sends the other keeps, number by number."""
    up, kept = [], []
    for method in (lgfedavg(), fedper()):
        tiny = Tiny(method, net=network(norm=True)).run(2, [0, 1])
        sent, own = tiny.last[0].upload, tiny.client_states[0]
        up.append({**sent.w.tensors, **sent.b.tensors}.keys())
        kept.append({**own.v.tensors, **own.b.tensors}.keys())
    assert up[0] == kept[1]
    assert kept[0] == up[1]
    assert section("lgfedavg")[1:] != section("fedper")[1:]


def test_lgfedavg_can_share_the_projection_too() -> None:
    tiny = Tiny(lgfedavg("top"), net=projected()).run(1, [0, 1])
    assert {n.rpartition(".")[0] for n in tiny.last[0].upload.w.names} >= {"head"}
    assert any("projection" in n for n in tiny.last[0].upload.w.names)
    assert all("encoder" in n for n in tiny.client_states[0].v.names)
