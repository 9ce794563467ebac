"""Evaluation counts what is right, class by class, as integers."""

from __future__ import annotations

import math

import torch
from sklearn.metrics import f1_score
from torch import nn

from raffed.core.params import Params, State
from raffed.core.training.network import Network
from raffed.models.net import Net
from raffed.runtime.scoring import count, evaluate
from tests.tiny import clients, network, same_bits


def test_a_hand_made_set_is_counted_class_by_class() -> None:
    """Logits are the inputs. Right: the first of class 0 and the one of class 2; loss Σ −log softmax."""
    net = Network(Net(nn.Identity(), nn.Linear(3, 3, bias=False)))
    state = State(Params({"head.weight": torch.eye(3)}).clone(), Params({}))
    x = torch.tensor([[2.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 3.0]])
    score = evaluate(net, state, x, torch.tensor([0, 0, 2]), 3, chunk=2)
    assert score.correct == (1, 0, 1)
    assert score.total == (2, 0, 1)
    assert score.accuracy == 2 / 3
    loss = math.log(math.e**2 + 2) - 2 + math.log(2 + math.e) - 0 + math.log(2 + math.e**3) - 3
    assert math.isclose(score.loss, loss, rel_tol=1e-6)


def test_scores_of_chunks_add_up_to_the_score_of_the_whole() -> None:
    net, data = network(), clients()[3]
    held = torch.tensor([True, False, True])
    whole = evaluate(net, net.initial, data.x, data.y, 3, 500, held)
    parts = [
        evaluate(net, net.initial, data.x[i : i + 4], data.y[i : i + 4], 3, 500, held)
        for i in range(0, 11, 4)
    ]
    joined = parts[0] + parts[1] + parts[2]
    assert (joined.correct, joined.predicted, joined.observed) == (
        whole.correct,
        whole.predicted,
        whole.observed,
    )
    assert joined.total == whole.total == (4, 4, 3)
    assert math.isclose(joined.loss, whole.loss, rel_tol=1e-5)


def test_among_observed_classes_the_best_of_them_is_the_answer() -> None:
    """The second sample's logits (0, 1, 0.5) say class 1; among {0, 2} they say 2, which is right."""
    logits, y = torch.tensor([[2.0, 0.0, 0.0], [0.0, 1.0, 0.5], [0.0, 0.0, 3.0]]), torch.tensor([0, 2, 0])
    score = count([(logits, y)], y, 3, torch.tensor([True, False, True]))
    assert (score.correct, score.observed) == ((1, 0, 0), 2)
    assert count([(logits, y)], y, 3).observed == 1


def test_macro_f1_is_scikit_learn_s() -> None:
    y = torch.tensor([0, 0, 1, 1, 1, 3, 3, 3])
    # Class 2 neither present nor predicted, class 4 predicted only
    answers = torch.tensor([0, 1, 1, 1, 4, 3, 0, 3])
    tally = count([(torch.eye(5)[answers], y)], y, 5)
    assert math.isclose(tally.macro_f1, f1_score(y, answers, average="macro"), rel_tol=1e-12)


def test_nothing_to_count_is_not_a_number_and_not_zero() -> None:
    none = count([], torch.zeros(0, dtype=torch.int64), 3)
    assert math.isnan(none.accuracy)
    assert none.loss == 0.0
    assert math.isnan(none.macro_f1)
    assert math.isnan(none.accuracy_observed)


def test_evaluation_changes_no_state_and_no_generator() -> None:
    net, data = network(norm=True, dropout=0.5), clients()[3]
    kept, before = net.snapshot(), torch.get_rng_state()
    evaluate(net, net.initial, data.x, data.y, 3, chunk=4)
    assert same_bits(net.snapshot(), kept)
    assert torch.equal(torch.get_rng_state(), before)
