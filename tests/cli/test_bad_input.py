"""What cannot be carried out is refused before anything starts: one line, exit code 2, no traceback, no
folder.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import raffed
from raffed.config.federation import Federation
from raffed.config.run import RunConfig
from raffed.config.sections import Data, Runtime
from raffed.errors import UsageError
from raffed.results import read_metrics, read_run
from raffed.results.runfile import sealed
from raffed.runtime.setup import check_new, prepare_run
from tests.cli.conftest import QUICK, Cli
from tests.forging import resealed

REFUSED = [
    ("--method fedmx", ["unknown method 'fedmx'", "fedmr"]),
    ("--model lenett", ["unknown model 'lenett'", "lenet"]),
    ("--split dirichlt:4:0.5", ["unknown split", "dirichlet:CLIENTS:ALPHA"]),
    ("--method fedrs --set alhpa=0.5", ["argument of fedrs 'alhpa'", "alpha"]),
    ("--method fedrs --set alpha=1.5", ["alpha", "1.5", "[0.0, 1.0]"]),
    ("--method fedrs --set alpha=half", ["alpha", "half", "float"]),
    ("--set mu", ["NAME=VALUE"]),
    ("--method map --preset authors", ["argument of map 'preset'"]),
    ("--method flda --preset authors --set preset=original", ["preset is given twice"]),
    ("--model-arg hiden=[3]", ["hiden", "hidden"]),
    ("--model-arg hidden=64,64", ["'64,64'", "hidden=[64,64]"]),
    ("--split p4c11", ["11", "10"]),
    ("--split iid:2000", ["2000", "1442"]),
    ("--split natural", ["femnist"]),
    ("--split file:gone.npz", ["gone.npz", "missing"]),
    ("--participation 1.5", ["participation", "1.5", "1.0]"]),
    ("--lr nan", ["local.lr = nan"]),
    ("--gpu-fraction 0.3", ["gpu_fraction = 0.3", "1/k"]),
    ("--dataset mnist --data-root .", ["train-images-idx3-ubyte", "missing", "md5"]),
    ("gone.toml", ["gone.toml"]),
    ("--actors 3", ["runtime.actors = 3", "serial", "--execution ray"]),
    ("--noise-at client", ["privacy.noise_at = 'client'", "--noise"]),
]


@pytest.mark.parametrize(("typed", "said"), REFUSED, ids=[typed for typed, _ in REFUSED])
def test_impossible_requests_are_refused_in_one_line(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, typed: str, said: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    out = tmp_path / "run"
    done = cli("run", *QUICK, "--rounds", "2", *typed.split(), "--out", out)
    assert done.code == 2
    assert [word for word in said if word not in done.err] == []
    lines = done.err.splitlines()
    assert [line[:8] for line in lines] == ["raffed: "]
    assert not out.exists()


@pytest.mark.parametrize("typed", [["--bogus"], ["--lr", "abc"], ["--rounds", "1.5"]])
def test_what_is_no_option_or_no_number_has_exit_code_2(cli: Cli, typed: list[str]) -> None:
    done = cli("run", *typed)
    assert done.code == 2
    assert typed[0] in done.err
    assert done.out == ""


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_is_refused_where_there_is_none(cli: Cli, tmp_path: Path) -> None:
    done = cli("run", *QUICK, "--gpu-fraction", "0.5", "--out", tmp_path / "run")
    assert done.code == 2
    assert "gpu_fraction = 0.5" in done.err
    assert "no GPU" in done.err


@pytest.mark.parametrize(
    ("runtime", "said"),
    [
        (
            Runtime(execution="ray", clients_per_actor=9),
            "clients_per_actor = 9, but there are only 4",
        ),
        (
            Runtime(execution="ray", actors=3, clients_per_actor=2),
            "actors = 3 and runtime.clients_per_actor = 2: 4 clients at 2 per actor need 2 actors",
        ),
    ],
    ids=["too many clients", "another number of actors"],
)
def test_actors_that_do_not_fit_the_clients_are_refused(runtime: Runtime, said: str) -> None:
    """Without the command line, which starts Ray while it looks at the configuration."""
    with pytest.raises(UsageError, match=said):
        check_new(prepare_run(RunConfig(data=Data(split="p4c5"), runtime=runtime)))


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_only_a_cluster_elsewhere_may_have_gpus_that_are_not_here() -> None:
    with pytest.raises(UsageError, match="no GPU"):
        prepare_run(RunConfig(runtime=Runtime(execution="ray", gpu_fraction=0.5)))
    prepare_run(RunConfig(runtime=Runtime(execution="ray", gpu_fraction=0.5, address="ray://cluster:10001")))


def test_a_damaged_data_file_is_named_with_both_sums(cli: Cli, tmp_path: Path) -> None:
    raw = tmp_path / "MNIST" / "raw"
    raw.mkdir(parents=True)
    (raw / "train-images-idx3-ubyte").write_bytes(b"not MNIST")
    done = cli("run", *QUICK, "--dataset", "mnist", "--data-root", tmp_path, "--out", tmp_path / "run")
    assert done.code == 2
    assert "6bbc9ace898e44ae57da46a324031adb" in done.err
    assert "damaged" in done.err


def test_a_folder_that_holds_something_is_left_alone(cli: Cli, tmp_path: Path, copied: Path) -> None:
    before = {path: path.read_bytes() for path in copied.rglob("*") if path.is_file()}
    other = cli("run", *QUICK, "--rounds", "2", "--out", copied)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("dear diary")
    mine = cli("run", *QUICK, "--rounds", "2", "--out", tmp_path / "mine")
    file = cli("run", *QUICK, "--rounds", "2", "--out", tmp_path / "mine" / "notes.txt")
    assert (other.code, mine.code, file.code) == (2, 2, 2)
    assert "already holds a run" in other.err
    assert {path: path.read_bytes() for path in copied.rglob("*") if path.is_file()} == before
    assert (tmp_path / "mine" / "notes.txt").read_text() == "dear diary"


@pytest.mark.parametrize(
    ("command", "place", "option"),
    [
        (["splits", "p4c5", "--dataset", "digits", "--draw"], "split.png", "--draw"),
        (["splits", "p4c5", "--dataset", "digits", "--save"], "split.npz", "--save"),
        (["splits", "p4c5", "--dataset", "digits", "--export"], "csv:rows.csv", "--export"),
        (["splits", "p4c5", "--dataset", "digits", "--export"], "pfllib:clients", "--export"),
        (["new"], "mylab", "folder"),
        (["report", "{run}", "--out"], "page", "--out"),
        (["export", "{run}", "--out"], "model.pt", "--out"),
        (["bundle", "{run}", "--out"], "runs.zip", "--out"),
    ],
)
def test_a_place_below_a_file_is_refused_by_all_that_write(
    cli: Cli, tmp_path: Path, copied: Path, command: list[str], place: str, option: str
) -> None:
    (tmp_path / "file").write_text("")
    kind, colon, name = place.rpartition(":")
    there = tmp_path / "file" / name
    done = cli(*(word.format(run=copied) for word in command), f"{kind}{colon}{there}")
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert f"choose another {option}: a file is in the way" in done.err


@pytest.mark.parametrize(
    "argv",
    [
        ["run", *QUICK],
        ["compare", "--method", "fedavg", *QUICK],
        ["tune", "--method", "fedavg"],
        ["report", "."],
        ["reproduce", "fedmr/table6"],
    ],
)
def test_an_empty_place_is_refused_and_is_not_this_folder(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, argv: list[str]
) -> None:
    """As `--out "$RUNS"` has it where RUNS is not set."""
    monkeypatch.chdir(tmp_path)
    done = cli(*argv, "--out", "")
    assert (done.code, done.err) == (2, "raffed: '' cannot hold results; give a folder or a URL\n")
    assert list(tmp_path.iterdir()) == []


def test_a_finished_run_in_its_folder_is_to_be_looked_at_and_another_one_resumed(
    cli: Cli, finished: Path, tmp_path: Path
) -> None:
    again = ["run", "--method", "map", "--rounds", "5", "--local-test", "0.2", *QUICK, "--out", finished]
    done = cli(*again)
    assert done.code == 2
    assert f"`raffed report {finished}` shows it" in done.err
    assert "resume" not in done.err
    stopped = tmp_path / "stopped"
    shutil.copytree(finished, stopped)
    about = json.loads((stopped / "run.json").read_text())
    (stopped / "run.json").write_text(json.dumps(sealed({**about, "state": "stopped"})))
    done = cli(*again[:-1], stopped)
    assert done.code == 2
    assert f"`raffed resume {stopped}` continues it" in done.err


@pytest.mark.parametrize("state", ["finished", "stopped"])
def test_resume_refuses_an_edited_configuration(cli: Cli, copied: Path, state: str) -> None:
    about = json.loads((copied / "run.json").read_text())
    about["config"]["local"]["lr"] = 0.9
    about["state"] = state
    (copied / "run.json").write_text(json.dumps(sealed(about)))
    done = cli("resume", copied)
    assert done.code == 2
    assert "was edited" in done.err


def test_resume_refuses_another_number_of_threads_whose_bits_would_be_others(cli: Cli, copied: Path) -> None:
    about = json.loads((copied / "run.json").read_text())
    (copied / "run.json").write_text(json.dumps(sealed({**about, "state": "stopped"})))
    done = cli("resume", copied, "--threads", "2")
    assert done.code == 2
    assert "nor another number of threads (there 1)" in done.err


def test_resume_refuses_the_checkpoint_of_another_run(cli: Cli, copied: Path) -> None:
    about = json.loads((copied / "run.json").read_text())
    state = copied / "checkpoints" / "round-000005" / "state.json"
    state.write_text(json.dumps({**json.loads(state.read_text()), "identity": "0" * 64}))
    (copied / "run.json").write_text(json.dumps(sealed({**about, "state": "stopped"})))
    resealed(copied)
    done = cli("resume", copied)
    assert done.code == 2
    assert "another run" in done.err


@pytest.mark.parametrize("command", ["resume", "verify"])
def test_a_folder_without_a_run_is_refused(cli: Cli, tmp_path: Path, command: str) -> None:
    for folder in (tmp_path, tmp_path / "gone"):
        done = cli(command, folder)
        assert done.code == 2
        assert "no run.json" in done.err
    (tmp_path / "run.json").write_text("{")
    assert "is not JSON" in cli(command, tmp_path).err


def test_a_run_that_diverges_says_where_and_keeps_the_rounds_before(cli: Cli, tmp_path: Path) -> None:
    out = tmp_path / "run"
    wild = [
        "--method",
        "fedprox",
        "--set",
        "mu=1",
        "--lr",
        "1e3",
        "--warmup-rounds",
        "1000",
        "--rounds",
        "60",
    ]
    done = cli("run", *wild, "--execution", "serial", "--epochs", "1", "--out", out)
    assert done.code == 1
    assert done.err.count("\n") == 1
    about = read_run(out)
    assert all(
        word in done.err
        for word in ("FedProx", f"round {about['rounds_done'] + 1}", "client", "learning rate")
    )
    assert about["state"] == "failed"
    assert about["error"] == done.err.removeprefix("raffed: ").rstrip("\n")
    assert about["rounds_done"] >= 1
    assert set(read_metrics(out)["round"].to_pylist()) == set(range(1, about["rounds_done"] + 1))


@pytest.mark.parametrize("grid", [[], ["--grid", "local.lr=0.1,1"]])
def test_a_method_without_a_space_is_refused_before_torch_and_ray_are_loaded(grid: list[str]) -> None:
    argv = ["tune", "--method", "mine", *grid, "--out", "sweeps/a"]
    script = (
        "import sys\nfrom raffed.cli import main\nfrom raffed.methods import METHODS\nMETHODS['mine'] = "
        "METHODS['fedprox']\n"
        f"try:\n    main({argv!r})\nfinally:\n    print('LOADED', [m for m in ('torch', 'ray') if m in "
        f"sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=120
    )
    assert (done.returncode, done.stdout) == (2, "LOADED []\n")
    assert "mine has no search space: give --grid" in done.stderr


@pytest.mark.parametrize("command", ["run", "compare", "tune"])
def test_a_refusal_is_the_only_event_of_a_command(cli: Cli, tmp_path: Path, command: str) -> None:
    done = cli(command, "--method", "fedmx", "--json", "--out", tmp_path / "a")
    (event,) = done.events
    assert done.code == event["exit_code"] == 2
    assert (event["event"], event["kind"]) == ("error", "UnknownNameError")
    assert done.err == f"raffed: {event['message']}\n"


@pytest.mark.parametrize(
    ("method", "share", "measured"), [("solo", 0.0, False), ("solo", 0.2, True), ("fedavg", 0.0, True)]
)
def test_a_run_that_will_measure_nothing_is_told_before_it_starts(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, method: str, share: float, measured: bool
) -> None:
    """Separate models without local tests: there is nothing to score, on the server or at a client."""
    config = RunConfig(
        method, data=Data(local_test=share), federation=Federation(1), runtime=Runtime(execution="serial")
    )
    done = raffed.run(config, tmp_path / "run")
    accuracies = done.to_pandas().query("metric == 'accuracy' and split in ('test', 'local_test')")
    assert (len(accuracies) > 0) == measured
    assert ("no accuracy will be measured" in caplog.text) == (not measured)


@pytest.mark.parametrize("command", [["run"], ["compare", "--method", "fedavg"]])
def test_nothing_is_said_of_a_run_before_what_was_asked_for_has_been_checked(
    cli: Cli, tmp_path: Path, command: list[str]
) -> None:
    """A network that cannot take the data set's images is refused; no headline announced the run."""
    done = cli(*command, *QUICK, "--model", "lenet", "--rounds", "1", "--out", tmp_path / "run")
    assert (done.code, done.out) == (2, "")
    assert "lenet cannot take 1x8x8 inputs" in done.err
