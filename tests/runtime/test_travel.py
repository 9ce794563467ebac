"""What travels between driver and actors arrives as it was sent, records of their own classes included."""

from __future__ import annotations

import pickle

from raffed.core.faults import Fate
from raffed.runtime.base import Entry, Extra, Report, Reports, Share, Tally

TALLY = Tally((1, 0), (2, 1), (2, 1), 0.5, 1)


def test_a_share_arrives_as_it_was_sent() -> None:
    share = Share(((Entry(3, 0.25, 7), Entry(1, 0.0, 0, Fate("late", 0.5))), (Entry(2, 0.75, 1),)), True, (1, 2, 3))
    there = pickle.loads(pickle.dumps(share))
    assert there == share
    assert [type(entry) for stack in there.stacks for entry in stack] == [Entry] * 3
    assert there.stacks[0][1].fate.outcome == "late"
    assert hash(there) == hash(share)  # an actor knows by it a round that it has done already


def test_reports_arrive_as_they_were_sent() -> None:
    bare = Report(4, 17, 2.5, 2, 100, 200, 0.25)
    full = Report(5, 9, 1.5, 1, 100, 200, 0.5, {"global": TALLY, "personal": TALLY}, TALLY, (TALLY,), {"spectrum": Extra(0.5, 3)})
    there = pickle.loads(pickle.dumps(Reports([bare, full])))
    assert there == [bare, full]
    assert [type(report) for report in there] == [Report] * 2
