"""Memory that a step frees is there for the next step; what the processor is, has and is best served by."""

from __future__ import annotations

from pathlib import Path

import pytest

from raffed.budget import free_memory
from raffed.errors import UsageError
from raffed.runs.record import hardware
from raffed.runtime.machine import kernels_enabled


def test_free_memory_is_what_the_machine_has_within_the_containers_limit(tmp_path: Path) -> None:
    """Of 8 GB free on the machine, a container of 2 GB that uses 1.5, 0.3 of them file cache, has 0.8."""
    meminfo, v2, v1 = tmp_path / "meminfo", tmp_path / "v2", tmp_path / "v1"
    meminfo.write_text("MemTotal: 16000000 kB\nMemAvailable: 8000000 kB\n")
    v2.mkdir()
    (v1 / "memory").mkdir(parents=True)
    for folder, limit, used, cache in (
        (v2, "memory.max", "memory.current", "inactive_file"),
        (v1 / "memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    ):
        (folder / limit).write_text("2000000000\n")
        (folder / used).write_text("1500000000\n")
        (folder / "memory.stat").write_text(f"anon 1200000000\n{cache} 300000000\n")
    assert free_memory(str(meminfo), str(v2)) == free_memory(str(meminfo), str(v1)) == 0.8e9
    (v2 / "memory.max").write_text("max\n")
    assert free_memory(str(meminfo), str(v2)) == free_memory(str(meminfo), str(tmp_path / "none")) == 8.192e9
    (v2 / "memory.max").write_text("1000000000\n")
    assert free_memory(str(meminfo), str(v2)) == 0.0
    assert free_memory(str(tmp_path / "none")) is None


def test_kernels_are_on_unless_the_variable_says_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAFFED_KERNELS", raising=False)
    assert kernels_enabled()
    assert "kernels" not in hardware()
    monkeypatch.setenv("RAFFED_KERNELS", "off")
    assert not kernels_enabled()
    assert hardware()["kernels"] == "off"
    monkeypatch.setenv("RAFFED_KERNELS", "no")
    with pytest.raises(UsageError, match=r"RAFFED_KERNELS = 'no': it can be 'on' \(the default\) or 'off'"):
        kernels_enabled()
