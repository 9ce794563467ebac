"""The strength of a method's terms: closed forms, and that measuring changes nothing."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from raffed.core.context import Context, Forward
from raffed.core.ingredients import Term
from raffed.core.measures.scores import ExtraMeasure
from raffed.core.measures.term_strength import term_strengths
from raffed.core.method import Method
from raffed.core.training.session import Participant
from raffed.methods.fedprox import Proximal
from tests.tiny import Tiny, network, same_bits, slopes, tiny_loss


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
