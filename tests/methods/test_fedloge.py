"""FedLoGe (Xiao et al., ICLR 2024): the body under a frozen sparse ETF, two heads beside it."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from raffed.core.context import Forward
from raffed.core.method import Method
from raffed.core.params import Params, State
from raffed.methods.common import BODY_ONLY, NEVER, Companion, KeepHead
from raffed.methods.fedloge import FrozenFrame, LocalHead, Realigned, fedloge
from tests.tiny import Tiny, bare_context, companion, network, same_bits

GLOBAL = torch.tensor([[3.0, 4.0], [0.0, 0.5], [1.0, 0.0]])
FEATURE = torch.tensor([[1.0, -0.2]])


def test_the_worked_example_is_predicted_as_2_once_rows_have_one_length() -> None:
    """Plain (2.2, −.1, 1) ⇒ 0; realigned (.748, −.34, 1.7) ⇒ 2."""
    plain = FEATURE @ GLOBAL.T
    torch.testing.assert_close(plain, torch.tensor([[2.2, -0.1, 1.0]]), rtol=0, atol=1e-6)
    rows = Realigned(length=1.7).evaluation_weights(None, Params({"head.weight": GLOBAL}))["head.weight"]
    aligned = FEATURE @ rows.T
    torch.testing.assert_close(aligned, torch.tensor([[0.748, -0.34, 1.7]]), rtol=0, atol=1e-6)
    assert (int(plain.argmax()), int(aligned.argmax())) == (0, 2)


def test_the_client_s_rows_are_the_global_ones_times_the_local_lengths() -> None:
    """l norms (2, 1, .5) ⇒ rows (6, 8), (0, .5), (.5, 0), to which l is added."""
    local = torch.tensor([[2.0, 0.0], [0.0, 1.0], [0.3, 0.4]])
    state = State(Params({"head.weight": GLOBAL}), Params({}))
    k = bare_context(state=state, mine=Companion(Params({"head.weight": local})))
    rows = LocalHead().model(k).w["head.weight"] - local
    torch.testing.assert_close(rows, torch.tensor([[6.0, 8.0], [0.0, 0.5], [0.5, 0.0]]), rtol=0, atol=1e-6)


def test_a_class_that_the_client_misses_is_never_predicted() -> None:
    tiny = Tiny(fedloge(), net=network()).run(2, [0, 1, 2, 3])
    done, method = tiny.last[1], tiny.method
    assert method.personal is not None
    logits = done.personal_logits(method.personal, tiny.data[3].x)
    assert bool((logits[:, 0] == NEVER).all())
    assert bool((logits[:, 1:] > NEVER).all())


def gradient(head: Tensor, local: Tensor) -> tuple[Tensor, ...]:
    """Of the features, the global head and the local one."""
    frame = torch.tensor([[0.1, 0.0], [0.0, 0.1], [-0.1, 0.1]])
    initial = State(Params({"head.weight": frame}), Params({}))
    z = torch.tensor([[1.0, -0.2], [0.3, 0.7]], requires_grad=True)
    g, own = head.clone().requires_grad_(), local.clone().requires_grad_()
    f = Forward(z, torch.tensor([0, 2]), z, z @ g.T, Params({"head.weight": g}), Params({"head.weight": own}))
    k = bare_context(initial=initial)
    return torch.autograd.grad(FrozenFrame().loss(f, k) + LocalHead().loss(f, k), (z, g, own))


def test_the_body_s_gradient_does_not_depend_on_either_head_and_theirs_are_not_0() -> None:
    one, other = gradient(GLOBAL, GLOBAL), gradient(-3 * GLOBAL, torch.zeros(3, 2))
    assert torch.equal(one[0], other[0])
    assert all(float(slope.abs().max()) > 0 for slope in (*one, *other))


@pytest.mark.parametrize("local", [False, True])
def test_with_a_dense_frame_the_body_is_that_of_fedavg_under_a_frozen_etf(local: bool) -> None:
    frozen = Method("ETF", passes=BODY_ONLY, server=KeepHead(), network=(("head_init", "etf"),))
    mine = Tiny(fedloge("etf", realign=False, local=local), net=network(norm=True, bias=False)).run(3)
    plain = Tiny(frozen, net=network(norm=True, bias=False)).run(3)
    for name in mine.server.w.names:
        assert same_bits(mine.server.w[name], plain.server.w[name]) == name.startswith("body."), name


def test_realigning_is_for_scores_alone_and_the_local_head_never_moves_the_server() -> None:
    usual = Tiny(fedloge(), net=network()).run(3)
    for other in (fedloge(realign=False), fedloge(local=False)):
        assert same_bits(Tiny(other, net=network()).run(3).server.w, usual.server.w)


def test_the_local_head_begins_as_the_frame_and_stays_with_the_client() -> None:
    tiny = Tiny(fedloge(), net=network()).run(1, [0, 1, 2, 3])
    frame = tiny.net.initial.w["head.weight"]
    assert not torch.equal(companion(tiny, 1)["head.weight"], frame)
    assert set(tiny.last[1].upload.slots) == set()
    still = Tiny(fedloge(), net=network(), local=replace(tiny.local, lr=0.0)).run(1, [0, 1, 2, 3])
    assert torch.equal(companion(still, 1)["head.weight"], frame)
