"""A run that is verified on another machine: what of the machine may explain other bits is named."""

from __future__ import annotations

from pathlib import Path

import pytest

import raffed
from raffed.runs.verify import verify
from tests.runtime.conftest import small


def test_other_vector_instructions_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    raffed.run(small(rounds=1), tmp_path / "run")
    assert verify(tmp_path / "run").differs == ()
    monkeypatch.setattr("raffed.runs.verify.hardware", lambda: {"vectors": "ABACUS", "system": "other"})
    (said,) = verify(tmp_path / "run").differs
    assert said.startswith("vectors ")
    assert said.endswith(" → ABACUS")
