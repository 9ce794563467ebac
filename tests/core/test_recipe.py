"""Method records: what cannot be written down, how uploads are weighted, and what a server rule does."""

from __future__ import annotations

import pytest
import torch

from raffed.core.method import Method
from raffed.core.params import Params
from raffed.core.parts import Part, Pass, in_part
from raffed.core.server import Mean
from raffed.errors import UsageError
from raffed.methods.fednova import PullAfterClipping
from raffed.methods.fedproto import fedproto
from raffed.methods.fedprox import Proximal
from raffed.methods.pfedme import pfedme
from raffed.methods.scaffold import ControlVariate
from tests.tiny import Tiny, same_bits, server_context

W = Params({"body.fc": torch.tensor([1.0, -2.0]), "head.weight": torch.tensor([0.1])}).clone()
MEAN = Params({"body.fc": torch.tensor([0.3, 5.0]), "head.weight": torch.tensor([-0.7])}).clone()
K = server_context()


def test_two_terms_of_one_class_are_refused_because_their_memories_would_share_a_slot() -> None:
    with pytest.raises(UsageError, match="two terms of class Proximal"):
        Method("Twice", terms=(Proximal(0.1), Proximal(0.2)))


@pytest.mark.parametrize("passes", [(Pass(),), (Pass(momentum=0.9),), (Pass(momentum=0.0), Pass())])
def test_control_variates_refuse_momentum_by_name_instead_of_drifting(passes: tuple[Pass, ...]) -> None:
    with pytest.raises(UsageError, match="ControlVariate needs plain SGD"):
        Method("Drifting", correction=ControlVariate(), passes=passes)


def test_a_correction_that_is_no_control_variate_and_a_term_that_notes_say_where_they_can_be_used() -> None:
    """FedNova's pull is right with momentum; what a term notes at every step is summed by SGD alone."""
    Method("Pulled", correction=PullAfterClipping(0.1))
    Method("Noted", terms=fedproto(preset="authors").terms)
    with pytest.raises(UsageError, match="records something at every step, which needs SGD, not MoreauSteps"):
        Method("Neither", terms=fedproto(preset="authors").terms, solver=pfedme().solver)


def test_sizes_1_and_3_weigh_a_quarter_and_three_quarters_over_participants_only() -> None:
    """docs/papers/baselines.md, FedAvg (3)."""
    assert Mean().weights([1, 3]) == [0.25, 0.75]
    assert Mean(by="clients").weights([1, 3]) == [0.5, 0.5]
    assert sum(Mean().weights([7, 11, 13])) == pytest.approx(1.0, abs=1e-15)


PARTS = {"body.encoder.fc": "base", "body.projection.fc": "top", "head.weight": "top", "body.conv": "base"}


@pytest.mark.parametrize(("name", "part"), PARTS.items())
def test_top_and_base_divide_every_network_and_are_head_and_body_without_a_projection(
    name: str, part: Part
) -> None:
    other: Part = "base" if part == "top" else "top"
    assert in_part(name, part)
    assert not in_part(name, other)
    assert in_part(name, "head") == (part == "top" and "projection" not in name)


def test_a_plain_pass_trains_by_the_cross_entropy_alone() -> None:
    """A pull of 1e6 would throw any step far off; in a plain pass it is not there, bit for bit."""
    pulled = Tiny(
        Method(
            "Pulled",
            terms=(Proximal(1e6),),
            passes=(Pass(cross_entropy_only=True), Pass(cross_entropy_only=True)),
        )
    )
    bare = Tiny(Method("Bare", passes=(Pass(), Pass())))
    assert same_bits(pulled.visit(1).trained, bare.visit(1).trained)
