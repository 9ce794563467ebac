"""Runs of own methods with a fault: what they say, and how they end."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import QUICK, Cli

FILE = """
from raffed import Method, ServerRule, Term
class Constant(Term):
    def loss(self, f, k):
        return k.w0.sq_norm()
class Late(Term):
    def loss(self, f, k):
        return f.logits.square().mean() if k.round else f.logits.new_zeros(())
class Nan(ServerRule):
    def step(self, own, w, mean, k):
        return None, mean * (float("nan") if k.round == 1 else 1.0)
def constant() -> Method: return Method("Constant", terms=(Constant(),))
def late() -> Method: return Method("Late", terms=(Late(),))
def nan() -> Method: return Method("Nan", server=Nan())
"""


@pytest.fixture
def faults(lab: Path) -> Path:
    (lab / "faults.py").write_text(FILE.lstrip(), encoding="utf-8")
    return lab


@pytest.mark.parametrize(("name", "warned"), [("constant", 1), ("late", 0)])
def test_a_run_warns_once_of_a_term_that_never_had_a_gradient(
    faults: Path, cli: Cli, name: str, warned: int
) -> None:
    done = cli("run", "--method", f"./faults.py:{name}", *QUICK, "--rounds", "2", "--out", "a")
    assert done.code == 0
    assert (done.out + done.err).count("faults.py:3: Constant has had no gradient at any client") == warned


def test_a_server_that_makes_nan_in_the_last_round_ends_with_exit_code_1(faults: Path, cli: Cli) -> None:
    done = cli("run", "--method", "./faults.py:nan", *QUICK, "--rounds", "2", "--out", "a")
    assert done.code == 1
    assert "the server's state after round 2 has diverged (the model)" in done.err
    assert "faults.py:9, Nan.step" in done.err
