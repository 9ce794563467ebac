"""Client actors that Ray pins to half a GPU each, with their clients on a device: the bits of one process
on the CPU.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import raffed
from tests.runtime.conftest import small


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fedmr", "scamap", "feddf", "creff"])
def test_two_actors_of_half_a_gpu_have_the_bits_of_one_process(method: str, tmp_path: Path) -> None:
    """In a process of its own: it tells Ray of a GPU, and torch of a device. What the actors answer must
    do without either.
    """
    command = [sys.executable, "-m", "tests.devices.on_ray", method, str(tmp_path / "run")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["num_gpus"] == 0.5
    found = [
        (place["assigned"], place["device"], place["gpus"], place["visible"]) for place in told["places"]
    ]
    assert found == [("cuda", "elsewhere:0", ["0"], "0")] * 2
    assert told["hashes"] == raffed.run(small(method), tmp_path / "serial").hashes
