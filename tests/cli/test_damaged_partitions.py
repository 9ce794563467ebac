"""A damaged partition, checkpoint or file of weights is told in one line with its name, by every command."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import raffed
from raffed.data.partition import make_partition
from raffed.data.partition_file import Partition
from raffed.data.splits import parse_split
from raffed.results import read_run
from tests.cli.conftest import Cli
from tests.cli.damages import Damage, in_short, instead, told_once
from tests.forging import edited, sha256

pytestmark = pytest.mark.usefixtures("no_waiting")


def another_partition(run: Path) -> None:
    labels = np.arange(1797) % 10
    make_partition(parse_split("iid:10"), labels, 10, None, 5, 0.2).save(run / "partition.npz")


def another_recipe(run: Path) -> None:
    kept = Partition.load(run / "partition.npz")
    other = Partition(kept.train, kept.test, kept.num_classes, {**kept.recipe, "seed": 77})
    other.save(run / "partition.npz")


def flip(path: Path, at: int) -> None:
    raw = bytearray(path.read_bytes())
    raw[at] ^= 1
    path.write_bytes(raw)


PARTITION_DAMAGES: dict[str, Damage] = {
    **{
        f"a bit of byte {at}": (lambda run, at=at: flip(run / "partition.npz", at))
        for at in (0, 40, -30, -400)
    },
    "cut": lambda run: (run / "partition.npz").write_bytes((run / "partition.npz").read_bytes()[:200]),
    "empty": lambda run: (run / "partition.npz").write_bytes(b""),
    "bytes behind it": lambda run: (run / "partition.npz").write_bytes(
        (run / "partition.npz").read_bytes() + b"x"
    ),
    "another one": another_partition,
    "another recipe": another_recipe,
    "a folder": instead(Path.mkdir, "partition.npz"),
}


@pytest.mark.parametrize("what", in_short(PARTITION_DAMAGES, 4))
def test_a_partition_that_is_damaged_or_exchanged_is_told_and_the_advice_helps(
    cli: Cli, stopped: Path, whole: Path, what: str
) -> None:
    for run in (stopped, whole):
        PARTITION_DAMAGES[what](run)
        assert told_once(cli("resume", run), "partition.npz")
        done = cli("verify", run, "--rounds", "0")
        assert done.code in (1, 2)
        assert "partition.npz" in done.out + done.err
        shutil.rmtree(run.parent / "away", ignore_errors=True)
        (run.parent / "away").unlink(missing_ok=True)
    if (stopped / "partition.npz").is_file():
        (stopped / "partition.npz").unlink()
        assert raffed.resume(stopped).state == "finished"
        assert cli("verify", stopped, "--rounds", "0").code == 0


def test_a_partition_that_is_missing_is_said_and_written_again(
    cli: Cli, stopped: Path, whole: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for run, then in ((stopped, "it is written again"), (whole, "put back a copy")):
        (run / "partition.npz").unlink()
        assert cli("verify", run, "--rounds", "0").code == 1
        assert cli("resume", run, "--quiet").code == 0
        missing = f"{run}/partition.npz: is missing"
        assert sum(missing in one.message and then in one.message for one in caplog.records) == 1
    assert sha256(stopped / "partition.npz") == read_run(stopped)["files"]["partition.npz"]


@pytest.mark.parametrize("change", [{"round": 1}, {"round_hashes": ["0" * 64] * 2}, {"vaults": {}}])
def test_a_checkpoint_whose_state_was_edited_is_not_gone_on_from(
    cli: Cli, stopped: Path, change: dict[str, Any]
) -> None:
    edited(stopped / "checkpoints" / "round-000002" / "state.json", lambda about: about.update(change))
    assert told_once(cli("resume", stopped), "round-000002/state.json: it is damaged or was replaced")
    done = cli("verify", stopped, "--rounds", "0")
    assert done.code == 1


def test_a_file_of_the_final_weights_that_was_changed_is_told(cli: Cli, whole: Path) -> None:
    flip(whole / "final.safetensors", -1)
    assert cli("verify", whole, "--rounds", "0").code == 1
