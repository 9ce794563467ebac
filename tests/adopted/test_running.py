"""A run of an author's engine: as the unhooked file, resumed to the same bits, in an ordinary folder."""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import raffed
from raffed.adopted.checkout import Checkout
from raffed.cli.config import read_local
from raffed.cli.execution import headline
from raffed.config.run import RunConfig
from raffed.data.partition_file import Partition
from raffed.errors import DataFileError, RaffedError, UsageError
from raffed.methods.authors import AuthorsMethod
from raffed.own import gate
from raffed.results.rows import by_samples
from raffed.results.runfile import read_run, write_json
from raffed.runs.folder import run_config
from raffed.runs.run import RunResult, resume, run
from tests.adopted import engine
from tests.adopted.proof import DRIVER, Proof

RUN = {
    "data": {"dataset": "digits", "split": "iid:4", "local_test": 0.2},
    "model": {"name": "author:Line"},
    "local": {"epochs": 1, "batch_size": 16, "lr": 0.1},
    "federation": {"rounds": 3, "participation": 0.75},
    "args": {"dataset": "digits"},
}


@pytest.fixture(scope="module", autouse=True)
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        patched.setenv("SECRET_TOKEN", "hidden")
        yield


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an engine that no test changes."""
    return engine.written(tmp_path_factory.mktemp("a") / "Engine")


@pytest.fixture(scope="module")
def simulator(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return one of the other family."""
    return engine.written(tmp_path_factory.mktemp("a") / "Simulator", engine.SIMULATOR)


