"""A user's folder with a method of their own, and what this process imported from it forgotten afterwards."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import cli

__all__ = ["cli"]

PROX = """
from typing import Annotated

from torch import Tensor

import raffed
from raffed import Context, Doc, Forward, Method, Private, Range, Term

class Rounds(Private):
    count: Tensor

class Pull(Term[Rounds]):
    mu: float

    def client_init(self, k: Context) -> Rounds:
        return Rounds(k.w0.sq_norm() * 0)

    def loss(self, f: Forward, k: Context) -> Tensor:
        return self.mu / 2 * (f.w - k.w0).sq_norm()

    def finish(self, k: Context) -> tuple[Rounds, None]:
        return Rounds(k.mine.count + 1), None


@raffed.method(title="MyProx", source="my thesis", space={"mu": [0.01, 0.1]})
def myprox(mu: Annotated[float, Range(0.0, 10.0), Doc("Weight of the pull.")] = 0.1) -> Method:
    "My own pull to the downloaded weights."
    return Method("MyProx", terms=(Pull(mu),))


def plain(mu=0.1):
    return Method("Plain", terms=(Pull(mu),))


NUMBER = 3
"""


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    known = set(sys.modules)
    (tmp_path / "prox.py").write_text(textwrap.dedent(PROX).lstrip("\n"), encoding="utf-8")
    yield tmp_path
    for name in set(sys.modules) - known:
        if name.startswith("raffed_file_") or str(tmp_path) in str(
            getattr(sys.modules[name], "__file__", "")
        ):
            del sys.modules[name]
