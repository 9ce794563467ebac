"""Method records, draws of participants, and the cross-entropy."""

from __future__ import annotations

import math
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.func import grad, vmap

from raffed.config.federation import PowerOfChoice, RoundRobin, Rule, Size
from raffed.core import seeds
from raffed.core.losses import cross_entropy
from raffed.core.method import Method
from raffed.core.params import Params
from raffed.core.parts import Part, Pass, in_part
from raffed.core.server import Mean
from raffed.errors import UsageError
from raffed.federation.selection import Draw, chosen, chosen_by_own
from raffed.methods.fednova import PullAfterClipping
from raffed.methods.fedproto import fedproto
from raffed.methods.fedprox import Proximal
from raffed.methods.pfedme import pfedme
from raffed.methods.scaffold import ControlVariate
from tests.tiny import Tiny, same_bits, server_context

# Method records: what cannot be written down, how uploads are weighted, and what a server rule does.

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


# The draws of participants by each rule, with expected values from probability or by counting.

DRAWS = 6000


def draw(
    sizes: Sequence[int], count: int, round: int = 0, losses: Sequence[float] = (), seed: int = 0
) -> Draw:
    generator = seeds.rng(seed, "sampling", round)
    return Draw(round, sizes, count, generator, lambda clients: [losses[client] for client in clients])


def frequencies(rule: Rule, sizes: Sequence[int], count: int) -> list[float]:
    """How often each client stands in a draw, as a share of DRAWS rounds."""
    found = Counter(one for round in range(DRAWS) for one in chosen(rule, draw(sizes, count, round)))
    return [found[client] / DRAWS for client in range(len(sizes))]


def test_with_replacement_a_client_is_expected_in_proportion_to_its_size() -> None:
    """Two draws at shares 1/6, 2/6 and 3/6; within 4 standard deviations of 6000 rounds."""
    found = frequencies(Size(), (1, 2, 3), 2)
    for share, p in zip(found, (1 / 6, 2 / 6, 3 / 6), strict=True):
        assert abs(share - 2 * p) < 4 * np.sqrt(2 * p * (1 - p) / DRAWS)


def test_without_replacement_inclusion_is_not_proportional() -> None:
    """Of sizes 1, 2, 3 two are drawn one after the other: 0.4166667, 0.7333333 and 0.85."""
    found = frequencies(Size(replacement=False), (1, 2, 3), 2)
    for share, p in zip(found, (0.4166667, 0.7333333, 0.85), strict=True):
        assert abs(share - p) < 4 * np.sqrt(p * (1 - p) / DRAWS)


def test_power_of_choice_takes_the_candidates_with_the_largest_losses() -> None:
    """Clients 1, 2, 3 are the only ones with samples; of the losses 0.5, 1.5, 1 the two largest count.

    An index into all clients instead of the candidates would give 1 and 2.
    """
    sizes, losses = (0, 10, 10, 10), (2.0, 0.5, 1.5, 1.0)
    assert chosen(PowerOfChoice(candidates=3), draw(sizes, 2, losses=losses)) == [2, 3]


def test_round_robin_visits_every_client_once_in_a_turn() -> None:
    """Six rounds of two of four: three turns, which wrap around the end."""
    found = [chosen(RoundRobin(), draw([1] * 5, 2, round)) for round in range(5)]
    assert found == [[0, 1], [2, 3], [4, 0], [1, 2], [3, 4]]


def test_a_rule_of_one_s_own_gets_what_its_signature_names() -> None:
    def every(sizes: Sequence[int], count: int, offset: int = 0) -> list[int]:
        return [(offset + i) % len(sizes) for i in range(count)]

    assert chosen_by_own("mine", every, {"offset": 3}, draw([1] * 4, 2)) == [3, 0]


@pytest.mark.parametrize("wrong", [[], [0, 0], [4], [-1]])
def test_a_rule_of_one_s_own_must_return_different_clients(wrong: list[int]) -> None:
    with pytest.raises(UsageError, match="as numbers from 0 to 3"):
        chosen_by_own("mine", lambda: wrong, {}, draw([1] * 4, 2))


# Cross-entropy for one client and for many stacked: the same numbers, and no interpreter's worth of
# imports for it.

LOGITS = torch.randn(3, 5, 4, generator=torch.Generator().manual_seed(0))  # clients, batch, classes
LABELS = torch.tensor([[0, 1, 2, 3, 3]]).expand(3, 5)


def test_equal_logits_cost_the_logarithm_of_the_classes() -> None:
    assert float(cross_entropy(torch.zeros(7, 10), torch.arange(7))) == pytest.approx(math.log(10), rel=1e-6)


def test_stacked_clients_get_each_its_own_loss() -> None:
    alone = torch.stack([cross_entropy(z, y) for z, y in zip(LOGITS, LABELS, strict=True)])
    torch.testing.assert_close(vmap(cross_entropy)(LOGITS, LABELS), alone)


def test_the_gradient_is_softmax_minus_the_label_over_the_batch_also_inside_a_stack() -> None:
    def slope(z: Tensor, y: Tensor) -> Tensor:
        return grad(lambda logits: cross_entropy(logits, y))(z)

    wanted = (LOGITS.softmax(-1) - torch.nn.functional.one_hot(LABELS, 4)) / 5
    torch.testing.assert_close(vmap(slope)(LOGITS, LABELS), wanted)


@pytest.mark.more
def test_a_stack_does_not_import_sympy() -> None:
    """Half a second of the first round: torch's own cross-entropy would import it under vmap."""
    code = (
        "import sys, torch; from torch.func import vmap; from raffed.core.losses import cross_entropy\n"
        "vmap(cross_entropy)(torch.zeros(2, 3, 4), torch.zeros(2, 3, dtype=torch.int64)); sys.exit('sympy' "
        "in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
