"""Workers of an own Ray are forked from a process that has imported torch, unless something is against it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from raffed.errors import UsageError
from raffed.results.runfile import read_run
from raffed.runtime.ray_backend.own_ray import QUIET_RAY
from raffed.runtime.ray_backend.warm_fork import OF_RAY
from raffed.runtime.ray_backend.warm_workers import WarmWorkers, are_forked
from tests.runtime.conftest import on, small
from tests.runtime.ray_backend.test_warm_process import until_ended

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="workers are forked on Linux only")


def test_that_the_process_cannot_import_torch_is_one_line_of_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "torch.py").write_text("raise ImportError('libcudart.so.13 is missing.')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    workers, others = WarmWorkers(), set(psutil.Process().children())
    workers.begin(tmp_path)
    with workers.used():
        (process,) = set(psutil.Process().children()) - others
        until_ended(process)
    workers.end()
    (record,) = caplog.records
    assert record.getMessage() == (
        "Ray's workers are not forked from a process that has imported torch: ImportError: libcudart.so.13 "
        "is missing. Each imports it itself, which takes more time and memory and changes no result; "
        "RAFFED_WARM_WORKERS=off avoids this message"
    )


def test_the_switch_is_on_or_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAFFED_WARM_WORKERS", "off")
    assert not are_forked()
    monkeypatch.setenv("RAFFED_WARM_WORKERS", "no")
    with pytest.raises(UsageError, match="RAFFED_WARM_WORKERS = 'no': it can be 'on'"):
        are_forked()


def test_a_variable_that_only_ray_reads_keeps_no_worker_from_being_forked() -> None:
    """The process is started before these variables are set, so a worker has others than it."""
    assert [name for name in QUIET_RAY if not name.startswith(OF_RAY)] == []


@pytest.mark.usefixtures("ray_here")
def test_workers_of_an_own_ray_begin_with_torch_and_with_random_numbers_of_their_own() -> None:
    import ray

    @ray.remote(num_cpus=0)
    class Worker:
        def looks(self) -> tuple[bool, str, float, float, float]:
            import random

            loaded = "torch" in sys.modules
            import numpy as np
            import torch

            try:
                torch.zeros(1, device="cuda")
                refused = ""
            except (RuntimeError, AssertionError) as error:  # there is no GPU here
                refused = str(error)
            drawn = random.random(), np.random.standard_normal(), torch.rand(1).item()  # noqa: NPY002
            return loaded, refused, *drawn

    workers = [Worker.remote() for _ in range(2)]  # type: ignore[attr-defined]  # a name that Ray adds
    first, second = ray.get([one.looks.remote() for one in workers])
    assert first[0]
    assert "forked subprocess" not in first[1]  # as torch says if its parent has initialised CUDA
    assert not set(first[2:]) & set(second[2:])


KILLED = """
import json, os, psutil, raffed, signal, sys
from pathlib import Path
from raffed.results.runfile import read_run

def kill(event):
    if event.round == 1:  # early, because the driver does not wait for whoever watches
        (warm,) = [one for one in psutil.Process().children() if "warm_process" in " ".join(one.cmdline())]
        warm.kill()
        os.kill(read_run(Path("run"))["placement"]["places"][0]["pid"], signal.SIGKILL)

config = raffed.RunConfig.from_dict(json.loads(sys.argv[1]))
print(json.dumps(raffed.run(config, "run", watch=kill).hashes))
"""


@pytest.mark.slow
def test_a_run_goes_on_to_the_serial_bits_when_the_process_is_killed_and_an_actor_as_well(
    reference: dict[str, dict[str, str]], tmp_path: Path
) -> None:
    """The actor that replaces the other one starts as always."""
    config = on(small(), execution="ray", actors=2)
    done = subprocess.run(
        [sys.executable, "-c", KILLED, json.dumps(config.as_dict())],
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == reference["scamap"]
    assert read_run(tmp_path / "run")["placement"]["restarts"] == 1
