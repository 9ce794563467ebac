"""Memory that a step frees is there for the next step."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys

import pytest

from raffed.runtime.process import OWN

STEPS = """
import json, resource
import numpy as np
from raffed.runtime.process import keep_freed_memory

def faults(steps=10):  # of a step whose 32 arrays of 2 MiB, too small for huge pages, are written and then freed
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(steps):
        kept = [np.ones(1 << 18) for _ in range(32)]
        del kept
    return (resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) / steps

faults(2)
before, done = faults(), keep_freed_memory()
faults(2)
print(json.dumps([before, done, faults()]))
"""
PAGES = 32 * (2 << 20) // os.sysconf("SC_PAGE_SIZE")
glibc = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another allocator")


def measured(**environment: str) -> tuple[float, bool, float]:
    kept = {name: value for name, value in os.environ.items() if name not in OWN}
    done = subprocess.run([sys.executable, "-c", STEPS], check=True, capture_output=True, text=True, env={**kept, **environment})
    before, told, after = json.loads(done.stdout)
    return before, told, after


@glibc
def test_a_step_faults_its_memory_in_again_until_freed_memory_is_kept() -> None:
    before, told, after = measured()
    assert told
    assert before > PAGES / 2
    assert after < PAGES / 50


@glibc
def test_who_has_set_the_allocator_keeps_the_setting() -> None:
    before, told, after = measured(MALLOC_TRIM_THRESHOLD_="1048576")
    assert not told
    assert before > PAGES / 2
    assert after > PAGES / 2
