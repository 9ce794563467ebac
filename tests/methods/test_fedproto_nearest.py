"""FedProto scored by the nearest prototype (Tan et al. 2022), as PFLlib does."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

import raffed
from raffed import Federation
from raffed.errors import UsageError
from raffed.methods.common import Prototypes
from raffed.methods.fedproto import fedproto
from tests.tiny import Tiny, digits, of_kind, same_bits

NEAREST = fedproto(0.5, predict_by="prototype")


def prototypes(tiny: Tiny) -> Prototypes:
    return of_kind(tiny.server.slots["personal"], Prototypes)


@pytest.mark.parametrize("cohort", [0, 4])
def test_training_and_messages_are_those_of_fedproto_bit_for_bit(cohort: int) -> None:
    mine, plain = (Tiny(method, cohort=cohort).run(3) for method in (NEAREST, fedproto(0.5)))
    for client in plain.client_states:
        assert same_bits(mine.client_states[client].v, plain.client_states[client].v)
    theirs = of_kind(plain.server.slots["term-PrototypePull"], Prototypes)
    assert torch.equal(prototypes(mine).mean, theirs.mean)
    assert torch.equal(prototypes(mine).known, theirs.known)


def test_a_client_answers_with_the_nearest_prototype_of_those_that_it_downloaded() -> None:
    tiny = Tiny(NEAREST).run(2)
    sent = prototypes(tiny)
    done = tiny.visit(1)
    assert NEAREST.personal is not None
    x = tiny.data[1].x
    z = tiny.net.apply(done.trained, x)[1]
    gaps = torch.cdist(z.double(), sent.mean.double())
    assert torch.equal(done.personal_logits(NEAREST.personal, x).argmax(1), gaps.argmin(1))


def test_a_class_that_nobody_has_sent_is_never_the_answer() -> None:
    """Client 0 has the classes 0 and 1 of three, and it alone has sent."""
    tiny = Tiny(NEAREST)
    tiny.step([0])
    assert prototypes(tiny).known.tolist() == [True, True, False]
    done = tiny.visit(1)
    assert NEAREST.personal is not None
    assert int(done.personal_logits(NEAREST.personal, tiny.data[1].x).argmax(1).max()) < 2


def test_before_the_first_prototypes_the_classifier_answers() -> None:
    done, tiny = Tiny(NEAREST).visit(0), Tiny(NEAREST)
    assert NEAREST.personal is not None
    x = tiny.data[0].x
    assert torch.equal(done.personal_logits(NEAREST.personal, x), tiny.net.apply(done.trained, x)[0])


def test_the_authors_preset_has_no_such_scores() -> None:
    with pytest.raises(UsageError, match="leave one of the two out"):
        fedproto(preset="authors", predict_by="prototype")


def test_a_run_writes_the_same_weights_and_other_scores() -> None:
    config = digits("p4c3", 16, method="fedproto", local_test=0.3, federation=Federation(3, survey=3))
    plain, mine = (raffed.run(replace(config, args=args)) for args in ({}, {"predict_by": "prototype"}))
    scores = [one.to_pandas() for one in (plain, mine)]
    trained = [one[one["metric"] == "loss"]["value"].tolist() for one in scores]
    assert trained[0] == trained[1]
    between = [one[(one["metric"] == "accuracy_between") & one["client"].isna()] for one in scores]
    assert between[0]["value"].tolist() != between[1]["value"].tolist()
    assert between[1]["value"].iloc[-1] > 0.5
