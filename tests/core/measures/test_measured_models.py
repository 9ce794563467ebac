"""What is measured of models and clients: accuracy, memory, spectra of features, strengths of terms."""

from __future__ import annotations

import math

import pytest
import torch
from sklearn.metrics import f1_score
from torch import Tensor, nn

from raffed.config.training import Local
from raffed.core.context import Context, Forward, Spec
from raffed.core.ingredients import Term
from raffed.core.measures.scores import (
    BATCH,
    TOP,
    ExtraMeasure,
    Footprint,
    by_class,
    calibration_error,
    eigenvalue_variance,
    footprint,
    worst_decile,
)
from raffed.core.measures.term_strength import term_strengths
from raffed.core.method import Method
from raffed.core.params import Params, State
from raffed.core.round import server_init
from raffed.core.training.network import Network
from raffed.core.training.session import Participant, TrainingSession
from raffed.methods import METHODS, build_method
from raffed.methods.fedprox import Proximal
from raffed.models import build
from raffed.models.net import Net
from raffed.runtime.scoring import count, evaluate
from tests.tiny import Tiny, clients, network, same_bits, slopes, tiny_loss

# Evaluation counts what is right, class by class, as integers; calibration error and fairness over clients
# have closed forms.


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


# What a client holds, against the table of docs/papers/baselines.md §0 (live copies of the model, and
# what it keeps).

CLASSES, WIDTH = 10, 16
PROTOTYPES = CLASSES * WIDTH + CLASSES  # C·d, and which of them are known
HEAD = CLASSES * WIDTH + CLASSES


@pytest.fixture(scope="module")
def net() -> Network:
    return Network(build("mlp", (1, 8, 8), CLASSES, 0, hidden=[WIDTH]))


def of(method: str, net: Network, **args: float) -> Footprint:
    recipe = build_method(method, args)
    spec = Spec(CLASSES, net.feature_dim, 5, 3, 4, 100)
    broadcast = server_init(recipe, net.initial, spec).replace(round=2).broadcast()
    return footprint(recipe, broadcast, torch.rand(2, 1, 8, 8), TrainingSession(net, Local(), 0, spec))


@pytest.mark.parametrize(
    ("method", "copies", "beside", "kept"),
    [
        ("fedavg", 1, 0, 0),
        ("fedprox", 2, 0, 0),
        ("fedproc", 1, PROTOTYPES, 0),
        ("fednova", 1, 0, 0),
        ("moon", 3, -HEAD, 1),  # of the previous model the encoder alone is used
        ("feddyn", 3, 0, 1),
        ("feddc", 5, 0, 2),
        ("fedmr", 1, PROTOTYPES, 0),
        ("scaffold", 3, 0, 1),  # the model, c and c_k
    ],
)
def test_the_live_copies_and_what_is_kept_are_the_sheet_s(
    method: str, copies: int, beside: int, kept: int, net: Network
) -> None:
    found = of(method, net)
    model = 64 * WIDTH + WIDTH + HEAD
    assert found == Footprint(model, copies * model + beside, kept * model + min(beside, 0))


@pytest.mark.parametrize("method", METHODS)
def test_every_method_has_a_footprint_of_at_least_its_model(method: str, net: Network) -> None:
    found = of(method, net)
    assert found.training >= found.model > 0
    assert found.kept >= 0


# The variance of the top 50 eigenvalues against closed forms and the numbers of docs/papers/fedmr.md
# §E3, table 7.

FEATURES = 512


def hadamard(n: int) -> Tensor:
    """[n, n] of ±1 with orthogonal columns, the first of ones."""
    made = torch.ones(1, 1, dtype=torch.float64)
    while len(made) < n:
        made = torch.cat([torch.cat([made, made], 1), torch.cat([made, -made], 1)])
    return made


def factors(count: int) -> Tensor:
    """128 samples of 512 features, in `count` equal groups of features that are one orthogonal factor
    each.
    """
    columns = hadamard(BATCH)[:, 1 : count + 1]
    return columns[:, torch.arange(FEATURES) % count]


