"""What travels between driver and actors arrives as it was sent, records of their own classes included."""

from __future__ import annotations

import pickle

from raffed.config.faults import ParticipantFault
from raffed.core.measures.scores import ClientScores, ExtraMeasure, ScoreCounts
from raffed.runtime.api import ActorShare, ParticipantOrder
from raffed.runtime.reports import Report, SurveyedClient

TALLY = ScoreCounts((1, 0), (2, 1), (2, 1), 0.5, 1)


def test_a_share_arrives_as_it_was_sent() -> None:
    share = ActorShare(
        (
            (ParticipantOrder(3, 0.25, 7), ParticipantOrder(1, 0.0, 0, ParticipantFault("late", 0.5))),
            (ParticipantOrder(2, 0.75, 1),),
        ),
        True,
        (1, 2, 3),
    )
    there = pickle.loads(pickle.dumps(share))
    assert there == share
    assert [type(entry) for stack in there.stacks for entry in stack] == [ParticipantOrder] * 3
    assert there.stacks[0][1].fault.outcome == "late"
    assert hash(there) == hash(share)  # an actor knows by it a round that it has done already


def test_reports_arrive_as_they_were_sent() -> None:
    bare = Report(4, 17, 2.5, 2, 100, 200, 0.25)
    scores = ClientScores(
        {"global": TALLY, "personal": TALLY}, TALLY, (TALLY,), {"spectrum": ExtraMeasure(0.5, 3)}
    )
    sent = [bare, Report(5, 9, 1.5, 1, 100, 200, 0.5, scores), SurveyedClient(6, scores)]
    there = pickle.loads(pickle.dumps(sent))
    assert there == sent
    assert [type(one) for one in there] == [Report, Report, SurveyedClient]
    assert type(there[1].scores.models["global"]) is ScoreCounts
