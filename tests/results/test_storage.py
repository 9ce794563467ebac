"""Results at a URL: whole things only, run.json last, nothing outside the folder, no secret in a message,
the same bits; also on S3, as moto's store answers, which imitates one in this process (`make extras`
installs it).
"""

from __future__ import annotations

import contextlib
import os
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import pytest

import raffed
from raffed.errors import RaffedError, UsageError
from raffed.results import remote as urls
from raffed.results import storage
from raffed.results.remote import Remote
from raffed.results.storage import fetched, is_url, mirrored, named
from tests.cli.conftest import FEW, Cli, cli
from tests.tiny import digits

FILES = {
    "run.json": "{}",
    "metrics/part-000001-000002.parquet": "rows",
    "checkpoints/round-000002/state.json": "{}",
    "checkpoints/round-000002/server.safetensors": "weights",
    "checkpoints/round-000002/vaults/client-000000@000002.safetensors": "vault",
}


def laid_out(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def contents(folder: Path) -> dict[str, str]:
    return {
        path.relative_to(folder).as_posix(): path.read_text() for path in folder.rglob("*") if path.is_file()
    }


def test_a_scheme_makes_a_url_and_everything_else_is_a_path() -> None:
    assert all(map(is_url, ("s3://b/x", "gs://b/x", "file:///tmp/x", "abfs://c@a/x")))
    assert not any(map(is_url, ("runs/a", "/tmp/x", "C:/x", "a:b", "runs/s3://b")))


def test_what_changed_is_sent_whole_things_only_and_what_vouches_for_others_after_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither hidden files nor the live client states of a run are sent."""
    extra = {".run.json.tmp": "half", "vaults/client-000000/000002.safetensors": "live"}
    here, there = laid_out(tmp_path / "here", FILES | extra), Remote((tmp_path / "there").as_uri())
    order, kept = list[str](), Remote._send_one

    def noted(self: Remote, folder: Path, name: str) -> bool:
        done = kept(self, folder, name)
        order.append(name)
        return done

    monkeypatch.setattr(Remote, "_send_one", noted)
    assert there.send(here) == len(FILES)
    assert contents(tmp_path / "there") == FILES
    assert order[-2:] == ["checkpoints/round-000002/state.json", "run.json"]
    (here / "run.json").write_text('{"state": "finished"}')
    (here / "metrics/part-000001-000002.parquet").unlink()
    assert there.send(here) == 1
    found = contents(tmp_path / "there")
    assert found["run.json"] == '{"state": "finished"}'
    assert set(found) == set(FILES) - {"metrics/part-000001-000002.parquet"}


def test_a_checkpoint_that_goes_away_is_not_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver removes an old checkpoint between the listing and the sending."""
    here = laid_out(tmp_path / "here", FILES)
    client_state = "checkpoints/round-000002/vaults/client-000000@000002.safetensors"
    listed = urls.local_stamps(here)
    (here / client_state).unlink()
    monkeypatch.setattr(urls, "local_stamps", lambda folder: listed)
    Remote((tmp_path / "there").as_uri()).send(here)
    sent = set(contents(tmp_path / "there"))
    assert sent == set(FILES) - {client_state, "checkpoints/round-000002/state.json"}


def test_what_was_cut_off_is_not_fetched_and_a_copy_sends_no_equal_file_back(tmp_path: Path) -> None:
    cut_off = {"checkpoints/round-000004/server.safetensors": "half", "run.json.part": "{"}
    laid_out(tmp_path / "there", FILES | cut_off)
    again = Remote((tmp_path / "there").as_uri())
    again.fetch(tmp_path / "back")
    assert contents(tmp_path / "back") == FILES
    assert again.send(tmp_path / "back") == 0


def test_names_that_lead_outside_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Remote, "listed", lambda self: ["run.json", "../escaped"])
    with pytest.raises(UsageError, match=r"\.\./escaped"):
        Remote((tmp_path / "there").as_uri()).fetch(tmp_path / "in" / "here")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "url",
    [
        "s3://AKIAEXAMPLE:verysecret@bucket/runs",
        "abfs://account:verysecret@account.dfs.core.windows.net/a",
        "s3://bucket/runs?region=x&Session-Token=verysecret",
        "s3://bucket/runs?endpoint_override=http%3A%2F%2Fme%3Averysecret%40h",
    ],
)
def test_credentials_in_a_url_are_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(UsageError, match="credentials") as refused:
        Remote(url)
    for word in ("AKIAEXAMPLE", "verysecret"):
        assert word not in str(refused.value)
    container = "abfss://runs@account.dfs.core.windows.net/a"  # what stands before its @ is no secret
    assert urls.check_url(container) == container


