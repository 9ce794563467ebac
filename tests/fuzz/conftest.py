"""The finished run that fuzzed inputs are copies of."""

from __future__ import annotations

import pytest

import raffed
from raffed.config.run import RunConfig
from tests.fuzz.harness import Source


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Source:
    root = tmp_path_factory.mktemp("fuzz")
    config = RunConfig(
        method="scamap",
        data=raffed.Data(split="iid:3", local_test=0.2),
        model=raffed.Model("mlp", {"hidden": [4]}),
        federation=raffed.Federation(rounds=2),
        runtime=raffed.Runtime(execution="serial"),
    )
    raffed.run(config, root / "run")
    return Source(root / "run", root / "work")
