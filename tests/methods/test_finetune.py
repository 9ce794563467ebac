"""FedAvg + fine-tuning (docs/papers/baselines-personal.md, FedAvg+FT)."""

from __future__ import annotations

import torch

from raffed.methods.fedavg import fedavg
from raffed.methods.finetune import finetune
from tests.tiny import Tiny, network, same_bits


def test_the_server_is_fedavgs_bit_for_bit() -> None:
    """(b): the copy is discarded."""
    mine = Tiny(finetune(every_round=True), net=network(True)).run(3)
    plain = Tiny(fedavg(), net=network(True)).run(3)
    assert same_bits(mine.everything(), plain.everything())


def test_0_epochs_score_the_downloaded_model() -> None:
    """(a)."""
    done = Tiny(finetune(0.0, every_round=True)).run(2).visit(1)
    assert same_bits(done.views["personal"].private, done.start)


def test_fine_tuning_everything_for_the_runs_epochs_gives_the_rounds_own_local_model() -> None:
    """(c): same batches, same start."""
    tiny = Tiny(finetune(1.0, "all", every_round=True), net=network(norm=True)).run(2)
    done = tiny.visit(1)
    assert same_bits(done.views["personal"].private, done.trained)


def test_with_the_head_alone_the_body_and_its_statistics_stay_bit_for_bit() -> None:
    """(3)."""
    tiny = Tiny(finetune(every_round=True), net=network(norm=True)).run(2)
    done = tiny.visit(1)
    private = done.personal_state(tiny.method)
    for n in private.w.names:
        assert torch.equal(private.w[n], done.start.w[n]) == n.startswith("body.")
    assert same_bits(private.b, done.start.b)


def test_it_happens_in_the_last_round_only_unless_asked() -> None:
    """T = 3: two rounds score the downloaded model, the third the fine-tuned one."""
    tiny = Tiny(finetune(), rounds=3)
    for last in (False, False, True):
        done = tiny.step([0, 1])[0]
        assert same_bits(done.personal_state(tiny.method), done.start) != last


def test_the_order_of_the_clients_does_not_matter() -> None:
    """(d)."""
    one, other = (Tiny(finetune(every_round=True), net=network(norm=True)).run(1) for _ in range(2))
    there, back = one.step([0, 2, 3]), other.step([3, 2, 0])
    for client in there:
        assert same_bits(there[client].views["personal"].private, back[client].views["personal"].private)


def test_on_the_convex_head_the_training_loss_falls() -> None:
    """(4)."""
    tiny = Tiny(finetune(every_round=True)).run(2)
    done, data = tiny.visit(1), tiny.data[1]
    before, after = (
        float(torch.nn.functional.cross_entropy(tiny.net.apply(s, data.x)[0], data.y))
        for s in (done.start, done.personal_state(tiny.method))
    )
    assert after < before
