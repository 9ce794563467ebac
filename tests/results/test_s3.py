"""Results on S3, as moto's store answers, which imitates one (`make extras` installs it)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import raffed
from raffed.errors import RaffedError, UsageError
from raffed.results.storage import mirrored
from tests.cli.conftest import QUICK, Cli, cli
from tests.results.s3_stores import KEY, RUN, SECRET, Moto

__all__ = ["cli"]
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # moto's and botocore's own


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[Moto]:
    """The credentials come from the environment, as the README says."""
    pytest.importorskip("moto", reason="moto[server] is not installed (make extras)")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    made = Moto()
    yield made
    with contextlib.suppress(Exception):
        made.end()


def test_a_resumed_run_on_s3_has_the_bits_of_one_here(store: Moto, cli: Cli, tmp_path: Path) -> None:
    url, seen = f"s3://lab/runs/a{store.options}", list[Any]()
    whole = raffed.run(RUN, tmp_path / "whole")
    halted = raffed.run(RUN, url, watch=seen.append, stop=lambda: len(seen) == 1)
    assert (halted.state, halted.folder) == ("stopped", None)
    assert {"runs/a/run.json", "runs/a/checkpoints/round-000001/state.json"} <= set(store.names())
    resumed = raffed.resume(url)
    assert resumed.state == "finished"
    assert resumed.hashes == whole.hashes
    files = [path for path in (tmp_path / "whole").rglob("[!.]*") if path.is_file()]
    local = {path.relative_to(tmp_path / "whole").as_posix() for path in files}
    there = {name.removeprefix("runs/a/") for name in store.names()}
    kept = [{name for name in names if "checkpoints" not in name} for names in (local, there)]
    assert kept[0] == kept[1]
    done = cli("report", f"s3://lab/runs{store.options}", "--out", f"s3://lab/report{store.options}")
    assert done.code == 0, done.err
    assert "report/report.html" in store.names()
    assert f"s3://lab/report/report.html{store.options}" in done.out
    assert SECRET not in done.out + done.err


def test_the_store_may_be_named_by_the_environment(store: Moto, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{store.host}")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    with mirrored("s3://lab/b?region=us-east-1") as here:
        (here / "metrics").mkdir(parents=True)
        (here / "metrics" / "x.parquet").write_text("rows")
    assert store.names() == ["b/metrics/x.parquet"]
    with mirrored("s3://lab/b?region=us-east-1") as here:
        assert (here / "metrics" / "x.parquet").read_text() == "rows"


def test_a_missing_bucket_is_an_error_before_work_starts(store: Moto, cli: Cli) -> None:
    done = cli("run", *QUICK, "--rounds", "1", "--out", f"s3://labb/a{store.options}")
    assert done.code == 2
    assert "cannot be written" in done.err
    assert "round" not in done.out
    assert SECRET not in done.out + done.err


def test_a_store_that_goes_away_during_a_run_costs_no_result(
    store: Moto, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("RAFFED_SCRATCH", str(tmp_path))
    url = f"s3://lab/runs/a{store.options}"
    with pytest.raises(RaffedError, match="the results are complete in") as told:
        raffed.run(RUN, url, watch=lambda event: store.end() if event.round == 1 else None)
    assert not isinstance(told.value, UsageError)
    (kept,) = tmp_path.glob("raffed-*/a")
    assert str(kept) in str(told.value)
    assert SECRET not in str(told.value)
    assert raffed.resume(kept).hashes == raffed.run(RUN).hashes
