"""Evaluation counts what is right, class by class, as integers."""

from __future__ import annotations

import math

import torch
from torch import nn

from raffed.core.evaluate import Score, evaluate
from raffed.core.network import Network
from raffed.core.params import Params, State
from raffed.models.net import Net
from tests.tiny import clients, network, same_bits


def test_a_hand_made_set_is_counted_class_by_class() -> None:
    """Logits are the inputs. Right: the first of class 0 and the one of class 2; loss Σ −log softmax."""
    net = Network(Net(nn.Identity(), nn.Linear(3, 3, bias=False)))
    state = State(Params({"head.weight": torch.eye(3)}).clone(), Params({}))
    x = torch.tensor([[2.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 3.0]])
    score = evaluate(net, state, x, torch.tensor([0, 0, 2]), 3, chunk=2)
    assert score.correct.tolist() == [1, 0, 1]
    assert score.total.tolist() == [2, 0, 1]
    assert score.accuracy == 2 / 3
    loss = math.log(math.e**2 + 2) - 2 + math.log(2 + math.e) - 0 + math.log(2 + math.e**3) - 3
    assert math.isclose(score.loss, loss, rel_tol=1e-6)
    assert math.isclose(score.mean_loss, loss / 3, rel_tol=1e-6)


def test_scores_of_chunks_add_up_to_the_score_of_the_whole() -> None:
    net, data = network(), clients()[3]
    whole = evaluate(net, net.initial, data.x, data.y, 3, chunk=500)
    parts = [evaluate(net, net.initial, data.x[i : i + 4], data.y[i : i + 4], 3, chunk=500) for i in range(0, 11, 4)]
    joined = parts[0] + parts[1] + parts[2]
    assert joined.correct.tolist() == whole.correct.tolist()
    assert joined.total.tolist() == whole.total.tolist() == [4, 4, 3]
    assert math.isclose(joined.loss, whole.loss, rel_tol=1e-5)


def test_nothing_to_count_is_not_a_number_and_not_zero() -> None:
    none = Score(torch.zeros(3, dtype=torch.int64), torch.zeros(3, dtype=torch.int64), 0.0)
    assert math.isnan(none.accuracy)
    assert math.isnan(none.mean_loss)


def test_evaluation_changes_no_state_and_no_generator() -> None:
    net, data = network(norm=True, dropout=0.5), clients()[3]
    kept, before = net.snapshot(), torch.get_rng_state()
    evaluate(net, net.initial, data.x, data.y, 3, chunk=4)
    assert same_bits(net.snapshot(), kept)
    assert torch.equal(torch.get_rng_state(), before)
