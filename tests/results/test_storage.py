"""Results at a URL: whole things only, run.json last, nothing outside the folder, no secret in a message,
the same bits.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from raffed.errors import RaffedError, UsageError
from raffed.results import remote as urls
from raffed.results import storage
from raffed.results.remote import Remote
from raffed.results.storage import fetched, is_url, mirrored, named
from tests.cli.conftest import QUICK, Cli, cli  # noqa: F401

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


def test_the_command_line_never_speaks_of_the_copy(
    cli: Cli,  # noqa: F811
    tmp_path: Path,
) -> None:
    url = (tmp_path / "there").as_uri()
    first = cli("run", *QUICK, "--rounds", "1", "--out", url)
    assert first.code == 0, first.err
    assert url in first.out
    assert "raffed-" not in first.out + first.err
    second = cli("run", *QUICK, "--rounds", "1", "--out", url)
    assert second.code == 2
    assert f"`raffed report {url}` shows it and `raffed verify {url}` checks it" in second.err
