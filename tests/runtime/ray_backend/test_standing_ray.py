"""The Ray of `raffed up`: who finds it, who may join it, and how it ends."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from raffed.errors import UsageError
from raffed.results import read_run
from raffed.runtime.ray_backend.address import LOCAL, WARM, meant, same_ray
from raffed.runtime.ray_backend.standing_ray import RECORD, end_standing, forget, joined_ray, note, standing
from raffed.scratch import hold
from tests.cli.conftest import Cli, cli, shell
from tests.runtime.conftest import on, small

__all__ = ["cli"]
pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="no Ray stands ready on Windows")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAFFED_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def noted(tmp_path: Path) -> Iterator[Path]:
    """The folder of a Ray that stands ready, as far as its record goes."""
    folder = tmp_path / "ray"
    folder.mkdir(mode=0o700)
    let_go = hold(folder)
    note(folder, "127.0.0.1:1234", "secret")
    yield folder
    let_go()


def test_without_raffed_up_there_is_nothing_to_join_and_nothing_to_end(cli: Cli) -> None:
    with pytest.raises(UsageError, match="no Ray stands ready on this machine; `raffed up` starts one"):
        joined_ray()
    ended = cli("down")
    assert (ended.code, ended.out, ended.err) == (0, "", "raffed: no Ray stands ready on this machine\n")


def test_a_ray_that_stands_ready_is_found_with_its_token_by_address_warm_alone(noted: Path) -> None:
    found = joined_ray()
    assert (found.address, found.token, found.pid) == ("127.0.0.1:1234", "secret", os.getpid())
    assert (noted / RECORD).stat().st_mode & 0o777 == 0o600
    assert meant(None) == LOCAL
    assert same_ray(WARM, WARM)
    assert not same_ray(WARM, LOCAL)
    assert not same_ray("127.0.0.1:1234", WARM)


def test_raffed_up_leaves_a_ray_that_stands_ready_as_it_is(noted: Path, cli: Cli) -> None:
    again = cli("up")
    assert again.code == 0
    assert "a Ray stands ready already; runs join it with --address warm" in again.err


@pytest.mark.parametrize(
    ("field", "value", "why"),
    [
        ("python", "/usr/bin/other", "has the Python /usr/bin/other, and this is"),
        ("code", "", "raffed's files have changed since `raffed up`"),
    ],
)
def test_a_ray_whose_workers_hold_other_code_is_refused(
    noted: Path, cli: Cli, field: str, value: str, why: str
) -> None:
    about = json.loads((noted / RECORD).read_text())
    (noted / RECORD).write_text(json.dumps({**about, field: value}))
    with pytest.raises(UsageError, match=why):
        joined_ray()
    assert cli("up").code == 2


@pytest.mark.parametrize("name", ["ATEN_CPU_CAPABILITY", "RAFFED_KERNELS", "CUDA_VISIBLE_DEVICES"])
def test_a_ray_whose_workers_would_compute_otherwise_is_refused(
    noted: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, "x")
    with pytest.raises(UsageError, match=f"{name} is 'x' here and not set in the Ray that stands ready"):
        joined_ray()


def test_variables_that_decide_nothing_may_differ(noted: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAFFED_LOG", "json")
    joined_ray()


def test_a_record_is_believed_only_in_a_folder_of_this_user_alone(noted: Path) -> None:
    noted.chmod(0o755)
    assert standing() is None
    noted.chmod(0o700)
    assert standing() is not None


def test_a_ray_whose_process_was_killed_or_has_ended_is_gone(tmp_path: Path, noted: Path) -> None:
    forget(tmp_path / "another")
    assert standing() is not None
    forget(noted)
    assert standing() is None


HOLDER = """
import sys, time
from pathlib import Path
from raffed.scratch import hold
from raffed.runtime.ray_backend.standing_ray import note
let_go = hold(Path(sys.argv[1]))
note(Path(sys.argv[1]), "127.0.0.1:1234", "secret")
print("ready", flush=True)
time.sleep(60)
"""


def test_raffed_down_ends_the_process_that_holds_it(tmp_path: Path, cli: Cli) -> None:
    (tmp_path / "ray").mkdir(mode=0o700)
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path / "ray")], stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"ready\n"
        assert cli("down").err == "raffed: the Ray has ended\n"
        assert holder.wait(10) != 0
    assert not end_standing()


@pytest.mark.slow
def test_a_run_that_joins_it_has_the_serial_bits_and_raffed_down_leaves_nothing(
    reference: dict[str, dict[str, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # as `shell` sets it
    began = shell("up", fresh=True)
    assert began.returncode == 0, began.stderr
    there = standing()
    assert there is not None
    left = [psutil.Process(there.pid), *psutil.Process(there.pid).children(recursive=True)]
    try:
        program = (
            "import raffed, sys, json; config = raffed.RunConfig.from_dict(json.loads(sys.argv[1]));"
            "print(json.dumps(raffed.run(config).hashes))"
        )
        for method in ("fedavg", "scamap"):
            config = on(small(method), execution="ray", actors=2, address=WARM)
            done = subprocess.run(
                [sys.executable, "-c", program, json.dumps(config.as_dict())],
                capture_output=True,
                text=True,
                check=False,
                timeout=120,
            )
            assert done.returncode == 0, done.stderr
            assert json.loads(done.stdout) == reference[method]
        words = ("--method", "fedavg", "--dataset", "digits", "--split", "p4c5", "--rounds", 2, "--actors", 2)
        asked = shell("run", *words, "--address", "warm", "--out", tmp_path / "run", fresh=True)
        assert asked.returncode == 0, asked.stderr
        alone = shell("run", *words[:-2], "--execution", "serial", "--out", tmp_path / "serial")
        assert alone.returncode == 0, alone.stderr
        assert read_run(tmp_path / "run")["hashes"] == read_run(tmp_path / "serial")["hashes"]
        told = next(part["command"] for part in read_run(tmp_path / "run")["segments"])
        assert told.startswith("raffed run --method fedavg")
    finally:
        ended = shell("down", fresh=True)
    assert ended.returncode == 0
    assert psutil.wait_procs(left, timeout=20)[1] == []
