"""A table of damages by commands: each is told in one line with the file's name, none is waited for, none
goes unnoticed.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from raffed.reproductions.pages.packed.files import read_records

from raffed import RunConfig
from raffed.cli.messages import set_as_recorded
from raffed.results.runfile import read_run
from raffed.results.storage import packed_below
from tests.cli.conftest import Cli
from tests.cli.damages import (
    Damage,
    config,
    first_segment,
    in_short,
    instead,
    lacks,
    misspelt,
    says,
    text,
    told_once,
)
from tests.fuzz.harness import in_time
from tests.params import one_in

pytestmark = pytest.mark.usefixtures("no_waiting")

RUN_FILE_DAMAGES: dict[str, Damage] = {
    "a key outside config is misspelt": misspelt("rounds_done", "rounds_doen"),
    "no run_id": lacks("run_id"),
    "run_id is a number": says(run_id=3),
    "seconds is NaN": text(lambda old: re.sub(r'"seconds": [0-9.e-]+', '"seconds": NaN', old)),
    "rounds_done is another number": says(rounds_done=3),
    "half a character": says(error="\ud800"),
    "nested very deeply": text(
        lambda old: old.replace('"config": {', '"config": {"x": ' + "[" * 10**5 + "]" * 10**5 + ",", 1)
    ),
    "a later schema": says(schema=99),
    "files leads out of the folder": says(files={"../x": "0" * 64}),
    "a segment begins elsewhere": first_segment(**{"from": 2}),
    "cut": text(lambda old: old[: len(old) // 2]),
    "not UTF-8": lambda run: (run / "run.json").write_bytes(b"\xff\xfe{}"),
    "a named pipe": instead(os.mkfifo),
    "a folder": instead(Path.mkdir),
    "a link out of the folder": instead(lambda path: path.symlink_to(path.parents[1] / "away")),
    "a link in a circle": instead(lambda path: path.symlink_to(path)),
}


@pytest.mark.parametrize("what", one_in(2, in_short(RUN_FILE_DAMAGES, 4)))
def test_every_command_that_reads_run_json_refuses_a_damaged_one_in_one_line(
    cli: Cli, stopped: Path, tmp_path: Path, what: str
) -> None:
    RUN_FILE_DAMAGES[what](stopped)
    commands = [
        ("resume", stopped),
        ("verify", stopped),
        ("report", stopped, "--out", tmp_path / "out"),
        ("report", tmp_path, "--out", tmp_path / "out"),
    ]
    for command in commands:
        done = cli(*command)
        assert told_once(done, "run.json"), (command, done)
    assert not (tmp_path / "out").exists()
    folder = tmp_path / "compared"
    folder.mkdir()
    stopped.rename(folder / "fedavg")
    done = cli("compare", "--method", "fedavg", "--out", folder)
    assert done.code == 2, done
    assert "run.json" in done.err
    assert "Traceback" not in done.err


@pytest.mark.parametrize("what", RUN_FILE_DAMAGES)
def test_what_is_read_of_a_damaged_run_json_before_its_command_begins_neither_fails_nor_waits(
    stopped: Path, what: str
) -> None:
    """The bits of a run are looked up before NumPy is loaded, without the checks that name a damage."""
    RUN_FILE_DAMAGES[what](stopped)
    with in_time():
        set_as_recorded(stopped)


@pytest.mark.parametrize("damage", [lacks("hashes"), lacks("round_hashes"), lacks("hashes", "round_hashes")])
def test_a_finished_run_without_its_hashes_is_not_verified(cli: Cli, whole: Path, damage: Damage) -> None:
    damage(whole)
    for command in ("verify", "resume"):
        done = cli(command, whole)
        assert told_once(done, "run.json"), done
        assert "state is finished, but there is no" in done.err


@pytest.mark.parametrize("section", ["data", "runtime", "federation"])
def test_a_configuration_that_cannot_be_read_is_told_with_the_files_name(
    cli: Cli, stopped: Path, section: str
) -> None:
    config(section, splitt=3)(stopped)
    for command in ("resume", "verify"):
        assert told_once(cli(command, stopped), f"{stopped}/run.json: its configuration cannot be read")


def part(run: Path) -> Path:
    return sorted((run / "metrics").iterdir())[0]


def rows(change: Callable[[pa.Table], pa.Table]) -> Damage:
    """The first part's rows are others, its metadata the same."""

    def damage(run: Path) -> None:
        table = pq.ParquetFile(part(run)).read()
        pq.write_table(change(table).replace_schema_metadata(table.schema.metadata), part(run))

    return damage


