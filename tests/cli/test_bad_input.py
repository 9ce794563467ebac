"""What cannot be carried out is refused before anything starts: one line, exit code 2, no traceback, no
folder.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import raffed
from raffed import Data, Federation, RunConfig, Runtime
from raffed.errors import UsageError
from raffed.results.runfile import read_run
from raffed.results.writer import read_metrics
from raffed.runtime.setup import check_new, prepare_run
from tests.cli.conftest import QUICK, Cli, contents
from tests.forging import edited, resealed

REFUSED = {
    "--method fedmx": "unknown method 'fedmx'",
    "--split dirichlt:4:0.5": "dirichlet:CLIENTS:ALPHA",
    "--method fedrs --set alhpa=0.5": "nearest: alpha",
    "--method fedrs --set alpha=1.5": "[0.0, 1.0]",
    "--method fedrs --set alpha=half": "float",
    "--set mu": "NAME=VALUE",
    "--method flda --preset authors --set preset=original": "preset is given twice",
    "--model-arg hidden=64,64": "hidden=[64,64]",
    "--model lenet": "lenet cannot take 1x8x8 inputs",
    "--split file:gone.npz": "gone.npz",
    "--lr nan": "local.lr = nan",
    "--dataset mnist --data-root .": "train-images-idx3-ubyte",
    "gone.toml": "gone.toml",
    "--actors 3": "--execution ray",
    "--noise-at client": "--noise",
    "--accept-changed-code": "together with --seeds",  # a single run begins anew
    "--numerics portable": "call raffed.portable() first",  # this process has loaded torch
    # A thing typed in the wrong place is answered with the right one
    "--method fedrs --alpha 0.5": "give --set alpha=VALUE",
}


@pytest.mark.parametrize("typed", REFUSED)
def test_impossible_requests_are_refused_in_one_line(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, typed: str
) -> None:
    monkeypatch.chdir(tmp_path)
    done = cli("run --rounds 2", *QUICK, *typed.split(), "--out", tmp_path / "run")
    assert done.code == 2
    assert REFUSED[typed] in done.err
    assert [line[:8] for line in done.err.splitlines()] == ["raffed: "]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", ["run", "compare", "tune"])
def test_a_refusal_is_the_only_event_of_a_command(cli: Cli, tmp_path: Path, command: str) -> None:
    done = cli(f"{command} --method fedavg --method fedmx --json", "--out", tmp_path / "a")
    (event,) = done.events
    assert done.code == event["exit_code"] == 2
    assert (event["event"], event["kind"]) == ("error", "UnknownNameError")
    assert done.err == f"raffed: {event['message']}\n"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("runtime", "said"),
    [
        (Runtime(execution="ray", clients_per_actor=9), "clients_per_actor = 9, but there are only 4"),
        (Runtime(execution="ray", actors=3, clients_per_actor=2), "4 clients at 2 per actor need 2 actors"),
    ],
    ids=["too many clients", "another number of actors"],
)
def test_actors_that_do_not_fit_the_clients_are_refused(runtime: Runtime, said: str) -> None:
    """Without the command line, which starts Ray while it looks at the configuration."""
    config = RunConfig(data=Data(split="p4c5"), runtime=runtime)
    with pytest.raises(UsageError, match=said):
        check_new(config.federation, config.faults, config.runtime, prepare_run(config).data)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_only_a_cluster_elsewhere_may_have_gpus_that_are_not_here() -> None:
    with pytest.raises(UsageError, match="no GPU"):
        prepare_run(RunConfig(runtime=Runtime(execution="ray", gpu_fraction=0.5)))
    prepare_run(RunConfig(runtime=Runtime(execution="ray", gpu_fraction=0.5, address="ray://cluster:10001")))


def test_a_folder_that_holds_something_is_left_alone(cli: Cli, tmp_path: Path, copied: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("dear diary")
    before = contents(tmp_path)
    for out in (copied, tmp_path / "mine", tmp_path / "mine" / "notes.txt"):
        done = cli("run --rounds 2", *QUICK, "--out", out)
        assert done.code == 2
        assert ("already holds a run" in done.err) == (out == copied)
    assert {**contents(tmp_path), "copied/.lock": b""} == {**before, "copied/.lock": b""}


@pytest.mark.parametrize(
    "command",
    [
        "splits p4c5 --dataset digits --save {file}/split.npz",
        "splits p4c5 --dataset digits --export flwr:{file}/rows",
        "new {file}/mylab",
        "report {run} --out {file}/page",
        "export {run} --out {file}/model.pt",
        "bundle {run} --out {file}/runs.zip",
    ],
)
def test_a_place_below_a_file_is_refused_by_all_that_write(
    cli: Cli, tmp_path: Path, copied: Path, command: str
) -> None:
    (tmp_path / "file").write_text("")
    done = cli(command.format(run=copied, file=tmp_path / "file"))
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert re.search(r"\((Not a directory|File exists)\); mend that, or choose another ", done.err)


@pytest.mark.parametrize("command", ["run", "tune --method fedavg", "report ."])
def test_an_empty_place_is_refused_and_is_not_this_folder(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    """As `--out "$RUNS"` has it where RUNS is not set."""
    monkeypatch.chdir(tmp_path)
    done = cli(command, "--out", "")
    assert (done.code, done.err) == (2, "raffed: '' cannot hold results; give a folder or a URL\n")
    assert list(tmp_path.iterdir()) == []


def faster(run: Path) -> None:
    edited(run / "run.json", lambda about: about["config"]["local"].update(lr=0.9))


def of_another_run(run: Path) -> None:
    state = run / "checkpoints" / "round-000005" / "state.json"
    edited(state, lambda about: about.update(identity="0" * 64))
    resealed(run)


@pytest.mark.parametrize(
    ("change", "words", "said"),
    [
        (faster, [], "was edited"),
        (of_another_run, [], "another run"),
        (lambda run: None, ["--threads", "2"], "nor another number of threads (there 1)"),
    ],
    ids=["an edited configuration", "the checkpoint of another run", "other threads, whose bits are others"],
)
def test_resume_refuses_what_would_be_another_run(
    cli: Cli, copied: Path, change: Callable[[Path], None], words: list[str], said: str
) -> None:
    edited(copied / "run.json", lambda about: about.update(state="stopped"))
    change(copied)
    done = cli("resume", copied, *words)
    assert (done.code, said in done.err) == (2, True)


@pytest.mark.parametrize("command", ["resume", "verify"])
def test_a_folder_without_a_run_is_refused(cli: Cli, tmp_path: Path, command: str) -> None:
    for folder in (tmp_path, tmp_path / "gone"):
        done = cli(command, folder)
        assert (done.code, "no run.json" in done.err) == (2, True)


def test_a_run_that_diverges_says_where_and_keeps_the_rounds_before(cli: Cli, tmp_path: Path) -> None:
    wild = "--method fedprox --set mu=1 --lr 1e3 --warmup-rounds 1000 --rounds 60"
    done = cli(f"run {wild} --execution serial --epochs 1", "--out", tmp_path / "run")
    assert (done.code, done.err.count("\n")) == (1, 1)
    about = read_run(tmp_path / "run")
    named = ("FedProx", f"round {about['rounds_done'] + 1}", "client", "learning rate")
    assert all(word in done.err for word in named)
    assert about["state"] == "failed"
    assert about["error"] == done.err.removeprefix("raffed: ").rstrip("\n")
    assert about["rounds_done"] >= 1
    assert set(read_metrics(tmp_path / "run")["round"].to_pylist()) == set(range(1, about["rounds_done"] + 1))


@pytest.mark.parametrize(
    ("method", "share", "measured"), [("solo", 0.0, False), ("solo", 0.2, True), ("fedavg", 0.0, True)]
)
def test_a_run_that_will_measure_nothing_is_told_before_it_starts(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, method: str, share: float, measured: bool
) -> None:
    """Separate models without local tests: there is nothing to score, on the server or at a client."""
    serial = Runtime(execution="serial")
    config = RunConfig(method, data=Data(local_test=share), federation=Federation(1), runtime=serial)
    done = raffed.run(config, tmp_path / "run")
    accuracies = done.to_pandas().query("metric == 'accuracy' and split in ('test', 'local_test')")
    assert (len(accuracies) > 0) == measured
    assert ("no accuracy will be measured" in caplog.text) == (not measured)