@pytest.mark.parametrize("count", [1, 2, 4, 8, 16, 32])
def test_equal_factors_have_equal_eigenvalues_that_add_up_to_the_number_of_features(count: int) -> None:
    """k eigenvalues 512/k and zeros: V = (512²/128) (1/k − 1/50); 2007.04 for one, the largest there is."""
    wanted = FEATURES**2 / BATCH * (1 / count - 1 / TOP)
    assert eigenvalue_variance(factors(count)) == pytest.approx(wanted, rel=1e-9)
    assert count > 1 or wanted == pytest.approx(2007.04)


def test_it_is_that_of_the_correlation_matrix_itself() -> None:
    """Eigenvalues of M = ẐᵀẐ/127, 60 x 60, by definition: the Gram matrix has the same."""
    z = torch.randn(BATCH, 60, generator=torch.Generator().manual_seed(0), dtype=torch.float64).cumsum(1)
    top = torch.linalg.eigvalsh(torch.corrcoef(z.T)).flip(0)[:TOP]
    assert eigenvalue_variance(z) == pytest.approx(float((top - top.mean()).square().sum() / 128), rel=1e-10)
    raw = torch.linalg.eigvalsh(torch.cov(z.T)).flip(0)[:TOP]
    assert eigenvalue_variance(z, standardised=False) == pytest.approx(
        float((raw - raw.mean()).square().sum() / 128), rel=1e-10
    )


