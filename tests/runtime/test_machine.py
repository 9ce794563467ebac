"""Memory that a step frees is there for the next step; what the processor is, has and is best served by."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

from raffed.budget import free_memory
from raffed.errors import UsageError
from raffed.runs.record import hardware
from raffed.runtime.machine import (
    bf16_in_hardware,
    deterministic_kernels,
    kernels_enabled,
    onednn_is_faster,
)


@pytest.mark.skipif(
    not hasattr(torch.ops.mkldnn, "_linear_pointwise"), reason="this torch is built without oneDNN"
)
@pytest.mark.parametrize(
    ("maker", "vectors", "wanted"),
    [("AuthenticAMD", "AVX512", True), ("AuthenticAMD", "AVX2", False), ("GenuineIntel", "AVX512", False)],
)
def test_onednn_is_for_long_vectors_of_other_makers_than_mkl_s(
    maker: str, vectors: str, wanted: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cpuinfo").write_text(f"processor : 0\nvendor_id : {maker}\n")
    monkeypatch.setattr(torch.backends.mkl, "is_available", lambda: True)
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: vectors)
    assert onednn_is_faster(str(tmp_path / "cpuinfo")) is wanted
    assert not onednn_is_faster(str(tmp_path / "none"))
    monkeypatch.setattr(
        torch.backends.mkl, "is_available", lambda: False
    )  # another library, not known to be slow
    assert not onednn_is_faster(str(tmp_path / "cpuinfo"))


@pytest.mark.parametrize(
    ("flags", "has"),
    [
        ("fpu amx_bf16 amx_tile", True),
        ("avx512f avx512_bf16", True),
        ("Features : asimd bf16", True),
        ("avx2 avx512f fma", False),
    ],
)
def test_bf16_is_in_hardware_where_the_processor_s_flags_say_so(
    flags: str, has: bool, tmp_path: Path
) -> None:
    (tmp_path / "cpuinfo").write_text(f"model name : x\nflags : {flags}\n")
    assert bf16_in_hardware(str(tmp_path / "cpuinfo")) is has
    assert bf16_in_hardware(str(tmp_path / "none")) is None


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


def test_on_a_gpu_kernels_are_the_deterministic_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """What can be told without a GPU: that torch is asked for them, and that a choice of the user's for
    cuBLAS stays.
    """
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    was = torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark
    assert not torch.are_deterministic_algorithms_enabled()  # no run on a CPU asks for it
    try:
        deterministic_kernels()
        assert (torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark) == (True, False)
        assert torch.are_deterministic_algorithms_enabled()
        assert torch.is_deterministic_algorithms_warn_only_enabled()
        assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8"
        monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":16:8")
        deterministic_kernels()
        assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":16:8"
    finally:
        torch.use_deterministic_algorithms(False)
        torch.utils.deterministic.fill_uninitialized_memory = True
        torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = was


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