def test_the_client_of_s3_adds_no_checksums_and_the_variables_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """Older stores refuse them. The client reads the variables when it is made."""
    name, seen = "AWS_REQUEST_CHECKSUM_CALCULATION", list[str | None]()
    monkeypatch.delenv(name, raising=False)

    def made(url: str) -> tuple[None, str]:
        seen.append(os.environ.get(name))
        return None, "bucket/a"

    monkeypatch.setattr("pyarrow.fs.FileSystem", SimpleNamespace(from_uri=made))
    urls.opened("s3://bucket/a")
    assert seen == ["when_required"]
    assert name not in os.environ


def test_a_url_s_options_stay_at_its_end_and_an_argument_is_quoted(monkeypatch: pytest.MonkeyPatch) -> None:
    here = Path("/tmp/raffed-x/a")
    monkeypatch.setitem(storage._copies, here, "s3://b/a?x=1&y=2")
    assert named(f"{here}/metrics/part-1.parquet: no.") == "s3://b/a/metrics/part-1.parquet?x=1&y=2: no."
    assert named(f"go on with raffed resume {here}/map") == "go on with raffed resume 's3://b/a/map?x=1&y=2'"


@pytest.mark.parametrize("url", ["ftp://h/x", "s3://[", "s3://bucket"])
def test_a_url_that_holds_no_results_is_refused_with_what_is_wanted(url: str) -> None:
    with pytest.raises(UsageError, match=r"URL|cannot|names no folder"):
        Remote(url)


def test_work_is_sent_while_it_goes_on_and_what_an_error_left_too(tmp_path: Path) -> None:
    """The error names the URL, and the copy is removed."""
    url, copies = (tmp_path / "there").as_uri(), list[Path]()

    def work() -> None:
        with mirrored(url, every=0.02) as here:
            copies.append(here)
            assert named(here / "run.json") == f"{url}/run.json"
            laid_out(here, {"run.json": "{}"})
            until = time.monotonic() + 10
            while not (tmp_path / "there" / "run.json").exists():
                assert time.monotonic() < until
                time.sleep(0.01)
            laid_out(here, FILES)
            raise UsageError(f"{here}: no")

    with pytest.raises(UsageError) as told:
        work()
    assert str(told.value) == f"{url}: no"
    assert contents(tmp_path / "there") == FILES
    assert not copies[0].exists()


def test_results_that_cannot_be_sent_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAFFED_SCRATCH", str(tmp_path / "scratch"))
    (tmp_path / "file").write_text("no folder")

    def work() -> None:
        with mirrored((tmp_path / "file" / "a").as_uri()) as here:
            laid_out(here, FILES)

    with pytest.raises(RaffedError, match="cannot be written") as told:
        work()
    (kept,) = (tmp_path / "scratch").glob("raffed-*/a")
    assert str(kept) in str(told.value)
    assert contents(kept) == FILES


def test_a_report_fetches_no_weights(tmp_path: Path) -> None:
    laid_out(tmp_path / "there" / "a", FILES | {"final.safetensors": "weights"})
    with fetched((tmp_path / "there").as_uri()) as here:
        assert set(contents(here)) == {"a/run.json", "a/metrics/part-000001-000002.parquet"}
    assert not here.exists()


def test_the_command_line_never_speaks_of_the_copy(cli: Cli, tmp_path: Path) -> None:
    url = (tmp_path / "there").as_uri()
    first = cli("run", *FEW, "--rounds", "1", "--out", url)
    assert first.code == 0, first.err
    assert url in first.out
    assert "raffed-" not in first.out + first.err
    second = cli("run", *FEW, "--rounds", "1", "--out", url)
    assert second.code == 2
    assert f"`raffed report {url}` shows it and `raffed verify {url}` checks it" in second.err


KEY, SECRET = "AKIAEXAMPLE", "verysecretkey"
BUCKET = "lab"
RUN = digits(
    "p4c5", method="scamap", local=raffed.Local(epochs=1), federation=raffed.Federation(3), local_test=0.2
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
MOTO = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # moto's and botocore's own


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


@MOTO
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


@MOTO
def test_the_store_may_be_named_by_the_environment(store: Moto, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{store.host}")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    with mirrored("s3://lab/b?region=us-east-1") as here:
        (here / "metrics").mkdir(parents=True)
        (here / "metrics" / "x.parquet").write_text("rows")
    assert store.names() == ["b/metrics/x.parquet"]
    with mirrored("s3://lab/b?region=us-east-1") as here:
        assert (here / "metrics" / "x.parquet").read_text() == "rows"


@MOTO
def test_a_missing_bucket_is_an_error_before_work_starts(store: Moto, cli: Cli) -> None:
    done = cli("run", *FEW, "--rounds", "1", "--out", f"s3://labb/a{store.options}")
    assert done.code == 2
    assert "cannot be written" in done.err
    assert "round" not in done.out
    assert SECRET not in done.out + done.err


@pytest.mark.more  # 7 s of attempts; `test_results_that_cannot_be_sent_are_kept` takes none
@MOTO
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