@pytest.fixture(scope="module")
def finished(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> RunResult:
    """Return a finished run that no test changes."""
    return run(usual(checkout), tmp_path_factory.mktemp("a") / "finished")


@pytest.fixture(scope="module")
def halted(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the same run, stopped after its first round; tests go on with copies."""
    folder = tmp_path_factory.mktemp("a") / "halted"
    assert run(usual(checkout), folder, stop=lambda: True).state == "stopped"
    return folder


def usual(checkout: Path) -> RunConfig:
    return config(checkout, federation__eval_every=2, args__mu=0.25, runtime__author_python=sys.executable)


def named(checkout: Path, method: str) -> str:
    return f"{Checkout(checkout).family.name}:{checkout}#{method}"


def config(checkout: Path, method: str = "FedX", **changes: object) -> RunConfig:
    """Return a run of the engine. `changes` name section__field."""
    made = RunConfig.from_dict({**RUN, "method": named(checkout, method)})
    return made.changed({name.replace("__", "."): value for name, value in changes.items()})


@pytest.mark.parametrize(
    ("method", "last"),
    [
        pytest.param("FedX", 0, marks=pytest.mark.more),
        *(pytest.param(one, 2, marks=pytest.mark.slow) for one in ("FedX", "FedY", "FedQ")),
    ],
)
def test_whole_state_equals_unhooked_file_and_survives_kills(
    method: str, last: int, checkout: Path, simulator: Path, tmp_path: Path
) -> None:
    place, data = (simulator, "DIGITS") if method == "FedQ" else (checkout, "digits")
    executed = AuthorsMethod(named(place, method))
    Proof(executed, ["--dataset", data], (1, 8, 8), tmp_path).check(last)


PUBLISHED = {  # what a checkout is called → its methods, the flags of a small run, and the shape of images
    "PFLlib": (
        "FedAvg FedProx SCAFFOLD FedProto FedDBE FedPAC FedRep Ditto",
        "--model DNN --dataset RAFFED_MNIST",
        (1, 28, 28),
    ),
    "DBE": ("FedDBE", "--model dnn --dataset RAFFED_mnist", (1, 28, 28)),
    "FedTGP": ("FedTGP", "--model_family HCNNs8 --dataset RAFFED_MNIST", (1, 28, 28)),
    # It fails with fewer clients and NumPy above 1.23
    "FedFew": ("FedFewS", "--model DNN --dataset RAFFED_MNIST --join_ratio 1.0", (1, 28, 28)),
    "NeurlPS_FedWMSAM": (
        "FedAvg SCAFFOLD FedCM FedSMOO FedWMSAM",
        "--model LeNet --dataset CIFAR10 --local-epochs 1",
        (3, 32, 32),
    ),
}
CHECKOUTS = "RAFFED_CHECKOUTS"


@pytest.mark.slow
@pytest.mark.skipif(CHECKOUTS not in os.environ, reason=f"{CHECKOUTS} names no folder of checkouts")
@pytest.mark.parametrize(
    ("folder", "method"), [(name, one) for name, about in PUBLISHED.items() for one in about[0].split()]
)
def test_published_engines(folder: str, method: str, tmp_path: Path) -> None:
    _, flags, shape = PUBLISHED[folder]
    executed = AuthorsMethod(named(Path(os.environ[CHECKOUTS]) / folder, method))
    Proof(executed, flags.split(), shape, tmp_path).check()


def test_rows_are_what_the_engine_prints(finished: RunResult) -> None:
    printed = re.findall(r"Test Accuracy: ([\d.]+)", (finished.folder / "engine.log").read_text())
    rows = finished.to_pandas()
    scores = rows[(rows["metric"] == "accuracy") & rows["client"].notna()]
    # Iteration i is scored before its training, so its model contains i rounds; every second one is scored
    assert sorted(scores["round"]) == [0] * 4 + [2] * 4
    correct = (scores["value"] * scores["n"]).groupby(scores["round"]).sum()
    weighted = correct / scores.groupby("round")["n"].sum()
    assert weighted.tolist() == pytest.approx([float(text) for text in printed], abs=1e-6)
    means = by_samples(finished.metrics)
    assert means[means["round"] == 2]["value"].tolist() == pytest.approx([float(printed[1])], abs=1e-6)
    assert sorted(rows[rows["metric"] == "loss"]["round"]) == [0, 1, 2, 3]


EQUAL = {"data__split": "equal:4:5", "data__local_test": None}  # clients of one size


@pytest.mark.parametrize("pause", [False, pytest.param(True, marks=pytest.mark.more)])
def test_simulator_scores_the_servers_model_and_goes_on_to_the_same_bits(
    pause: bool, simulator: Path, tmp_path: Path
) -> None:
    again = config(simulator, "FedQ", args={"weight-decay": 0.01}, **EQUAL)
    whole = run(again, tmp_path / "whole")
    printed = re.findall(r"Test accuracy ([\d.]+)", (tmp_path / "whole" / "engine.log").read_text())
    rows = whole.to_pandas()
    scores = rows[(rows["metric"] == "accuracy") & (rows["split"] == "test")]
    assert scores["round"].tolist() == [1, 2, 3]
    assert scores["value"].tolist() == pytest.approx([float(text) for text in printed], abs=1e-6)
    assert read_run(tmp_path / "whole")["engine"]["not_saved"] == ["datasets", "make"]
    if pause:  # its loop carries the last move in a local variable, and the data are mapped from files
        assert run(again, tmp_path / "run", stop=lambda: True).state == "stopped"
        assert resume(tmp_path / "run").hashes == whole.hashes


@pytest.mark.more
def test_engine_that_scores_after_training_counts_one_more(checkout: Path, tmp_path: Path) -> None:
    result = run(config(checkout, "FedY", federation__rounds=2), tmp_path / "run")
    rows = result.to_pandas()
    assert sorted(rows["round"].unique()) == [1, 2]
    means = rows[(rows["metric"] == "accuracy") & rows["client"].isna()]
    assert set(means["model"]) == {"global", "personal"}
    assert result.personalization == pytest.approx((1 + 2 + 3 + 4) / 16)
    assert read_run(tmp_path / "run")["engine"]["not_saved"] == ["rule"]


def test_first_line_claims_no_preparation_of_raffeds(checkout: Path) -> None:
    assert "transform of the engine's own" in headline(config(checkout), Path("x"))


def test_run_file_says_what_was_executed(finished: RunResult, checkout: Path) -> None:
    about = read_run(finished.folder)
    assert about["title"] == "FedX (Engine)"
    [code] = about["code"]
    assert code["role"] == "engine"
    assert code["files"] == Checkout(checkout).hashes
    said = about["engine"]
    assert said["licence"] == "MIT License. Permission is hereby granted,"
    assert said["family"] == "pfllib"
    assert set(said["versions"]) == {"python", "torch", "numpy"}
    assert "last-batch-dropped" in said["traps"]
    assert " ".join(said["flags"]) == (
        "--algorithm FedX --dataset digits --num_classes 10 --num_clients 4 --device cpu --global_rounds 3 "
        "--join_ratio 0.75 --eval_gap 2 --batch_size 16 --local_learning_rate 0.1 --local_epochs 1 "
        "--model Line --mu 0.25"
    )


def test_stopped_run_goes_on_to_the_same_bits(finished: RunResult, halted: Path, tmp_path: Path) -> None:
    folder, rounds = copied(halted, tmp_path / "run"), []
    again = resume(folder, watch=lambda event: rounds.append(event.round))
    assert rounds == [2, 3]
    assert again.hashes == finished.hashes
    assert read_run(folder)["round_hashes"] == read_run(finished.folder)["round_hashes"]
    assert not (folder / "engine").exists()
    assert [path.name for path in folder.glob("*.pt")] == ["engine-000003.pt"]


@pytest.mark.more
def test_stopped_run_does_not_go_on_with_other_data(
    checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lists of samples would be the same, because the labels are."""
    monkeypatch.setenv("RAFFED_CACHE", str(tmp_path / "cache"))
    file, folder, labels = tmp_path / "a.npz", tmp_path / "run", np.arange(200) % 10
    np.savez(file, x=np.eye(200, 64, dtype=np.float32), y=labels)
    run(usual(checkout).changed({"data.dataset": f"npz:{file}"}), folder, stop=lambda: True)
    shutil.rmtree(tmp_path / "cache")
    np.savez(file, x=np.ones((200, 64), dtype=np.float32), y=labels)
    with pytest.raises(DataFileError, match=r"a\.npz has changed since the run"):
        resume(folder)


def copied(folder: Path, place: Path) -> Path:
    shutil.copytree(folder, place)
    return place


@pytest.mark.slow
def test_killed_command_goes_on_to_the_same_bits(checkout: Path, tmp_path: Path) -> None:
    words = ["--method", f"pfllib:{checkout}#FedX", "--set", "dataset=digits", "--dataset", "digits"]
    words += ["--split", "iid:4", "--local-test", "0.2", "--epochs", "1", "--batch-size", "16", "--lr", "0.1"]
    words += ["--participation", "0.75", "--rounds", "3", "--out", str(tmp_path / "run"), "--json"]
    with subprocess.Popen(
        [sys.executable, "-m", "raffed", "run", *words], stdout=subprocess.PIPE, text=True
    ) as process:
        next(line for line in process.stdout if json.loads(line)["event"] == "round")
        process.send_signal(signal.SIGKILL)
    whole = run(config(checkout), tmp_path / "whole")
    assert resume(tmp_path / "run").hashes == whole.hashes


@pytest.mark.more
def test_failure_of_the_authors_code_is_told(checkout: Path, tmp_path: Path) -> None:
    before = Checkout(checkout).hashes
    with pytest.raises(RaffedError, match=r"ValueError: crash of the author's; .*engine\.log"):
        run(config(checkout, args__crash=2), tmp_path / "run")
    about = read_run(tmp_path / "run")
    assert (about["state"], about["rounds_done"]) == ("failed", 1)
    assert Checkout(checkout).hashes == before


def test_process_gets_no_tokens(finished: RunResult) -> None:
    log = (finished.folder / "engine.log").read_text()
    assert "PYTHONHASHSEED" in log
    assert "SECRET_TOKEN" not in log


REFUSED: dict[str, tuple[str, dict[str, object], str]] = {  # method, changes and what the message says
    "unknown method": ("FedW", {}, "nearest: FedX|FedY"),
    "own loss": ("FedX", {"loss": "./a.py:loss"}, "loss inside the author's loop"),
    "attacks": ("FedX", {"faults__attack": "sign_flip", "faults__attackers": 0.5}, r"faults\.attack"),
    "compression": ("FedX", {"federation__compression": "topk"}, r"federation\.compression"),
    "privacy": ("FedX", {"privacy__clip": 1.0}, r"privacy\.clip"),
    "end by a rule": ("FedX", {"federation__stop_when": "val-accuracy:2"}, r"federation\.stop_when"),
    "clock": ("FedX", {"clock__work": "step", "clock__seconds": 2.0}, r"clock\.seconds"),
    "stacks": ("FedX", {"numerics__cohort": 4}, r"numerics\.cohort"),
    "selection": ("FedX", {"federation__selection": "size"}, r"federation\.selection"),
    "stages": (
        "FedX",
        {"data__split": "stages:4:4:2:if1", "federation__rounds": 4, "data__local_test": None},
        "these come in stages",
    ),
    "momentum": ("FedX", {"local__momentum": 0.5}, r"local\.momentum"),
    "network": ("FedX", {"model__name": "mlp"}, "give --model author:Line"),
    "half epochs": ("FedX", {"local__epochs": 0.5}, "whole epochs"),
    "unknown flag": ("FedX", {"args__muu": 1}, "unknown flag .* nearest: mu"),
    "flag of a field": ("FedX", {"args__join_ratio": 0.5}, r"federation\.participation sets it"),
    "wrong type": ("FedX", {"args__steps": 0.5}, "must be int; leave it out for the author's default, 3"),
    "repeats": ("FedX", {"args__times": 3}, "--seeds sets it"),
    "false": ("FedX", {"args__auto_break": False}, "reads every text as true"),
    "no test samples": ("FedX", {"data__local_test": 0.0}, "client 0 has none; give --local-test"),
    "small client": ("FedX", {"local__batch_size": 1000}, r"drops the last batch \(.*clientx.py:"),
    "two networks": ("FedX", {"args__model": "Cube"}, "give one of them"),
    "folder elsewhere": ("FedX", {"args__dataset": "../../other"}, "leads out of the folder"),
    "data's name": ("FedX", {"args": {}}, r"\(MNIST\).* give --set dataset=NAME"),
    "unequal": ("FedQ", {**EQUAL, "args": {}, "data__split": "iid:4"}, "from 360 to 361; .* equal:4:10"),
    "split": ("FedQ", {**EQUAL, "args": {"non-iid": True}}, r"data\.split sets it"),
    "rarely scored": ("FedQ", {**EQUAL, "args": {}, "federation__eval_every": 2}, r"federation\.eval_every"),
    "unknown data": ("FedQ", {**EQUAL, "args": {"dataset": "MNIST"}}, "must be CIFAR10 or DIGITS"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_before_a_process_starts(
    case: str, checkout: Path, simulator: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.py").write_text("def loss(logits, y): return logits.mean()")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(subprocess, "Popen", lambda *_, **__: pytest.fail("a process was started"))
    method, changes, says = REFUSED[case]
    with pytest.raises(UsageError, match=says):
        run(config(simulator if method == "FedQ" else checkout, method, **changes), tmp_path / "run")
    assert not (tmp_path / "run" / "run.json").exists()


def test_incomplete_releases_are_refused(tmp_path: Path) -> None:
    checkout = engine.written(tmp_path / "Engine")
    main = checkout / "system" / "main.py"
    text = main.read_text()
    main.write_text(f"import no_such_package\nimport nor_this_one\n{text}")
    with pytest.raises(UsageError, match=r"no_such_package .*nor_this_one .*not installed here"):
        run(config(checkout), tmp_path / "run")
    with pytest.raises(
        RaffedError, match="this interpreter lacks the packages no_such_package, nor_this_one"
    ):
        run(config(checkout, runtime__author_python=sys.executable), tmp_path / "other")
    main.write_text(f"from flcore.servers.lost import Lost\n{text}")
    with pytest.raises(UsageError, match=r"lacks flcore\.servers\.lost"):
        run(config(checkout), tmp_path / "run")
    shutil.rmtree(checkout / "system")
    with pytest.raises(UsageError, match="no main file of a known family"):
        run(config(checkout), tmp_path / "run")


@pytest.mark.more
def test_changed_files_are_named(tmp_path: Path) -> None:
    checkout, folder = engine.written(tmp_path / "Engine"), tmp_path / "run"
    run(config(checkout), folder, stop=lambda: True)
    with (checkout / "system" / "main.py").open("a") as stream:
        stream.write("\n# changed\n")
    with pytest.raises(UsageError, match=r"system/main\.py has changed since the run was begun"):
        resume(folder)
    assert resume(folder, accept_changed_code=True).state == "finished"


def test_code_that_only_a_folder_names_is_not_executed(
    halted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = copied(halted, tmp_path / "run")
    forgotten(monkeypatch, tmp_path / "another account")
    with pytest.raises(gate.UntrustedCodeError, match="a file names it and not you"):
        resume(folder)
    # Its code is trusted now, and the checkpoint is still a pickle that another account wrote
    gate.trust_typed()
    with pytest.raises(UsageError, match=r"another account began this run or wrote engine-000001\.pt"):
        resume(folder)


def test_commands_that_look_into_a_method_refuse_an_engine(
    finished: RunResult, checkout: Path, tmp_path: Path
) -> None:
    folder = finished.folder
    for command in (
        lambda: raffed.extend(folder, 5),
        lambda: raffed.fork(folder, config(checkout, federation__rounds=2), tmp_path / "fork", at=1),
        lambda: raffed.load_model(folder),
    ):
        with pytest.raises(UsageError, match="author's whole engine, which raffed cannot look into"):
            command()


@pytest.mark.more
def test_stuck_engine_is_ended_with_its_children(tmp_path: Path) -> None:
    forked = tmp_path / "forked"
    stuck = f"""begun = os.fork() and time.time()
                open({str(forked)!r}, "a").close()
                if not begun or i == 1:
                    time.sleep(600)"""
    checkout = engine.written(
        tmp_path / "Engine", serverx=engine.SERVER_X.replace("begun = time.time()", stuck)
    )
    with pytest.raises(RaffedError, match=r"took more than 20 seconds; .*engine\.log; .*--author-timeout"):
        run(config(checkout, runtime__author_timeout=20.0), tmp_path / "run")
    assert forked.exists()  # else the children below were never there
    assert read_run(tmp_path / "run")["state"] == "failed"
    commands = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if path.exists()]
    assert not [words for words in commands if b"driver.py" in words and str(tmp_path).encode() in words]


def test_verify_executes_the_engine_again(finished: RunResult, tmp_path: Path) -> None:
    """Every round is compared. That of the whole run is right is held by its bundle's replay."""
    other = copied(finished.folder, tmp_path / "run")
    about = read_run(other)
    about["round_hashes"][0] = about["engine"]["round_hashes"][0] = about["round_hashes"][1]
    write_json(other / "run.json", about)
    found = raffed.verify(other, rounds=2, progress=False)
    assert [(check.what, check.round, check.ok) for check in found.checks if check.round] == [
        *(("state", number, number == 2) for number in (1, 2)),
        *(("metric rows", number, True) for number in (1, 2)),
    ]
    assert not found.ok


@pytest.mark.more
def test_held_out_samples_are_scored_in_place_of_the_tests(checkout: Path, tmp_path: Path) -> None:
    result = run(config(checkout, data__validation=0.2, federation__rounds=1), tmp_path / "run")
    rows = result.to_pandas()
    scores = rows[(rows["metric"] == "accuracy") & rows["client"].notna() & (rows["round"] == 1)]
    partition = Partition.load(tmp_path / "run" / "partition.npz")
    assert set(scores["split"]) == {"val"}
    assert scores["n"].tolist() == [len(rows) for rows in partition.val]
    assert scores["n"].tolist() != [len(rows) for rows in partition.test]


@pytest.mark.slow
def test_search_gives_an_engine_as_many_trials_as_other_methods(checkout: Path, tmp_path: Path) -> None:
    name = f"pfllib:{checkout}#FedX"
    base = config(checkout, federation__rounds=1).changed(
        {"method": "fedavg", "args": {}, "model.name": "mlp"}
    )
    methods = {name: {"dataset": "digits"}, "fedprox": {}, "fedavg": {}}
    asked = {"trials": 2, "seeds": 1, "select": "personal", "progress": False}
    found = raffed.tune(methods, base, out=tmp_path / "a", grid={"mu": [0.1, 0.2]}, **asked)
    assert found.complete
    assert found.trials["method"].value_counts().to_dict() == {name: 2, "fedprox": 2, "fedavg": 2}
    assert {tuple(one) for one in found.trials[found.trials["method"] == name]["settings"]} == {("mu",)}
    final = read_run(next((tmp_path / "a").glob("*FedX-*/final/*")))
    assert final["config"]["data"]["validation"] == 0.0
    assert "--mu" in final["engine"]["flags"]
    rates = raffed.tune({name: {"dataset": "digits"}}, base, out=tmp_path / "b", **asked)
    assert {tuple(one) for one in rates.trials["settings"]} == {("local.lr",)}


def forgotten(monkeypatch: pytest.MonkeyPatch, place: Path) -> None:
    """Go on as another account in another process, which trusts nothing."""
    monkeypatch.setattr(gate, "_KNOWN", gate.Knowledge(set(), set(), set(), set(), set()))
    monkeypatch.setenv("XDG_STATE_HOME", str(place))


def test_bundle_holds_no_file_of_the_engine_and_is_no_word_for_it(
    finished: RunResult, checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    raffed.bundle(finished.folder, tmp_path / "a.zip")
    with zipfile.ZipFile(tmp_path / "a.zip") as archive:
        names = archive.namelist()
        about = json.loads(archive.read("results/run.json"))
    assert not [name for name in names if name.endswith((".py", ".pt")) or "engine" in name]
    assert about["code"][0]["files"] == Checkout(checkout).hashes
    assert about["engine"]["signature"] == ""
    assert raffed.replay(tmp_path / "a.zip", tmp_path / "again", progress=False).ok
    forgotten(monkeypatch, tmp_path / "another account")
    monkeypatch.setattr(subprocess, "Popen", lambda *_, **__: pytest.fail("a process was started"))
    for trust in (False, True):  # --trust-code of a replay is for code that the bundle brings
        with pytest.raises(gate.UntrustedCodeError, match="start a run of it by its name"):
            raffed.replay(tmp_path / "a.zip", tmp_path / "other", trust_code=trust, progress=False)


@pytest.mark.more
def test_own_table_takes_an_engine_that_the_account_has_executed(
    checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = f"import raffed\nMADE = raffed.RunConfig.from_dict({config(checkout).as_dict()!r})\n"
    text += "TABLE = raffed.table('t', 'T', {('X', 'digits'): MADE}, measure='personal_last')\n"
    (tmp_path / "items.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    forgotten(monkeypatch, tmp_path / "another account")
    asked = {"items": "./items.py:TABLE", "scale": "full", "seeds": 1, "out": "tables", "progress": False}
    with pytest.raises(gate.UntrustedCodeError, match="a file names it and not you"):
        raffed.reproduce(**asked)
    gate.trust([Checkout(checkout).sha256])
    raffed.reproduce(**asked)
    [cell] = json.loads((tmp_path / "tables/own/t/full/item.json").read_text())["cells"]
    assert len(cell["runs"]) == 1


def test_file_names_no_interpreter(finished: RunResult, tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text('[runtime]\nauthor_python = "/tmp/python"\n')
    with pytest.raises(UsageError, match="give --author-python in the command"):
        read_local(tmp_path / "a.toml")
    assert run_config(finished.folder).runtime.author_python == ""


def test_driver_is_python_3_8_and_knows_nothing_of_raffed() -> None:
    tree = ast.parse(DRIVER.read_text(), feature_version=(3, 8))
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    imported |= {str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    ours = {
        name
        for name in imported
        if name.partition(".")[0] not in {*sys.stdlib_module_names, "torch", "numpy"}
    }
    assert ours == set()
