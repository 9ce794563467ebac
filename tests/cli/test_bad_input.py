"""From what was typed to a RunConfig. What cannot be carried out is refused before anything starts: one
line, exit code 2, no traceback, no folder.
"""

from __future__ import annotations

import codecs
import math
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import raffed
from raffed import Data, Federation, RunConfig, Runtime
from raffed.cli.config import args_for, placed, read_config, read_value
from raffed.cli.running import compared, free_folder
from raffed.config.faults import Faults
from raffed.config.toml import read_toml
from raffed.errors import UsageError
from raffed.results.runfile import read_run
from raffed.results.writer import read_metrics
from raffed.runtime.setup import check_new, prepare_run
from tests.cli.conftest import FEW, Cli, contents
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
    "--dataset csv:caf\udce9.csv": r"data.dataset = 'csv:caf\udce9.csv': this name is not UTF-8; rename it",
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
    done = cli("run --rounds 2", *FEW, *typed.split(), "--out", tmp_path / "run")
    assert (done.code, REFUSED[typed] in done.err) == (2, True)
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
        done = cli("run --rounds 2", *FEW, "--out", out)
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
def test_a_place_below_a_file_is_refused_by_all(cli: Cli, tmp_path: Path, copied: Path, command: str) -> None:
    (tmp_path / "file").write_text("")
    done = cli(command.format(run=copied, file=tmp_path / "file"))
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert re.search(r"\((Not a directory|File exists)\); mend that, or choose another ", done.err)


