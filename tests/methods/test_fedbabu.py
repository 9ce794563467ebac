"""FedBABU (Oh et al., ICLR 2022): the head keeps its initial draw, the body is trained and averaged."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from raffed.core.method import Method
from raffed.core.server import Mean
from raffed.methods.fedavg import fedavg
from raffed.methods.fedbabu import fedbabu
from tests.tiny import PLAIN, Tiny, network, same_bits

WHOLE = replace(PLAIN, batch_size=100, momentum=0.0, weight_decay=0.0)


@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
def test_the_head_keeps_the_bits_of_its_initial_draw_also_with_weight_decay(weight_decay: float) -> None:
    local = replace(PLAIN, weight_decay=weight_decay)
    tiny = Tiny(fedbabu(every_round=True), net=network(norm=True), local=local)
    start = tiny.server.w
    tiny.run(3)
    assert same_bits(
        [tiny.server.w[n] for n in ("head.weight", "head.bias")], [start["head.weight"], start["head.bias"]]
    )
    assert not same_bits(tiny.server.w["body.fc.weight"], start["body.fc.weight"])


def test_the_server_keeps_the_head_s_bits_where_the_mean_of_equal_numbers_would_not() -> None:
    """Numbers below 2^-20 are rounded by the exact sums, which have steps of 2^-44."""
    tiny = Tiny(fedbabu(), net=network())
    tiny.server = tiny.server.replace(w=tiny.server.w * 1e-9)
    before = tiny.server.w
    mean = Tiny(Method("mean", passes=fedbabu().passes), net=network())
    mean.server = tiny.server
    assert same_bits(tiny.run(1, [0, 1, 2]).server.w["head.weight"], before["head.weight"])
    assert not same_bits(mean.run(1, [0, 1, 2]).server.w["head.weight"], before["head.weight"])


def test_a_round_of_one_step_over_all_samples_gives_fedavg_s_body() -> None:
    """At equal weights the body's gradient is FedAvg's, whatever becomes of the head."""
    mine, plain = (Tiny(one, local=WHOLE).run(1, [0, 1, 2, 3]) for one in (fedbabu(), fedavg()))
    for name in mine.server.w.names:
        assert torch.equal(mine.server.w[name], plain.server.w[name]) == name.startswith("body."), name


def test_the_second_round_is_not_fedavg_s() -> None:
    mine, plain = (Tiny(one, local=WHOLE).run(2, [0, 1, 2, 3]) for one in (fedbabu(), fedavg()))
    assert not torch.equal(mine.server.w["body.fc.weight"], plain.server.w["body.fc.weight"])


def test_with_0_epochs_of_fine_tuning_the_personal_model_is_the_global_one() -> None:
    tiny = Tiny(fedbabu(epochs=0.0, every_round=True), net=network(norm=True)).run(2)
    done = tiny.visit(1)
    assert same_bits(done.personal_state(tiny.method), done.start)


@pytest.mark.parametrize(
    ("scope", "moved"), [("all", ("body.", "head.")), ("head", "head."), ("body", "body.")]
)
def test_fine_tuning_moves_its_scope_and_leaves_the_bits_of_the_rest(
    scope: str, moved: str | tuple[str, ...]
) -> None:
    tiny = Tiny(fedbabu(scope=scope, every_round=True), net=network()).run(1)  # type: ignore[arg-type]
    done = tiny.visit(1)
    own = done.personal_state(tiny.method).w
    for name in own.names:
        assert torch.equal(own[name], done.start.w[name]) != name.startswith(moved), name


def test_fine_tuning_never_moves_the_server() -> None:
    one, other = (Tiny(fedbabu(epochs=e, every_round=True)).run(3) for e in (0.0, 5.0))
    assert same_bits(one.everything(), other.everything())


def test_its_rule_is_the_mean_of_the_clients_bodies() -> None:
    """Two clients at equal weights: the mean of their bodies, to the step of the exact sums."""
    tiny = Tiny(replace(fedbabu(), mean=Mean(by="clients")), net=network()).run(1, [0, 1])
    sent = [tiny.last[c].upload.w["body.fc.weight"] for c in (0, 1)]
    torch.testing.assert_close(tiny.server.w["body.fc.weight"], (sent[0] + sent[1]) / 2, rtol=0, atol=1e-7)
