"""An ingredient may name the types of its memories and messages, and need not.

With the types, mypy finds a field that does not exist. Without them, an own method is checked as well, and
neither `Any` nor `cast` has to be written.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

OWN = """
from torch import Tensor

from raffed.core.context import Context, Forward
from raffed.core.ingredients import Term
from raffed.core.messages import Private
from raffed.core.method import Method
from raffed.core.params import Params


class Last(Private):
    w: Params


class Pull(Term):
    mu: float

    def client_init(self, k: Context) -> Last:
        return Last(k.w0)

    def loss(self, f: Forward, k: Context) -> Tensor:
        return self.mu * (f.w - k.mine.w).sq_norm()

    def finish(self, k: Context) -> tuple[Last, None]:
        return Last(k.w), None


def mine(mu: float = 0.1) -> Method:
    return Method("Mine", terms=(Pull(mu),))
"""
TYPED = OWN.replace("class Pull(Term)", "class Pull(Term[Last])").replace(
    "loss(self, f: Forward, k: Context)", "loss(self, f: Forward, k: Context[Last])"
)
WRONG = TYPED.replace("k.mine.w)", "k.mine.weights)")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "strict", "says"),
    [
        (OWN, False, ""),
        (TYPED, False, ""),
        (TYPED, True, ""),
        (WRONG, False, '"Last" has no attribute "weights"'),
    ],
)
def test_mypy_accepts_an_own_method_and_finds_a_wrong_field(
    text: str, strict: bool, says: str, tmp_path: Path
) -> None:
    file = tmp_path / "own.py"
    file.write_text(text, encoding="utf-8")
    flags = ["--strict"] if strict else []
    command = [sys.executable, "-m", "mypy", "--config-file=", "--follow-imports=silent", *flags, str(file)]
    command += ["--ignore-missing-imports", f"--cache-dir={tmp_path.parent / 'mypy'}"]
    found = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[2])
    if says:
        assert says in found.stdout
    else:
        assert "Success" in found.stdout, found.stdout
