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

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from raffed.analysis.loading import load_runs
from raffed.reproductions.pages.packed.files import read_records

from raffed import RunConfig
from raffed.cli.messages import set_as_recorded
from raffed.results.runfile import read_run
from raffed.results.storage import packed_below
from tests.cli.conftest import Cli, Damage, contents, told_once
from tests.forging import edited
from tests.params import one_in

pytestmark = pytest.mark.usefixtures("no_waiting")


def says(change: Callable[[dict[str, Any]], object]) -> Damage:
    """run.json says something else, with a seal that fits."""
    return lambda run: edited(run / "run.json", change)


def text(change: Callable[[str], str]) -> Damage:
    return lambda run: (run / "run.json").write_text(change((run / "run.json").read_text()))


def instead(make: Callable[[Path], object], name: str = "run.json") -> Damage:
    """Something else lies where a file or folder was."""

    def damage(run: Path) -> None:
        (run / name).rename(run.parent / "away")
        make(run / name)

    return damage


DEEP = '"config": {"x": ' + "[" * 10**5 + "]" * 10**5 + ","
RUN_FILE_DAMAGES: dict[str, Damage] = {
    "a key is misspelt": says(lambda about: about.update(rounds_doen=about.pop("rounds_done"))),
    "seconds is NaN": text(lambda old: re.sub(r'"seconds": [0-9.e-]+', '"seconds": NaN', old)),
    "rounds_done is another number": says(lambda about: about.update(rounds_done=3)),
    "half a character": says(lambda about: about.update(error="\ud800")),
    "nested very deeply": text(lambda old: old.replace('"config": {', DEEP, 1)),
    "a later schema": says(lambda about: about.update(schema=99)),
    "files leads out of the folder": says(lambda about: about.update(files={"../x": "0" * 64})),
    "a segment begins elsewhere": says(lambda about: about["segments"][0].update({"from": 2})),
    "cut": text(lambda old: old[: len(old) // 2]),
    "a named pipe": instead(os.mkfifo),
    "a link out of the folder": instead(lambda path: path.symlink_to(path.parents[1] / "away")),
}


@pytest.mark.parametrize("what", one_in(3, RUN_FILE_DAMAGES))
def test_every_command_that_reads_run_json_refuses_a_damaged_one_in_one_line(
    cli: Cli, stopped: Path, tmp_path: Path, what: str
) -> None:
    RUN_FILE_DAMAGES[what](stopped)
    set_as_recorded(stopped)  # looks up the bits of a run without these checks: it neither fails nor waits
    for command in ("resume", "verify"):
        done = cli(command, stopped)
        assert told_once(done, "run.json"), (command, done)
    for folder in (stopped, tmp_path):
        done = cli("report", folder, "--out", tmp_path / "out")
        assert told_once(done, "run.json"), done
    (tmp_path / "compared").mkdir()
    stopped.rename(tmp_path / "compared" / "fedavg")
    done = cli("compare", "--method", "fedavg", "--out", tmp_path / "compared")
    assert (done.code, "run.json" in done.err) == (2, True), done


def test_a_configuration_that_cannot_be_read_is_told_with_the_files_name(cli: Cli, stopped: Path) -> None:
    says(lambda about: about["config"]["data"].update(splitt=3))(stopped)
    for command in ("resume", "verify"):
        assert told_once(cli(command, stopped), f"{stopped}/run.json: its configuration cannot be read")


@pytest.mark.parametrize("lost", [["hashes"], ["round_hashes"], ["hashes", "round_hashes"]])
def test_a_finished_run_without_its_hashes_is_not_verified(cli: Cli, whole: Path, lost: list[str]) -> None:
    edited(whole / "run.json", lambda about: [about.pop(name) for name in lost])
    for command in ("verify", "resume"):
        done = cli(command, whole)
        assert told_once(done, "run.json"), done
        assert "state is finished, but there is no" in done.err


def part(run: Path) -> Path:
    return sorted((run / "metrics").iterdir())[0]


def rows(change: Callable[[pa.Table], pa.Table]) -> Damage:
    """The first part's rows are others, its metadata the same."""

    def damage(run: Path) -> None:
        table = pq.ParquetFile(part(run)).read()
        pq.write_table(change(table).replace_schema_metadata(table.schema.metadata), part(run))

    return damage


def a_little_higher(table: pa.Table) -> pa.Table:
    place = table.schema.get_field_index("value")
    value = pc.if_else(
        pc.equal(table["metric"], "accuracy"), pc.multiply(table["value"], 1.001), table["value"]
    )
    return table.set_column(place, table.schema.field("value"), value)


PART_DAMAGES: dict[str, Damage] = {
    "an accuracy that is a little higher": rows(a_little_higher),
    "one row twice": rows(lambda table: pa.concat_tables([table, table.slice(0, 1)])),
    "one row fewer": rows(lambda table: table.slice(1)),
    "written again": rows(lambda table: table),
    "another part's bytes": lambda run: shutil.copy(run.parent / "other.parquet", part(run)),
    "a named pipe": lambda run: instead(os.mkfifo, f"metrics/{part(run).name}")(run),
    "a part too many": lambda run: shutil.copy(part(run), run / "metrics" / "part-000001-000009.parquet"),
    "a file": instead(Path.touch, "metrics"),
}


@pytest.mark.parametrize("what", one_in(3, PART_DAMAGES))
@pytest.mark.parametrize("kind", ["finished", "stopped"])
def test_rows_that_were_changed_are_told_by_every_command_that_reads_them(
    cli: Cli, runs: Path, tmp_path: Path, kind: str, what: str
) -> None:
    run = Path(shutil.copytree(runs / kind, tmp_path / kind))
    shutil.copy(part(runs / ("stopped" if kind == "finished" else "finished")), tmp_path / "other.parquet")
    PART_DAMAGES[what](run)
    before = contents(run)
    done = cli("resume", run)
    assert told_once(done, "metrics"), done
    assert contents(run) == before
    done = cli("verify", run, "--rounds", "0")
    assert done.code in (1, 2)
    assert "metric" in done.out + done.err
    done = cli("report", run, "--out", tmp_path / "out")
    assert re.search(rf"raffed: .*{run}.*metrics", done.err), done
    if (run / "metrics").is_dir():
        assert load_runs(run).metrics.empty  # no mean has a changed row


@pytest.mark.more
def test_every_record_of_the_analysis_is_read(tmp_path: Path) -> None:
    runs = 0
    for folder in packed_below(Path(__file__).parents[2] / "reproductions" / "records"):
        for name, about in read_records(folder).objects.items():
            if name.endswith("run.json"):
                (tmp_path / "run.json").write_text(json.dumps(about), encoding="utf-8")
                runs += RunConfig.from_dict(read_run(tmp_path)["config"]).identity() == about["identity"]
    assert runs > 1000
