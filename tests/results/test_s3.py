"""Results on S3, as moto's store answers, which imitates one in this process (`make extras` installs it)."""

from __future__ import annotations

import contextlib
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

import raffed
from raffed.errors import RaffedError, UsageError
from raffed.results.storage import mirrored
from tests.cli.conftest import QUICK, Cli, cli

KEY, SECRET = "AKIAEXAMPLE", "verysecretkey"
BUCKET = "lab"
RUN = raffed.RunConfig(
    method="scamap",
    data=raffed.Data(split="p4c5", local_test=0.2),
    model=raffed.Model("mlp", {"hidden": [8]}),
    local=raffed.Local(epochs=1),
    federation=raffed.Federation(rounds=3),
    runtime=raffed.Runtime(execution="serial"),
)


class Moto:
    """An S3 with the bucket `lab`, at `host`; `options` go behind a URL's path."""

    def __init__(self) -> None:
        from moto.server import ThreadedMotoServer

        self._server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
        self._server.start()
        self.host = "{}:{}".format(*self._server.get_host_and_port())
        self._ask("POST", "moto-api/reset")  # all servers of a process hold the same buckets
        self._ask("PUT", BUCKET)

    @property
    def options(self) -> str:
        return f"?endpoint_override={self.host}&scheme=http&region=us-east-1"

    def names(self) -> list[str]:
        """Of the bucket's objects; markers of folders, which end in a slash, left out."""
        found = ElementTree.fromstring(self._ask("GET", BUCKET))
        keys = [one.text or "" for one in found.iter() if one.tag.endswith("}Key")]
        return [key for key in keys if not key.endswith("/")]

    def end(self) -> None:
        self._server.stop()

    def _ask(self, verb: str, path: str) -> bytes:
        signed = {"Authorization": "AWS4-HMAC-SHA256 Credential=test/20260101/us-east-1/s3/aws4_request"}
        asked = urllib.request.Request(f"http://{self.host}/{path}", method=verb, headers=signed)
        with urllib.request.urlopen(asked) as answer:
            return bytes(answer.read())


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
