"""A pool of client actors has the serial bits though actors answer late, die, or run out of memory."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
import ray

from raffed.core.messages import Broadcast
from raffed.errors import ActorStartError
from raffed.results.runfile import read_run
from raffed.runtime.ray import driver
from tests.reliability.actors import Fault, StruckActor
from tests.runtime.conftest import by_every_carrier, on, small
from tests.runtime.odd_actors import BrokenActor, FarActor, HungryActor, Plain, conducted

pytestmark = pytest.mark.usefixtures("ray_here")

Hashes = dict[str, dict[str, str]]
TWO = on(small(), execution="ray", actors=2)


@pytest.mark.more
@by_every_carrier("socket")
@pytest.mark.parametrize("fault", [Fault("slow", 1, 0), Fault("evaluation", 0, 1)], ids=lambda one: one.kind)
def test_an_actor_that_is_late_or_dies_while_it_scores_changes_no_bit(
    fault: Fault, carrier: str, reference: Hashes, tmp_path: Path
) -> None:
    """The next round's training was asked of it already; it is replaced once."""
    about = conducted(TWO, tmp_path / "run", StruckActor, (fault,), str(tmp_path))
    assert about["hashes"] == reference["scamap"]
    assert about["placement"]["restarts"] == (fault.kind != "slow")
    assert len(list(tmp_path.glob(f"{fault.kind}-*"))) == 1


@pytest.mark.more
def test_scoring_sends_nothing_that_the_next_round_sends_as_well(
    reference: Hashes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[int] = []

    class Counted(driver.Shared[Broadcast]):
        def __init__(self, value: Broadcast, small: bool) -> None:
            sent.append(value.round)
            super().__init__(value, small)

    monkeypatch.setattr(driver, "Shared", Counted)
    assert conducted(TWO, tmp_path / "run", ray.remote(Plain))["hashes"] == reference["scamap"]
    assert sent == [0, 1, 2, 3, 4]  # four rounds, each of them scored


@pytest.mark.more
def test_sums_that_are_added_on_another_node_have_the_serial_bits_though_an_actor_there_dies(
    reference: Hashes, tmp_path: Path
) -> None:
    """Three actors of one node answer through Ray, and the first of them adds. In round 2 it adds without the
    one that died, whose replacement answers the driver.
    """
    about = conducted(on(small(), execution="ray", actors=3), tmp_path / "run", FarActor, actors=3)
    assert about["hashes"] == reference["scamap"]
    assert about["placement"]["restarts"] == 1
    added = (tmp_path / "run" / "vaults-died-added").read_text().split("\n")
    assert added[:2] == ["3 0", "3 1"]


@pytest.mark.more
@by_every_carrier("socket")
def test_an_actor_that_runs_out_of_memory_hands_its_clients_over_and_the_bits_stay(
    carrier: str, reference: Hashes, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    about = conducted(TWO, tmp_path / "run", HungryActor)
    assert about["hashes"] == reference["scamap"]
    assert (about["placement"]["retired"], about["placement"]["restarts"]) == ([0], 0)
    assert "CUDA out of memory" in caplog.text
    assert "--actors" in caplog.text


def test_an_actor_that_cannot_start_is_not_started_again_and_its_error_is_told(tmp_path: Path) -> None:
    with pytest.raises(
        ActorStartError,
        match=r"^client actor 1 could not start: RuntimeError: Found no NVIDIA driver here\.;",
    ):
        conducted(TWO, tmp_path / "run", BrokenActor)
    assert read_run(tmp_path / "run")["state"] == "failed"
    assert (tmp_path / "starts").read_text() == "1\n"


@pytest.mark.more
@by_every_carrier("socket")
@pytest.mark.parametrize("noticed", ["at once", "later"])
def test_clients_of_a_lost_actor_for_whose_replacement_there_is_no_room_move_to_the_others(
    carrier: str, noticed: str, reference: Hashes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when its node is lost and the others are full. Ray may notice that the node is gone only after the
    actor was started again, and would then wait for ever.
    """
    cores = itertools.chain([1.0 if noticed == "at once" else 2.0], itertools.repeat(1.0))
    monkeypatch.setattr("ray.cluster_resources", lambda: {"CPU": next(cores)})
    monkeypatch.setattr("raffed.runtime.ray.transport.IDLE_SECONDS", 0.5)
    about = conducted(
        TWO, tmp_path / "run", StruckActor, (Fault("evaluation", 0, 1),), str(tmp_path), later=1000
    )
    assert about["hashes"] == reference["scamap"]
    assert len(about["placement"]["retired"]) == 1
