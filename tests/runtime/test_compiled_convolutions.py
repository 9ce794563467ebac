"""Runs with compiled convolutions: where they are refused, and what their bits rest on."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import raffed
from raffed import Data, Federation, Local, Model, Numerics, RunConfig, Runtime
from raffed.core.kernels import convolution
from raffed.errors import UsageError
from raffed.runtime.machine import could_be_compiled
from raffed.runtime.run_method import network_of

needs_kernel = pytest.mark.skipif(not convolution.built, reason="raffed was installed without a C compiler")
OWN = RunConfig(
    data=Data("digits", "iid:8", samples=40, local_test=0.0),
    model=Model("resnet8"),
    local=Local(lr=0.05, batch_size=4, epochs=1.0),
    federation=Federation(rounds=1, participation=0.25),
    numerics=Numerics(convolutions="compiled"),
    runtime=Runtime(execution="serial"),
)


def hashes(config: RunConfig, out: Path | None = None) -> dict[str, str]:
    return dict(raffed.run(config, out).hashes)


@needs_kernel
def test_a_run_has_the_same_bits_again_and_others_than_with_torchs_convolutions(tmp_path: Path) -> None:
    first = hashes(OWN, tmp_path / "a")
    assert raffed.verify(tmp_path / "a").ok  # it executes the round again
    assert hashes(replace(OWN, numerics=Numerics())) != first


def test_without_the_kernel_the_run_is_refused_before_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(convolution, "built", False)
    with pytest.raises(UsageError, match=r"this machine does not have raffed's kernel.*or use 'torch'"):
        raffed.run(OWN)
    plain = replace(OWN, numerics=Numerics())
    assert not could_be_compiled(network_of(plain), False, (1, 8, 8), 10, "float32")
