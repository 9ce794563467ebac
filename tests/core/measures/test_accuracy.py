"""Evaluation counts what is right, class by class, as integers; calibration error and fairness over clients
have closed forms.
"""

from __future__ import annotations

import math

import pytest
import torch
from sklearn.metrics import f1_score
from torch import nn

from raffed.core.measures.scores import calibration_error, worst_decile
from raffed.core.params import Params, State
from raffed.core.training.network import Network
from raffed.models.net import Net
from raffed.runtime.scoring import count, evaluate
from tests.tiny import clients, network


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


def logits_of(confidences: list[float]) -> torch.Tensor:
    """Two classes; class 0 is the answer with these confidences."""
    p = torch.tensor(confidences, dtype=torch.float64)
    return torch.stack([p, 1 - p], -1).log()


def test_a_model_that_is_right_as_often_as_it_is_sure_has_no_error() -> None:
    """Ten samples with confidence 0.8, eight of them right."""
    y = torch.tensor([0] * 8 + [1] * 2)
    assert calibration_error(logits_of([0.8] * 10), y) == pytest.approx(0.0, abs=1e-12)


def test_gaps_of_one_bin_cancel_and_those_of_two_do_not() -> None:
    y = torch.tensor([0, 1])
    assert calibration_error(logits_of([0.9, 0.9]), y, bins=15) == pytest.approx(0.4)
    assert calibration_error(logits_of([0.9, 0.6]), y, bins=1) == pytest.approx(abs(0.1 - 0.6) / 2)
    assert calibration_error(logits_of([0.9, 0.6]), y, bins=15) == pytest.approx((0.1 + 0.6) / 2)


def test_the_worst_decile_is_the_mean_of_the_lowest_tenth_rounded_up() -> None:
    assert worst_decile([one / 20 for one in range(20)]) == pytest.approx((0 + 1) / 2 / 20)
    assert worst_decile([0.5, 0.1, 0.9]) == 0.1
    assert worst_decile([one / 100 for one in range(11)]) == pytest.approx(0.005)
    assert math.isnan(worst_decile([]))
