"""The benchmark's own correctness: everybody makes the same steps, ratios are paired, and a race outlives
its contestants.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import psutil
import pytest

from benchmarks.contestant import CONTESTANTS, INTERPRETERS
from benchmarks.process import GoneError, Process, command
from benchmarks.race import race, summary
from benchmarks.report import plot, table
from benchmarks.round_time import figures

ANSWER = """
import json, sys
blocks = json.loads(sys.argv[1])
print(json.dumps({"ready": True}), flush=True)
for line in sys.stdin:
    order = json.loads(line)
    if order["do"] == "quit":
        break
    if order["do"] == "accuracy":
        print(json.dumps({"accuracy": 0.5}), flush=True)
    elif not blocks:
        sys.exit("the last straw")
    else:
        print(json.dumps(blocks.pop(0)), flush=True)
"""


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers that were written before need no time in which a processor wakes up."""
    monkeypatch.setattr("benchmarks.race.AWAKE", 0.0)


def block(seconds: Sequence[float], steps: int = 7) -> dict[str, list[float] | list[int]]:
    return {"seconds": list(seconds), "steps": [steps] * len(seconds)}


def actors(**scripts: list[dict[str, list[float] | list[int]]]) -> Callable[[str], list[str]]:
    """Commands of contestants that answer these blocks in turn, the warm-up first, and exit when asked
    for one more.
    """
    return lambda name: [sys.executable, "-c", ANSWER, json.dumps(scripts[name])]


@pytest.mark.slow
def test_the_bare_loop_and_raffed_make_the_same_steps_on_w3() -> None:
    """17 or 18 samples a client in batches of 16: two steps for each of the 100 clients."""
    lanes = race(["bare", "raffed-cohort"], lambda name: command(name, "W3"), repetitions=1, rounds=2)
    assert [(lane.note, lane.steps) for lane in lanes] == [(None, [200, 200])] * 2
    assert all(row["same_steps"] and row["ratio"] > 0 and row["pss_mib"] > 50 for row in summary(lanes))


def test_a_ratio_is_to_the_bare_block_of_the_same_repetition() -> None:
    """Medians of blocks: bare 2 and 8, other 1 and 2: ratios 1/2 and 1/4, median 3/8; the warm-up counts
    nowhere.
    """
    bare = [block([99.0] * 3), block([1.0, 2.0, 9.0]), block([8.0] * 3), block([0.0] * 3)]
    other = [block([0.1] * 3), block([1.0, 1.0, 9.0]), block([2.0] * 3), block([0.0] * 3)]
    rows = summary(race(["bare", "other"], actors(bare=bare, other=other), repetitions=2, rounds=3))
    assert [row["ratios"] for row in rows] == [[1.0, 1.0], [0.5, 0.25]]
    assert [row["ratio"] for row in rows] == [1.0, 0.375]
    assert [row["first_round_s"] for row in rows] == [99.0, 0.1]
    assert [row["accuracy"] for row in rows] == [0.5, 0.5]


def test_a_contestant_with_other_steps_is_marked() -> None:
    same, fewer = [block([1.0])] * 3, [block([1.0]), block([1.0], 6), block([1.0])]
    rows = summary(race(["bare", "lazy"], actors(bare=same, lazy=fewer), repetitions=1, rounds=1))
    assert [row["same_steps"] for row in rows] == [True, False]


def test_a_race_goes_on_when_a_contestant_dies_and_keeps_what_it_measured() -> None:
    bare, dying = [block([2.0])] * 5, [block([2.0]), block([3.0])]
    rows = summary(race(["bare", "dying"], actors(bare=bare, dying=dying), repetitions=3, rounds=1))
    assert [row["ratios"] for row in rows] == [[1.0, 1.0, 1.0], [1.5]]
    assert rows[0]["note"] is None
    assert rows[1]["note"] == "died (exit 1): the last straw"
    assert rows[1]["accuracy"] is None


def test_a_paused_contestant_stands_still_until_it_is_resumed_or_closed() -> None:
    process = Process(actors(one=[block([1.0])])("one"))
    process.start(60)
    process.pause()
    process.tell(do="block", rounds=1)
    with pytest.raises(GoneError, match="no answer in 1 s"):
        process.hear(1)
    other = Process(actors(one=[block([1.0])])("one"))
    other.start(60)
    other.pause()
    other.resume()
    assert other.ask(60, do="block", rounds=1) == {"seconds": [1.0], "steps": [7]}
    other.pause()
    other.close()
    assert not psutil.pid_exists(process.pid)
    assert not psutil.pid_exists(other.pid)


def test_an_interrupted_race_leaves_no_process_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[int] = []

    def interrupted(process: Process, timeout: float) -> float:
        started.append(process.pid)
        if len(started) == 2:
            raise KeyboardInterrupt
        return 0.0

    monkeypatch.setattr(Process, "start", interrupted)
    with pytest.raises(KeyboardInterrupt):
        race(["bare", "other"], actors(bare=[], other=[]), repetitions=1, rounds=1)
    assert len(started) == 2
    assert not any(psutil.pid_exists(pid) for pid in started)


def test_an_interpreter_that_is_not_there_is_an_absent_contestant(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("RAFFED_PEERS", str(tmp_path / "python"))
    scripted = actors(bare=[block([1.0])] * 3)
    names = {"bare": scripted("bare"), "flower": command("flower", "W3")}
    rows = summary(race(list(names), names.__getitem__, repetitions=1, rounds=1))
    assert rows[0]["ratios"] == [1.0]
    assert rows[1]["note"].startswith("absent: ")
    result = {"workload": "W0", "text": "a play", "repetitions": 1, "rounds": 1, "rows": rows}
    assert table(result).row_count == 2
    plot([result], tmp_path / "plot.png")
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("name", ["pfllib", pytest.param("flbench", marks=pytest.mark.more)])
def test_a_peer_whose_checkout_is_not_named_is_absent_and_says_which_variable_names_it(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    variable = "RAFFED_PFLLIB" if name == "pfllib" else "RAFFED_FLBENCH"
    monkeypatch.delenv("RAFFED_PEERS", raising=False)
    monkeypatch.setenv(variable, "")
    with pytest.raises(GoneError, match=f"absent: {variable} names no checkout"):
        Process(command(name, "W3")).start(120)


def test_the_history_keeps_the_seconds_and_ratio_of_those_who_took_part() -> None:
    rows = summary(
        race(
            ["bare", "late"],
            actors(bare=[block([2.0])] * 3, late=[]),
            repetitions=1,
            rounds=1,
        )
    )
    assert figures({"workload": "W0", "rows": rows}) == [
        {"workload": "W0", "name": "bare", "seconds": 2.0, "ratio": 1.0}
    ]


def test_every_peer_is_a_contestant() -> None:
    assert set(INTERPRETERS) < set(CONTESTANTS)