@pytest.mark.parametrize("command", ["run", "tune --method fedavg", "report ."])
@pytest.mark.parametrize(
    ("place", "said"),
    [
        ("", "'' cannot hold results; give a folder or a URL"),  # as `--out "$RUNS"` has it without RUNS
        ("caf\udce9/a", r"{here}/caf\udce9/a: this name is not UTF-8; rename it or choose another"),
    ],
)
def test_an_empty_place_and_one_that_parquet_cannot_name_are_refused(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, place: str, said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    done = cli(command, "--out", place)
    assert (done.code, done.err) == (2, f"raffed: {said.format(here=tmp_path)}\n")
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
        (lambda run: None, ["--threads", "2"], "nor with another number of threads (there 1)"),
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


TOML = """
method = "fedmr"
seed = 7
[args]
mu1 = 0.5
mu2 = 0.25
[data]
split = "P10C3"
[local]
lr = 1
[model]
name = "mlp"
[model.args]
hidden = [32]
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "exp.toml"
    path.write_text(TOML)
    return path


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *(("1e-3", 0.001), (".5", 0.5), ("5.", 5.0), ("-2", -2), ("False", False), ("[64, 32]", [64, 32])),
        *((text, text) for text in ("paper", "", "a b", "007", "2024-01-01", "1\nb = 2", "{a = 1}")),
    ],
)
def test_values_are_toml_or_a_word(text: str, value: object) -> None:
    found = read_value(text)
    assert (found, type(found)) == (value, type(value))
    assert math.isnan(read_value("nan"))


def test_a_flag_over_a_file_says_how_many_actors_there_are(file: Path) -> None:
    """Either of the two ways; `serial` puts them aside, and a file that contradicts itself is refused."""
    file.write_text(f"{TOML}[runtime]\nclients_per_actor = 1\n")
    assert read_config(file, {}).runtime == Runtime(clients_per_actor=1)
    assert read_config(file, {"runtime.actors": 3}).runtime == Runtime(actors=3)
    both = {"runtime.actors": 3, "runtime.clients_per_actor": 4}
    assert read_config(file, both).runtime == Runtime(actors=3, clients_per_actor=4)
    assert read_config(file, {"runtime.execution": "serial"}).runtime == Runtime(
        execution="serial", clients_per_actor=1
    )
    assert placed(Runtime(actors=3), {"runtime.actors": 0}) == Runtime()
    with pytest.raises(UsageError, match=r"actors = 2 with .* one process"):
        placed(Runtime(execution="serial"), {"runtime.actors": 2})
    file.write_text(f'{TOML}[runtime]\nclients_per_actor = 1\nexecution = "serial"\n')
    with pytest.raises(UsageError, match=r"clients_per_actor = 1 with .* one process"):
        read_config(file, {})


def test_flags_override_the_file_name_by_name_and_arguments_go_with_method_and_model(file: Path) -> None:
    given = {"args": ["mu2=1"], "seed": 3, "local.momentum": 0.5, "runtime.execution": "serial"}
    config = read_config(file, given)
    assert (config.method, config.seed, config.data.split) == ("fedmr", 3, "p10c3")
    assert config.args == {"mu1": 0.5, "mu2": 1}
    assert (config.local.lr, config.local.momentum, config.runtime.execution) == (1.0, 0.5, "serial")
    assert config.model.args == {"hidden": [32]}
    other = read_config(file, {"method": "fedavg", "model.name": "resnet8"})
    assert (other.args, other.model.args) == ({}, {})
    assert read_config(file, {"method": "FedMR"}).args == {"mu1": 0.5, "mu2": 0.25}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[locl]\nlr = 1", "local"),
        ("[local]\nlrr = 1", "nearest: lr"),
        ("[local]\nlr = 'a'", "local.lr = 'a'"),
        ("lr =\nx = 1", "line 1"),
        ("rounds = 3", "'rounds' in no section: it belongs in [federation]"),
        ("[data]\nlr = 1", "'lr' in [data]: it belongs in [local]"),
    ],
)
def test_mistakes_in_a_file_are_named(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "bad.toml"
    path.write_text(text)
    with pytest.raises(UsageError) as error:
        read_config(path, {})
    assert said in str(error.value)


def test_a_toml_file_is_read_with_a_byte_order_mark_and_as_utf_8_only(tmp_path: Path) -> None:
    """Editors under Windows write the mark."""
    path = tmp_path / "run.toml"
    path.write_bytes(codecs.BOM_UTF8 + b'method = "fedavg"\r\n[data]\r\nsplit = "p4c3"\r\n')
    assert read_toml(path) == {"method": "fedavg", "data": {"split": "p4c3"}}
    for content in ('method = "fedavg"'.encode("utf-16"), b'a = "\xe9"', b"a = \x00"):
        path.write_bytes(content)
        with pytest.raises(UsageError, match=r"run\.toml: not (a )?TOML"):
            read_toml(path)


def test_the_default_folder_is_new_and_names_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    config = read_config(None, {"method": "map", "data.split": "dirichlet:10:0.5", "seed": 3})
    assert free_folder(config) == Path("runs/map-digits-dirichlet-10-0.5-s3")
    free_folder(config).mkdir(parents=True)
    assert free_folder(config) == Path("runs/map-digits-dirichlet-10-0.5-s3-2")
    strange = read_config(None, {"data.split": "file:/some where/../p ä q.npz"})
    assert free_folder(strange) == Path("runs/fedavg-digits-file-p-q-s0")


def test_compared_methods_get_the_arguments_they_take_and_what_none_takes_is_refused() -> None:
    given = {"alpha": 0.3, "fedmr.mu1": 0.5, "mu": 0.2}
    parts = args_for(["fedavg", "fedrs", "fedmr", "map"], given)
    both = {"alpha": 0.3, "mu": 0.2}
    assert parts == {"fedavg": {}, "fedrs": {"alpha": 0.3}, "fedmr": {"mu1": 0.5}, "map": both}
    for key in ("alhpa", "scaffold.server_lr", "fedxx.mu"):
        with pytest.raises(UsageError):
            args_for(["fedavg", "fedrs"], {key: 1})


def test_compared_runs_differ_in_the_method_alone(file: Path) -> None:
    found = compared(["fedavg", "FedMR"], file, {"args": ["fedmr.mu1=2"], "seed": 1})
    assert list(found) == ["fedavg", "fedmr"]
    assert found["fedmr"].args == {"mu1": 2, "mu2": 0.25}
    assert found["fedavg"].args == {}
    assert found["fedavg"].data == found["fedmr"].data
    assert found["fedavg"].model.args == {"hidden": [32]}


def test_a_plan_of_faults_is_read_from_its_own_file_with_or_without_the_table_s_name(tmp_path: Path) -> None:
    bare, named = tmp_path / "bare.toml", tmp_path / "named.toml"
    bare.write_text('drop = 0.1\nat = "late 3@2"\n')
    named.write_text('[faults]\ndrop = 0.1\nat = "late 3@2"\n')
    plans = [read_config(None, {"faults": str(path)}).faults for path in (bare, named)]
    assert plans == [Faults(drop=0.1, at="late 3@2")] * 2
    bare.write_text("dorp = 0.1\n")
    with pytest.raises(UsageError, match="nearest: drop"):
        read_config(None, {"faults": str(bare)})


def test_one_method_may_be_compared_with_several_settings() -> None:
    """They take precedence over --set, and name the runs; a repetition would be one run under two names."""
    found = compared(["fedavg", "FedProx,mu=0.1", "fedprox, mu=1.0"], None, {"args": ["mu=5.0"]})
    assert {label: (one.method, one.args) for label, one in found.items()} == {
        "fedavg": ("fedavg", {}),
        "fedprox,mu=0.1": ("fedprox", {"mu": 0.1}),
        "fedprox,mu=1.0": ("fedprox", {"mu": 1.0}),
    }
    for wrong, said in (
        (["fedprox", "fedprox"], "fedprox is given twice"),
        (["fedprox,mu=1.0", "fedprox,mu=1.0"], "fedprox,mu=1.0 is given twice"),
        (["fedprox,nu=1.0"], "nearest: mu"),
        (["fedprox,mu=1.0,mu=2.0"], "mu is given twice"),
    ):
        with pytest.raises(UsageError, match=said):
            compared(wrong, None, {})