def drawn(rows: int, seed: int) -> Tensor:
    return torch.randn(rows, FEATURES, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize(
    ("made", "wanted", "within"),
    [
        (lambda s: drawn(128, s), 0.54, 0.1),
        (lambda s: drawn(2, s)[torch.arange(128) % 2] + 0.18 * drawn(128, s + 100), 1056, 0.08),
        (lambda s: drawn(10, s)[torch.arange(128) % 10] + 0.18 * drawn(128, s + 100), 174, 0.03),
        (lambda s: 0.6**0.5 * hadamard(128)[:, 1:2] + 0.4**0.5 * drawn(128, s), 740, 0.05),
    ],
    ids=["noise", "two clusters", "ten clusters", "one factor with 60 %"],
)
def test_noise_clusters_and_a_common_factor_have_the_sheet_s_values(
    made: object, wanted: float, within: float
) -> None:
    values = [eigenvalue_variance(made(seed)) for seed in range(5)]  # type: ignore[operator]
    assert sum(values) / 5 == pytest.approx(wanted, rel=within)


def test_classes_weigh_alike_and_those_below_a_batch_do_not_count() -> None:
    """Class 0: two batches of one factor, class 1: one batch of two factors, class 2: 127 samples."""
    z = torch.cat([factors(1), factors(1), factors(2), drawn(127, 0)])
    y = torch.tensor([0] * 256 + [1] * 128 + [2] * 127)
    mean, count = by_class(z, y, torch.arange(len(z)))
    assert (count, mean) == (3, pytest.approx((2007.04 + 983.04) / 2))
    assert math.isnan(by_class(z[-127:], y[-127:], torch.arange(127))[0])


# The strength of a method's terms: closed forms, and that measuring changes nothing.


class Echo(Term):
    """A multiple of the cross-entropy itself."""

    factor: float

    def loss(self, f: Forward, k: Context) -> Tensor:
        return self.factor * k.ce(f)


class Against(Echo):
    """The same under another name."""


class Noisy(Term):
    """The cross-entropy times a random number of its own."""

    purpose = "lite"

    def draw(self, batch: int, k: Context, generator: torch.Generator) -> Tensor:
        return torch.rand(1, generator=generator)

    def loss(self, f: Forward, k: Context) -> Tensor:
        assert k.drawn is not None
        return k.drawn.sum() * k.ce(f)


def federation(*terms: Term, norm: bool = False, dropout: float = 0.0, cohort: bool = False) -> Tiny:
    return Tiny(Method("Measured", terms=terms), net=network(norm, dropout=dropout), cohort=cohort)


def measured(tiny: Tiny, client: int = 3) -> dict[tuple[str, str], ExtraMeasure]:
    """The strengths of a client in the round that would come next."""
    sent, state = tiny.server.broadcast(), tiny.client_states.get(client)
    done = tiny.visit(client)
    member = Participant(client, state, tiny.data[client])
    return term_strengths(tiny.method, sent, member, done, tiny.session)


@pytest.mark.parametrize("norm", [False, True])
@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_a_term_that_is_c_times_the_cross_entropy_has_strength_c(norm: bool, dropout: float) -> None:
    tiny = federation(Echo(0.25), norm=norm, dropout=dropout)
    tiny.step()
    for (model, term), (value, n) in measured(tiny).items():
        assert value == pytest.approx(0.25, rel=1e-5), (model, term)
        assert n == 2  # client 3 has 11 samples, and batches have 4


def test_the_proximal_term_is_nothing_at_the_start_and_mu_times_the_way_at_the_end() -> None:
    """Its gradient is μ (w − w⁰), whose norm in the body is computed by hand."""
    tiny = federation(Proximal(0.5))
    tiny.step()
    sent, done = tiny.server.broadcast(), tiny.visit(0)
    found = term_strengths(
        tiny.method, sent, Participant(0, None, tiny.data[0]), done, tiny.session
    )  # one batch is measured whole below, so client 0's 8 samples are two batches of 4
    body = [name for name in done.trained.w.names if name.startswith("body.")]
    way = torch.stack([(done.trained.w[n] - sent.w[n]).square().sum() for n in body]).sum().sqrt()
    base = found["local", "proximal"].value
    assert found["global", "proximal"].value == 0.0
    base_slopes = []
    order = torch.randperm(8, generator=_stream(tiny, 0))
    for index in order.split(4):
        x, y = tiny.data[0].x[index], tiny.data[0].y[index]
        gradient = slopes(lambda w, x=x, y=y: tiny_loss(w, x, y), done.trained.w.tensors)
        base_slopes.append(torch.stack([gradient[n].square().sum() for n in body]).sum().sqrt())
    assert base == pytest.approx(float(0.5 * way / torch.stack(base_slopes).mean()), rel=1e-4)


def _stream(tiny: Tiny, client: int) -> torch.Generator:
    from raffed.core import seeds

    return seeds.generator(tiny.seed, "strength", tiny.server.round, client)


def test_strength_is_proportional_to_the_weight_and_0_at_weight_0() -> None:
    tiny = federation(Proximal(0.1))
    tiny.step()
    sent, done, member = tiny.server.broadcast(), tiny.visit(1), Participant(1, None, tiny.data[1])
    at = {
        mu: term_strengths(Method("Measured", terms=(Proximal(mu),)), sent, member, done, tiny.session)[
            "local", "proximal"
        ].value
        for mu in (0.0, 0.1, 0.4)
    }
    assert at[0.0] == 0.0
    assert at[0.1] > 0.0
    assert at[0.4] == pytest.approx(4 * at[0.1], rel=1e-5)


def test_two_terms_that_cancel_are_strong_one_by_one_and_nothing_together() -> None:
    found = measured(federation(Echo(2.0), Against(-2.0)))
    assert found["global", "echo"].value == pytest.approx(2.0, rel=1e-5)
    assert found["global", "against"].value == pytest.approx(2.0, rel=1e-5)
    assert found["global", "all"].value == pytest.approx(0.0, abs=1e-5)


@pytest.mark.parametrize("cohort", [False, True])
def test_measuring_changes_no_bit_of_what_comes_after(cohort: bool) -> None:
    """BatchNorm's statistics, dropout and a term's own random numbers have streams of their own."""
    looked, plain = (
        federation(Noisy(), Proximal(0.1), norm=True, dropout=0.3, cohort=cohort) for _ in range(2)
    )
    for tiny in (looked, plain):
        for _ in range(3):
            sent, states = tiny.server.broadcast(), dict(tiny.client_states)
            done = tiny.step([0, 1, 2, 3])
            for client, own in done.items() if tiny is looked else ():
                member = Participant(client, states.get(client), tiny.data[client])
                first, again = (
                    term_strengths(tiny.method, sent, member, own, tiny.session) for _ in range(2)
                )
                assert first == again
    assert same_bits(looked.server, plain.server)
