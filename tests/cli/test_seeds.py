"""`--seeds` of `raffed run` and `raffed compare`: folders, bits, going on, stopping, failing, reporting."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from raffed.results import read_run
from tests.cli.conftest import Cli, shell

SMALL = ["--epochs", 1, "--split", "p4c5", "--samples", 200, "--model", "mlp", "--model-arg", "hidden=[4]"]
TWO = [*SMALL, "--rounds", 2]


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[dict[str, object]]]:
    """FedAvg and FedProx with the seeds 4, 5 and 6, and the events that were printed."""
    out = tmp_path_factory.mktemp("seeds") / "three"
    done = shell(*COMPARED, "--seed", 4, "--seeds", 3, "--json", "--out", out)
    assert done.returncode == 0, done.stderr
    return out, [json.loads(line) for line in done.stdout.splitlines()]


COMPARED = ["compare", "--method", "fedavg", "--method", "fedprox", *TWO]


def hashes(folder: Path) -> dict[str, str]:
    about = read_run(folder)
    assert about["state"] == "finished"
    return dict(about["hashes"])


def test_every_seed_has_the_bits_of_a_single_run_with_that_seed(
    cli: Cli, tmp_path: Path, three: tuple[Path, list[dict[str, object]]]
) -> None:
    out, _ = three
    names = sorted(one.parent.relative_to(out).as_posix() for one in out.glob("*/*/run.json"))
    assert names == [f"{method}/seed-{k}" for method in ("fedavg", "fedprox") for k in (4, 5, 6)]
    single = ["run", "--method", "fedprox", "--seed", 5, "--execution", "serial", *TWO]
    assert cli(*single, "--out", tmp_path / "one").code == 0
    assert hashes(tmp_path / "one") == hashes(out / "fedprox" / "seed-5")
    assert read_run(tmp_path / "one")["identity"] == read_run(out / "fedprox" / "seed-5")["identity"]


def test_every_event_names_its_method_and_seed(three: tuple[Path, list[dict[str, object]]]) -> None:
    out, events = three
    of_runs = [event for event in events if event["event"] in ("round", "finished")]
    assert len(of_runs) == 2 * 3 * (2 + 1)
    for method in ("fedavg", "fedprox"):
        for seed in (4, 5, 6):
            mine = [event for event in of_runs if (event["method"], event["seed"]) == (method, seed)]
            assert [event["event"] for event in mine] == ["round", "round", "finished"]
            assert mine[-1]["hashes"] == hashes(out / method / f"seed-{seed}")
    assert [event["event"] for event in events[-2:]] == ["report", "differences"]
    (row,) = events[-2]["runs"][:1]  # type: ignore[index]
    assert row["Seeds"] == "3"
    assert "±" in row["Aggregation, last %"]
    (table,) = events[-1]["tables"].values()  # type: ignore[attr-defined]
    assert table[0]["Seeds"] == "3"


def test_the_same_command_keeps_what_is_finished_and_a_larger_number_adds_seeds(
    cli: Cli, three: tuple[Path, list[dict[str, object]]]
) -> None:
    out, _ = three
    before = {one: one.stat().st_mtime_ns for one in out.glob("*/*/run.json")}
    again = cli(*COMPARED, "--seed", 4, "--seeds", 4, "--out", out)
    assert again.code == 0
    assert {one: one.stat().st_mtime_ns for one in before} == before
    assert hashes(out / "fedavg" / "seed-7")
    assert "±" in again.out
    assert "Differences, paired by seed" in again.out
    assert (out / "report" / "report.html").read_text().count("p (paired t)") >= 1


def test_a_single_method_has_its_seeds_directly_below_out_and_two_are_too_few(
    cli: Cli, tmp_path: Path
) -> None:
    done = cli("run", *TWO, "--seeds", 2, "--out", tmp_path / "two")
    assert done.code == 0
    assert sorted(one.name for one in (tmp_path / "two").iterdir()) == ["report", "seed-0", "seed-1"]
    assert "±" not in done.out
    assert "two seeds are too few for an interval" in done.out
    other = cli("run", *TWO, "--lr", 0.5, "--seeds", 2, "--out", tmp_path / "two")
    assert (other.code, "another configuration" in other.err) == (2, True)


def test_a_file_may_ask_for_seeds_and_the_option_overrides_it(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "run.toml"
    file.write_text('method = "fedavg"\nseeds = 2\n')
    assert cli("run", file, *TWO, "--seeds", 1, "--quiet", "--out", tmp_path / "one").code == 0
    assert [one.name for one in (tmp_path / "one").glob("seed-*")] == ["seed-0"]
    file.write_text('method = "fedavg"\nseeds = "many"\n')
    refused = cli("run", file, *TWO, "--out", tmp_path / "none")
    assert refused.code == 2
    assert "seeds = 'many' must be a whole number" in refused.err


@pytest.mark.parametrize("number", [0, -1, 10_001])
@pytest.mark.parametrize("command", [["run"], ["compare", "--method", "fedavg"]])
def test_a_number_of_seeds_that_is_not_possible_is_refused(
    cli: Cli, tmp_path: Path, command: list[str], number: int
) -> None:
    done = cli(*command, *TWO, "--seeds", number, "--out", tmp_path / "out")
    assert done.code == 2
    assert f"seeds = {number} is outside" in done.err
    assert not (tmp_path / "out").exists()


def test_what_follows_a_single_run_is_refused_with_several(cli: Cli, tmp_path: Path) -> None:
    done = cli("run", *TWO, "--seeds", 2, "--tensorboard", tmp_path / "board", "--out", tmp_path / "out")
    assert done.code == 2
    assert "--tensorboard cannot be used with --seeds" in done.err


def test_a_folder_with_a_single_run_is_refused(cli: Cli, tmp_path: Path, finished: Path) -> None:
    done = cli("run", *TWO, "--seeds", 2, "--out", finished)
    assert done.code == 2
    assert "holds a single run" in done.err


def test_a_request_that_no_seed_can_fulfil_is_refused_and_leaves_nothing(cli: Cli, tmp_path: Path) -> None:
    done = cli(
        "run",
        *SMALL,
        "--dataset",
        "cifar10",
        "--data-root",
        tmp_path,
        "--seeds",
        2,
        "--out",
        tmp_path / "out",
    )
    assert done.code == 2
    assert not list((tmp_path / "out").glob("seed-*/run.json"))


def test_a_seed_that_diverges_keeps_no_other_from_finishing_and_is_named(cli: Cli, tmp_path: Path) -> None:
    out = tmp_path / "out"
    asked = ["compare", "--method", "fedavg", "--method", "fedprox", "--set", "fedprox.mu=1e6", *TWO]
    done = cli(*asked, "--seeds", 1, "--out", out)
    assert done.code == 1
    assert "fedprox, seed 0: FedProx: the training loss of client" in done.err
    assert done.err.endswith("1 of 2 runs did not finish: fedprox, seed 0 (failed); the reasons are above\n")
    assert read_run(out / "fedprox" / "seed-0")["state"] == "failed"
    assert hashes(out / "fedavg" / "seed-0")


def lines_of(process: subprocess.Popen[str]) -> Iterator[dict[str, object]]:
    assert process.stdout is not None
    for line in process.stdout:
        yield json.loads(line)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_one_signal_stops_all_seeds_and_the_same_command_goes_on_to_the_same_bits(
    cli: Cli, tmp_path: Path, number: int
) -> None:
    """After a kill the processes of the runs notice that nobody listens to them any more."""
    out = tmp_path / "out"
    many = [*SMALL, "--rounds", 400, "--checkpoint-every", 2]
    command = [sys.executable, "-m", "raffed", "run", *many, "--seeds", "2", "--json", "--out", out]
    with subprocess.Popen(
        list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        for event in lines_of(process):
            if event["event"] == "round" and event["round"] == 4:
                os.kill(process.pid, number)
                break
        _, errors = process.communicate(timeout=60)
    assert process.returncode == (143 if number == signal.SIGTERM else -number)
    if number == signal.SIGTERM:
        assert "continue with" in errors
    begun = [one.parent for one in out.glob("seed-*/run.json")]
    assert begun
    wait_until_none_works(begun)
    done = shell("run", *many, "--seeds", 2, "--quiet", "--out", out)
    assert done.returncode == 0, done.stderr
    one = shell("run", *many, "--execution", "serial", "--seed", 1, "--quiet", "--out", tmp_path / "one")
    assert one.returncode == 0, one.stderr
    assert hashes(out / "seed-1") == hashes(tmp_path / "one")


def wait_until_none_works(folders: list[Path]) -> None:
    """The processes of a killed command stop by themselves, after their round."""
    for _ in range(600):
        if all(read_run(folder)["state"] == "stopped" for folder in folders):
            return
        time.sleep(0.1)
    raise AssertionError("a run goes on although its command was killed")