def values(change: Callable[[np.ndarray[Any, Any]], Any], metric: str = "accuracy") -> Damage:
    def changed(table: pa.Table) -> pa.Table:
        old, mine = table["value"].to_numpy().copy(), np.array(table["metric"].to_pylist()) == metric
        old[mine] = change(old[mine])
        return table.set_column(
            table.schema.get_field_index("value"), table.schema.field("value"), pa.array(old)
        )

    return rows(changed)


ROW_DAMAGES: dict[str, Damage] = {
    "an accuracy above 1": values(lambda old: old + 1.006),
    "an accuracy that is a little higher": values(lambda old: old * 0.999),
    "NaN": values(lambda old: old * np.nan, "loss"),
    "doubled": rows(lambda table: pa.concat_tables([table, table])),
    "one row twice": rows(lambda table: pa.concat_tables([table, table.slice(0, 1)])),
    "one row fewer": rows(lambda table: table.slice(1)),
    "no row": rows(lambda table: table.slice(0, 0)),
    "written again": rows(lambda table: table),
}
PART_DAMAGES: dict[str, Damage] = {
    **ROW_DAMAGES,
    "another part's bytes": lambda run: shutil.copy(run.parent / "other.parquet", part(run)),
    "a named pipe": lambda run: instead(os.mkfifo, f"metrics/{part(run).name}")(run),
    "a part too many": lambda run: shutil.copy(part(run), run / "metrics" / "part-000001-000009.parquet"),
    "a file": instead(Path.touch, "metrics"),
}


@pytest.mark.parametrize("what", one_in(3, in_short(PART_DAMAGES, 5)))
@pytest.mark.parametrize("kind", ["finished", "stopped"])
def test_rows_that_were_changed_are_told_by_every_command_that_reads_them(
    cli: Cli, runs: Path, tmp_path: Path, kind: str, what: str
) -> None:
    run = Path(shutil.copytree(runs / kind, tmp_path / kind))
    shutil.copy(part(runs / ("stopped" if kind == "finished" else "finished")), tmp_path / "other.parquet")
    PART_DAMAGES[what](run)
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    done = cli("resume", run)
    assert told_once(done, "metrics"), done
    assert "personalization" not in done.out
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before
    done = cli("verify", run, "--rounds", "0")
    assert (done.code, "metrics" in done.out + done.err) in {(1, True), (2, True)}
    done = cli("report", run, "--out", tmp_path / "out")
    assert re.search(rf"raffed: .*{run}.*metrics", done.err), done
    assert "Traceback" not in done.err


def test_a_part_that_was_changed_is_in_no_mean(cli: Cli, runs: Path, tmp_path: Path) -> None:
    from raffed.analysis.loading import load_runs

    run = Path(shutil.copytree(runs / "finished", tmp_path / "run"))
    ROW_DAMAGES["an accuracy that is a little higher"](run)
    loaded = load_runs(run)
    assert loaded.metrics.empty
    assert dict(loaded.unreadable) == {
        str(part(run)): "it was changed, run.json has another hash; put back a copy"
    }


@pytest.mark.more
def test_every_record_of_the_analysis_is_read(tmp_path: Path) -> None:
    runs = 0
    for folder in packed_below(Path(__file__).parents[2] / "reproductions" / "records"):
        for name, about in read_records(folder).objects.items():
            if name.endswith("run.json"):
                (tmp_path / "run.json").write_text(json.dumps(about), encoding="utf-8")
                runs += RunConfig.from_dict(read_run(tmp_path)["config"]).identity() == about["identity"]
    assert runs > 1000


def test_json_of_the_certificate_names_segments_and_notes(cli: Cli, stopped: Path) -> None:
    first_segment(versions={**read_run(stopped)["versions"], "torch": "1.0"})(stopped)
    assert cli("resume", stopped, "--quiet").code == 0
    (told,) = cli("verify", stopped, "--rounds", "0", "--json").events
    assert len(told["segments"]) == 2
    assert "torch 1.0 → " in told["segments"][1]
    assert json.dumps(told["notes"]) == "[]"
