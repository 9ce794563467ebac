"""The virtual clock: who arrives when, what the server makes of it, and what stays the same."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import raffed
from raffed import Clock, Data, Faults, Federation, Local, Model, Privacy, RunConfig, Runtime
from raffed.config.validation import Value
from raffed.core import seeds
from raffed.errors import UsageError
from raffed.runs.aggregation import completed
from raffed.runs.participation import RoundPlan
from raffed.runs.round_schedule import Timeline
from raffed.runtime.setup import prepare_run
from tests.params import one_in
from tests.tiny import digits


def run(clock: Clock | None = None, method: str = "fedavg", **federation: object) -> RunConfig:
    local = Local(lr=0.1, momentum=0.0, batch_size=16, epochs=1)
    asked = Federation(**{"rounds": 4, **federation})  # type: ignore[arg-type]
    usual = digits("p10c2", method=method, samples=200, local=local, federation=asked)
    return replace(usual, clock=clock or Clock(), seed=1)


def times(config: RunConfig, steps: int) -> list[float]:
    timeline = Timeline(prepare_run(config))
    return [timeline.step(number).time for number in range(steps)]


@pytest.mark.parametrize("method", one_in(3, ["fedavg", "scaffold", "fedadam", "map"]))
def test_fedbuff_at_equal_speeds_with_a_buffer_of_all_is_the_waiting_server(method: str) -> None:
    equal = Clock(speeds="constant", work="round", server="fedbuff")
    for participation in (1.0, 0.5):
        with_clock = raffed.run(run(equal, method, participation=participation, rounds=3)).hashes
        without = raffed.run(run(None, method, participation=participation, rounds=3)).hashes
        assert (with_clock["weights"], with_clock["vaults"]) == (without["weights"], without["vaults"])


def test_a_buffer_of_all_clients_waits_for_all_at_any_speeds() -> None:
    slow = Clock(speeds="lognormal", spread=2.0, server="fedbuff")
    assert raffed.run(run(slow)).hashes["weights"] == raffed.run(run()).hashes["weights"]


def test_a_clock_alone_adds_rows_and_changes_nothing_else() -> None:
    timed, plain = raffed.run(run(Clock(speeds="constant"))), raffed.run(run())
    assert timed.hashes["weights"] == plain.hashes["weights"]
    rows = timed.to_pandas().query("metric == 'virtual_seconds'")
    assert rows["value"].tolist() == times(run(Clock(speeds="constant")), 4)
    assert rows["value"].is_monotonic_increasing


def test_a_waiting_round_takes_as_long_as_its_slowest_client(tmp_path: Path) -> None:
    """Client 3 needs 5 s and all others 1 s or less, and all take part."""
    trace = tmp_path / "trace.csv"
    trace.write_text(
        "client,factor\n" + "".join(f"{c},{5.0 if c == 3 else 0.1 * (c + 1)}\n" for c in range(10))
    )
    clock = Clock(speeds="trace", trace=str(trace), work="round")
    assert times(run(clock), 3) == [5.0, 10.0, 15.0]


def steps_of(method: str = "fedavg", args: Mapping[str, Value] | None = None, **changes: Any) -> list[float]:
    """The seconds of two waiting rounds in which ten clients of 17 samples need 1 s for a local step."""
    base = run(Clock(speeds="constant"), method)
    local = replace(base.local, **changes.pop("local", {}))
    data = Data("digits", "iid:10", samples=170)
    return times(replace(base, args=args or {}, local=local, data=data, **changes), 2)


def test_the_clock_counts_the_steps_that_clients_make() -> None:
    """17 samples in batches of 16 are 2 steps an epoch; 1.5 epochs are 3 steps.

    A straggler makes ⌈3/2⌉ of them. Per-FedAvg's step takes 2 mini-batches: 2 steps with 4 of them, and 3
    steps with 6 by its authors' code. GLDP's body leaves out the last batch of one sample where there
    is BatchNorm: 2 · 2 steps of the head and 1 of the body.
    """
    more = {"epochs": 1.5}
    late = Faults(at=", ".join(f"straggle {client}@1-2" for client in range(10)))
    assert steps_of() == [2.0, 4.0]
    assert steps_of(local=more) == [3.0, 6.0]
    assert steps_of(local=more, faults=late) == [2.0, 4.0]
    assert steps_of("perfedavg", local=more) == [4.0, 8.0]
    assert steps_of("perfedavg", {"preset": "authors"}, local=more) == [6.0, 12.0]
    gldp = {"body_epochs": 1.0, "head_epochs": 2.0}
    assert steps_of("gldp", gldp) == [6.0, 12.0]
    assert steps_of("gldp", gldp, model=Model("resnet8")) == [5.0, 10.0]


def test_each_round_of_a_fork_takes_the_time_of_its_own_settings(tmp_path: Path) -> None:
    """Ten clients make 2 steps an epoch: 4 s in two epochs, 2 s in one, and then 1 s at half a second a step.

    Rounds without a clock have taken no time.
    """

    def seconds(result: raffed.RunResult) -> list[float]:
        return result.to_pandas().query("metric == 'virtual_seconds'")["value"].tolist()

    usual = replace(run(rounds=2), data=Data("digits", "iid:10", samples=170))
    twice = replace(usual, clock=Clock(speeds="constant"), local=replace(usual.local, epochs=2))
    raffed.run(twice, tmp_path / "run")
    raffed.fork(tmp_path / "run", {"local.epochs": 1.0, "federation.rounds": 3}, tmp_path / "a")
    half: dict[str, Value] = {"clock.seconds": 0.5, "federation.rounds": 5}
    assert seconds(raffed.fork(tmp_path / "a", half, tmp_path / "b")) == [4.0, 8.0, 10.0, 11.0, 12.0]
    assert raffed.verify(tmp_path / "b", rounds=9).ok
    raffed.run(usual, tmp_path / "plain")
    timed: dict[str, Value] = {"clock.speeds": "constant", "federation.rounds": 4}
    assert seconds(raffed.fork(tmp_path / "plain", timed, tmp_path / "c")) == [2.0, 4.0]
    new: dict[str, Value] = {"data.split": "dirichlet:10:0.5", "federation.rounds": 3}
    with pytest.raises(UsageError, match="its clock looks at the clients' numbers of samples"):
        raffed.fork(tmp_path / "run", new, tmp_path / "d")


def test_the_clock_counts_the_epochs_that_clients_draw() -> None:
    drawn = [
        max(int(seeds.rng(1, "epochs", round, client).integers(1, 6)) for client in range(10))
        for round in range(2)
    ]
    assert steps_of(local={"epochs_to": 5}) == [2.0 * drawn[0], 2.0 * sum(drawn)]


def test_a_server_that_does_not_wait_goes_on_without_the_slowest_client(tmp_path: Path) -> None:
    """Client 0 needs 3.5 s and nine others 1 s. With a buffer of 9 the steps are after 1, 2 and 3 s.

    At 4 s the upload of client 0 is there, begun with the first model, and stands beside eight others.
    """
    trace = tmp_path / "trace.csv"
    trace.write_text("client,factor\n" + "".join(f"{c},{3.5 if c == 0 else 1.0}\n" for c in range(10)))
    config = run(Clock(speeds="trace", trace=str(trace), work="round", server="fedbuff", buffer=9))
    timeline = Timeline(prepare_run(config))
    steps = [timeline.step(number) for number in range(4)]
    assert [step.time for step in steps] == [1.0, 2.0, 3.0, 4.0]
    assert [[one.client for one in step.arrivals] for step in steps[:3]] == [[*range(1, 10)]] * 3
    assert [(one.client, one.start) for one in steps[3].arrivals] == [(0, 0), *((c, 3) for c in range(1, 9))]
    assert [step.needed for step in steps] == [(0,), (0,), (0,), (3,)]  # at last client 9 waits


def test_no_client_begins_twice_with_one_model() -> None:
    clock = Clock(speeds="lognormal", spread=1.5, jitter=0.5, server="fedbuff", buffer=2)
    timeline = Timeline(prepare_run(run(clock, participation=0.5)))
    begun = [(one.client, one.start) for number in range(300) for one in timeline.step(number).arrivals]
    assert len(set(begun)) == len(begun)
    assert all(one.start <= number for number in range(300) for one in timeline.step(number).arrivals)


def test_fedasync_mixes_one_upload_into_the_model() -> None:
    """w = (0, 4) and w_i = (2, 0), begun one step ago: α s(1) = 0.5 / √2."""
    clock = Clock(speeds="constant", server="fedasync", mixing=0.5)
    found = _completed(clock, [1], [0.5 * 2**-0.5])
    share = 0.5 * 2**-0.5
    assert found == pytest.approx([2 * share, 4 * (1 - share)], rel=1e-6)


def test_fedbuff_adds_updates_to_the_present_model() -> None:
    """Both clients end at (2, 0). One began at w = (0, 4) and one at (1, 1), with p = (0.5, 0.25)."""
    clock = Clock(speeds="constant", server="fedbuff")
    found = _completed(clock, [2, 1], [0.5, 0.25])
    expected = [0.5 * (2 - 0) + 0.25 * (2 - 1), 4 + 0.5 * (0 - 4) + 0.25 * (0 - 1)]
    assert found == pytest.approx(expected, rel=1e-6)


def _completed(clock: Clock, starts: list[int], weights: list[float]) -> list[float]:
    """Return what a step makes of uploads (2, 0) if w = (0, 4) is the second model and (1, 1) the first."""
    from raffed.core.messages import ServerState
    from raffed.core.params import Params

    def point(*numbers: float) -> Params:
        return Params({"w": torch.tensor(numbers)})

    present, earlier = (ServerState(n, p, Params({}), {}) for n, p in ((2, point(0, 4)), (1, point(1, 1))))
    plan = RoundPlan(
        2,
        None,
        [],
        tuple(weights),
        (),
        (),
        (),
        True,
        False,
        tuple(starts),  # type: ignore[arg-type]
    )
    sums = Params({"w": torch.tensor([2.0, 0.0]) * sum(weights)}), Params({})
    return completed(sums, present, plan, clock, {1: earlier})[0]["w"].tolist()


@pytest.mark.parametrize(
    ("a", "b", "kind", "expected"),
    [
        (0.5, 4, "polynomial", [1.0, 2**-0.5, 3**-0.5, 0.5]),
        (1.0, 1, "hinge", [1.0, 1.0, 0.5, 1 / 3]),
        (0.5, 4, "constant", [1.0] * 4),
    ],
)
def test_how_weights_fall_with_staleness(a: float, b: int, kind: str, expected: list[float]) -> None:
    clock = Clock(speeds="constant", staleness=kind, staleness_a=a, staleness_b=b)  # type: ignore[arg-type]
    assert [clock.discount(tau) for tau in range(4)] == pytest.approx(expected)


@pytest.mark.parametrize(
    ("server", "method"),
    one_in(4, itertools.product(["fedbuff", "fedasync"], ["fedavg", "scaffold", "fedrep"])),
)
def test_a_stop_changes_nothing(server: str, method: str, tmp_path: Path) -> None:
    clock = Clock(speeds="lognormal", spread=1.0, server=server, mixing=0.6)  # type: ignore[arg-type]
    clock = replace(clock, buffer=3 if server == "fedbuff" else 0)
    asked, done = run(clock, method, rounds=9, participation=0.6), list[int]()
    raffed.run(asked, tmp_path / "run", watch=lambda e: done.append(e.round), stop=lambda: len(done) == 5)
    whole = raffed.run(asked)
    assert raffed.resume(tmp_path / "run").hashes == whole.hashes
    assert whole.to_pandas().query("metric == 'staleness'")["value"].max() > 0
    assert raffed.verify(tmp_path / "run", rounds=9).ok


def test_a_survey_finds_the_layers_of_clients_that_began_with_an_earlier_model() -> None:
    """With one upload a step, the mean of the participants' layers is that client's own.

    So the oracle's model is the client's, and both have the same score on its test part.
    """
    clock = Clock(speeds="lognormal", spread=1.0, server="fedasync", mixing=0.6)
    base = run(clock, "fedrep", rounds=12, participation=0.5, survey=1)
    rows = raffed.run(replace(base, data=Data("digits", "p10c2", samples=400, local_test=0.4))).to_pandas()
    last = rows[(rows["round"] == 12) & rows["client"].notna()]
    assert rows.query("round == 12 and metric == 'staleness'")["value"].item() > 0
    [client] = last.query("metric == 'loss'")["client"]
    own = last[last["client"] == client].set_index("metric")["value"]
    assert own["accuracy_oracle"] == own["accuracy_between"] > 0


@pytest.mark.slow
def test_bits_are_the_same_for_any_actors() -> None:
    clock = Clock(speeds="lognormal", spread=1.0, server="fedbuff", buffer=3)
    asked = run(clock, "scaffold", rounds=6)
    serial = raffed.run(asked).hashes
    for actors in (1, 3):
        ray = replace(asked, runtime=Runtime(execution="ray", actors=actors))
        assert raffed.run(ray).hashes == serial


FEDBUFF, FEDASYNC = (Clock(speeds="constant", server=name) for name in ("fedbuff", "fedasync"))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (run(replace(FEDBUFF, buffer=11)), "more than the 10 clients that train at a time"),
        (run(FEDBUFF, selection="size"), "another selection than uniform"),
        (run(FEDASYNC, mean="median"), "needs the uploads of a whole round"),
        (
            run(Clock(speeds="constant"), selection="power_of_choice", participation=0.3),
            "chooses them by their losses",
        ),
        (replace(run(FEDBUFF), privacy=Privacy(clip=1.0)), "clipping, noise or masks"),
    ],
)
def test_what_does_not_fit_is_refused(config: RunConfig, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        prepare_run(config)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"buffer": 3}, "has no effect without clock.speeds"),
        ({"speeds": "trace"}, "a trace needs both"),
        ({"speeds": "constant", "buffer": 3}, "is for clock.server = 'fedbuff'"),
        ({"speeds": "constant", "server": "fedasync", "mixing": 1.5}, "at most 1"),
    ],
)
def test_fields_that_contradict_each_other_are_refused(fields: dict, message: str) -> None:  # type: ignore[type-arg]
    with pytest.raises(UsageError, match=message):
        Clock(**fields).check_together()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("client,factor\n0,1\n0,2\n", "client 0 is there twice"),
        ("client,factor\n0,-1\n", "must be above 0"),
        ("client,factor\n0,x\n", "line 2"),
        ("who\n0\n", "line 2"),
        ("client,factor\n0,1\n", "no line for client 1"),
        ("client,factor\n0,1\n\n\n1,x\n", "line 5"),
        (f"client,factor\n0,{'1' * 200_000}\n", "(field larger|factor inf)"),
        ("client,factor\n0,1\n1,2 \u00fc\n", "cannot be read as a table .*UTF-8"),
    ],
)
def test_a_trace_is_checked(text: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "trace.csv"
    file.write_text(text, encoding="latin-1")
    with pytest.raises(UsageError, match=message):
        Clock(speeds="trace", trace=str(file)).traced(2)


@pytest.mark.parametrize("end", ["\r", "\r\n", "\n"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_a_trace_may_come_from_any_program(end: str, mark: str, tmp_path: Path) -> None:
    """Excel begins a file with a byte order mark, and ends lines as Windows does."""
    file = tmp_path / "trace.csv"
    file.write_bytes((mark + end.join(["client,factor", "1,2.5", "0,1"])).encode())
    assert Clock(speeds="trace", trace=str(file)).traced(2) == [1.0, 2.5]


def test_verify_finds_an_earlier_model_that_is_damaged_or_lost(tmp_path: Path) -> None:
    """Clients still train from it, so a checkpoint keeps it."""
    clock = Clock(speeds="lognormal", spread=1.5, server="fedbuff", buffer=2)
    raffed.run(run(clock), tmp_path / "run")
    earlier = sorted((tmp_path / "run").glob("checkpoints/*/past-*.safetensors"))
    assert earlier
    for damage in (lambda: earlier[0].write_bytes(earlier[0].read_bytes()[:-1]), earlier[0].unlink):
        damage()
        failed = [one for one in raffed.verify(tmp_path / "run", 0, progress=False).checks if not one.ok]
        assert [(one.what, one.found) for one in failed] == [
            (f"{earlier[0].parent.name}, {earlier[0].name}", "unreadable")
        ]
