"""Run folders that older versions of raffed left are read, reported, resumed and verified.

`old_runs/README.md` says which commit made which folder. Bits of training depend on the processor and on
torch, so these tests compare nothing that was trained here with what was trained there. What a folder says of
itself, the split and the types of its records are the same on every machine.
"""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from safetensors import safe_open

import raffed
from analysis.loading import load_runs
from raffed.cli import main
from raffed.core.messages import ClientState, ServerState
from raffed.core.record import Record, fields_of, stored_name
from raffed.errors import RunFolderError
from raffed.experiments.certificate import Certificate
from raffed.experiments.checkpoint import checkpoints
from raffed.experiments.folder import run_config
from raffed.experiments.verify import UNHASHED, verify
from raffed.methods import build_method
from raffed.results.runfile import read_run
from raffed.results.writer import read_metrics
from raffed.runtime.record_codec import load_record
from raffed.runtime.setup import prepare_run

OLD = Path(__file__).with_name("old_runs")
FOLDERS = sorted(path for path in OLD.iterdir() if path.is_dir())
RAISED = "metrics-5-fedproto"  # the revision of its method has been raised since
STOPPED = [path for path in FOLDERS if path.name not in ("metrics-5-finished", RAISED)]
RECORDS = {  # the names of the record classes in the checkpoint of each run, by side
    "metrics-1": ({"Server"}, {"Vault", "Heirloom", "State"}),
    "metrics-2": ({"Server", "ServerControl"}, {"Vault", "ClientControl"}),
    "metrics-3": ({"Server"}, {"Vault", "PersonalModel", "State"}),
    "metrics-4": ({"Server"}, set()),
    "metrics-5-apfl": ({"Server"}, {"Vault", "Companion"}),
    "metrics-5-fedproto": ({"Server", "Prototypes"}, {"Vault"}),
    "metrics-5-finished": ({"Server"}, {"Vault"}),
    "metrics-5-gldp": ({"Server", "Prototypes"}, {"Vault", "Remembered"}),
    "metrics-5-map": ({"Server"}, {"Vault", "Heirloom", "State"}),
    "metrics-5-scaffold": ({"Server", "ServerControl"}, {"Vault", "ClientControl"}),
}
LATER = {  # measures that runs of an earlier schema have no rows of
    "metrics-1": {"accuracy_observed", "accuracy_private", "macro_f1"},
    "metrics-2": {"accuracy_observed", "macro_f1"},
    "metrics-3": set(),
    "metrics-4": set(),
}
LARGEST = 30_000  # bytes of one folder


def names(folders: list[Path]) -> list[str]:
    return [path.name for path in folders]


@pytest.fixture
def copy(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A copy of an old run's folder, to work on."""
    return Path(shutil.copytree(request.param, tmp_path / request.param.name))


def written(path: Path) -> set[str]:
    """The names of the record classes in a file, as it was written."""
    with safe_open(path, framework="np") as stream:
        return set(re.findall(r'"record": "([^"]+)"', stream.metadata()["outline"]))


def kinds(value: Record) -> set[str]:
    """The stored names of a record and of all records inside it."""
    inside = [
        one
        for field in fields_of(value).values()
        for one in (field if isinstance(field, dict) else {0: field}).values()
    ]
    return {
        stored_name(type(value)),
        *(name for one in inside if isinstance(one, Record) for name in kinds(one)),
    }


def keys(rows: pa.Table) -> set[tuple[object, ...]]:
    """What was measured in the first two rounds, without the values."""
    found = rows.select(["round", "client", "class", "model", "split", "metric", "n"]).to_pylist()
    return {tuple(row.values()) for row in found if row["round"] <= 2}


def test_there_is_a_small_folder_of_every_schema() -> None:
    assert {path.name.split("-")[1] for path in FOLDERS} == set("12345")
    assert {read_run(path)["schema"] for path in FOLDERS} == {1}
    for path in FOLDERS:
        assert sum(one.stat().st_size for one in path.rglob("*") if one.is_file()) <= LARGEST, path


@pytest.mark.parametrize("folder", FOLDERS, ids=names(FOLDERS))
def test_an_old_run_s_configuration_is_read_with_the_identity_that_it_had(folder: Path) -> None:
    about = read_run(folder)
    assert run_config(folder).identity() == about["identity"]
    assert set(read_metrics(folder)["round"].to_pylist()) == set(range(1, about["rounds_done"] + 1))


def test_a_report_has_all_old_runs() -> None:
    runs = load_runs(OLD)
    assert sorted(runs.runs.index) == names(FOLDERS)
    assert dict(runs.unreadable) == {}
    for name in names(FOLDERS):
        assert runs.runs.loc[name, "rounds_done"] == read_run(OLD / name)["rounds_done"]
    assert sorted(runs.unhashed) == names(FOLDERS)


@pytest.mark.parametrize("folder", FOLDERS, ids=names(FOLDERS))
def test_a_record_that_is_named_by_its_bare_class_is_read_as_the_class_of_that_name(folder: Path) -> None:
    config = run_config(folder)
    method = build_method(config.method, config.args)
    checkpoint = checkpoints(folder)[-1]
    server = checkpoint / "server.safetensors"
    vaults = sorted((checkpoint / "vaults").glob("*.safetensors"))
    ours, theirs = RECORDS[folder.name]
    assert written(server) == ours == kinds(load_record(server, ServerState, method))
    assert set().union(*map(written, vaults)) == theirs
    assert set().union(*(kinds(load_record(path, ClientState, method)) for path in vaults)) == theirs


@pytest.mark.parametrize("copy", STOPPED, ids=names(STOPPED), indirect=True)
def test_an_old_run_is_resumed_to_its_end_and_verified_but_for_bits(copy: Path) -> None:
    before = read_metrics(copy)
    result = raffed.resume(copy)
    assert result.state == "finished"
    assert set(read_metrics(copy)["round"].to_pylist()) == {1, 2, 3}
    assert keys(read_metrics(copy)) == keys(before)
    certificate = verify(copy, rounds=3)
    assert certificate.rounds == (1, 2, 3)
    assert differing(certificate) == []
    lacking = [note for note in certificate.notes if "the folder has no rows of" in note]
    later = ", ".join(sorted(LATER.get(copy.name, set())))
    assert [note.rpartition(" rows of ")[2] for note in lacking] == [later] * len(lacking)
    assert bool(lacking) == bool(later)


def test_an_old_run_of_an_earlier_revision_is_neither_resumed_nor_verified() -> None:
    for command in (raffed.resume, verify):
        with pytest.raises(RunFolderError, match="revision 1 of fedproto, and this raffed has revision 2"):
            command(OLD / RAISED)


def differing(certificate: Certificate) -> list[str]:
    """The checks that failed, without those of rounds executed again, whose bits depend on the processor."""
    return [check.what for check in certificate.checks if check.round is None and not check.ok]


def test_a_finished_old_run_is_verified_by_the_hashes_that_it_has() -> None:
    certificate = verify(OLD / "metrics-5-finished", rounds=1)
    assert differing(certificate) == []
    assert {"final.safetensors", "metric rows", "vaults of the clients"} <= {
        check.what for check in certificate.checks
    }
    # Notes on a round executed again depend on the processor, as its bits do
    assert [note for note in certificate.notes if not note.startswith("metric rows of round")] == [UNHASHED]


def test_rows_of_an_old_schema_are_those_of_today_without_the_measures_that_came_later(
    tmp_path: Path,
) -> None:
    """Rows of rounds made again have more measures; the rows that there were, are there."""
    for name, later in LATER.items():
        old = OLD / name
        raffed.run(run_config(old), out=tmp_path / name)
        was, now = keys(read_metrics(old)), keys(read_metrics(tmp_path / name))
        assert was <= now
        assert {str(key[-2]) for key in now - was} == later


def test_the_split_of_an_old_run_is_one_that_a_new_run_takes() -> None:
    old = OLD / "metrics-5-map"
    config = run_config(old)
    split = f"file:{old / 'partition.npz'}"
    again = replace(config, data=replace(config.data, split=split, local_test=None))
    assert prepare_run(again).partition.sha256() == read_run(old)["partition_sha256"]


@pytest.mark.slow
def test_raffed_report_writes_a_page_with_all_old_runs(tmp_path: Path) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["report", str(OLD), "--out", str(tmp_path / "report")])
    assert ended.value.code in (None, 0)
    page = (tmp_path / "report" / "report.html").read_text(encoding="utf-8")
    assert [
        name for name in ("apfl", "ditto", "fedavg", "fedproto", "fedrep", "gldp", "map") if name not in page
    ] == []
