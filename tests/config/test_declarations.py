"""An argument is declared once, in the signature; every check and every listing reads it there, and so does
mypy in a user's code.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import pytest

from raffed.config.validation import (
    Declaration,
    Doc,
    Length,
    Range,
    Strength,
    Words,
    check_arguments,
    declarations,
)
from raffed.errors import UsageError

Mu = Annotated[float, Range(0.0, 10.0, open_low=True), Doc("μ.")]


def made(
    mu: Mu = 0.5,
    steps: Annotated[int, Range(1)] = 3,
    form: Annotated[Literal["a", "b"], Doc("Form.")] = "a",
    place: Annotated[str, Words("here", "there")] = "here",
    sizes: Annotated[Sequence[int], Length(1, 2), Range(1)] = (8,),
    push: Annotated[float, Strength()] = 1.0,
    share: Annotated[float | None, Range(0.0, 1.0)] = None,
    fast: bool = False,
) -> str:
    return f"{mu} {steps} {form} {place} {share} {fast}"


def test_a_signature_declares_type_default_range_choices_and_meaning() -> None:
    assert list(declarations(made).values()) == [
        Declaration("mu", "float", "0.5", Range(0.0, 10.0, open_low=True), (), "μ."),
        Declaration("steps", "int", "3", Range(1)),
        Declaration("form", "str", "'a'", None, ("a", "b"), "Form."),
        Declaration("place", "str", "'here'", None, ("here", "there"), words=True),
        Declaration("sizes", "list of int", "(8,)", Range(1), length=Length(1, 2)),
        Declaration("push", "float", "1.0", strength=True),
        Declaration("share", "float | None", "None", Range(0.0, 1.0)),
        Declaration("fast", "bool", "False"),
    ]


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("mu", 0.0, r"made: mu = 0\.0 is outside \(0\.0, 10\.0\]"),
        ("mu", True, r"made: mu = True is a bool, but must be a float"),
        ("steps", 0, r"made: steps = 0 is below 1"),
        ("form", "c", r"unknown form 'c'; known: a, b"),
        ("share", 2.0, r"made: share = 2\.0 is outside \[0\.0, 1\.0\]"),
        ("fast", 1, r"made: fast = 1 is an int, but must be a bool"),
        ("place", "here, ther", r"unknown place 'ther'; nearest: there"),
        ("sizes", [8, "8"], r"made: sizes = \[8, '8'\] is a list, but must be a list of int"),
        ("sizes", [], r"made: sizes = \[\] has 0 numbers, but must have 1 to 2"),
        ("sizes", [8, 0], r"made: sizes = \[8, 0\]: 0 is below 1"),
        ("step", 1, r"unknown argument of made 'step'; nearest: steps"),
    ],
)
def test_a_refusal_names_argument_value_and_what_is_wanted(key: str, value: object, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        check_arguments(made, {key: value})


def test_a_list_may_be_a_tuple_and_words_may_be_several_or_none() -> None:
    check_arguments(made, {"mu": 10, "steps": 1, "share": None})  # an int is also a float
    for given in ([1, 2], (1, 2), [3]):
        check_arguments(made, {"sizes": given})
    for words in ("", "here", "there,here", " there , here "):
        check_arguments(made, {"place": words})


def test_without_an_annotation_the_default_says_the_type_and_other_types_are_not_checked() -> None:
    def loose(n=1, sizes: tuple[str, ...] = ("a",)): ...

    with pytest.raises(UsageError, match="loose: n = 'x' is a str, but must be an int"):
        check_arguments(loose, {"n": "x"})
    check_arguments(loose, {"sizes": [1, 2]})


ROOT = Path(__file__).parents[2]
SCRIPT = """
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from torch import Tensor, nn

import raffed
from raffed import Context, Data, Dataset, Federation, Forward, Method, Model
from raffed import Params, Private, RunConfig, Term
from raffed.data.label_splits import Dirichlet


class Last(Private):
    w: Params


class Pull(Term[Last]):
    mu: float

    def loss(self, f: Forward, k: Context[Last]) -> Tensor:
        return self.mu * (f.w - k.mine.w).sq_norm()


@raffed.method(title="Mine")
def mine(mu: float = 0.1) -> Method:
    return Method("Mine", terms=(Pull(mu),))


@raffed.split
def halves(labels: np.ndarray, clients: int = 4) -> Sequence[np.ndarray]:
    return np.array_split(np.arange(len(labels)), clients)


@raffed.loss
def hinge(logits: Tensor, labels: Tensor) -> Tensor:
    return logits.sum()


@raffed.metric(unit="fraction")
def right(scores: Tensor, labels: Tensor) -> float:
    return 1.0


def net(in_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    return nn.Linear(in_shape[0], num_classes)


data = Dataset.from_arrays(np.zeros((4, 2)), np.arange(4) % 2)
config = RunConfig(
    method=mine,
    data=Data(dataset=data, split=halves),
    model=Model(name=net),
    loss=hinge,
    federation=Federation(metrics=[right, "mylab:top2"]),
)
other = replace(config, method=mine, data=Data(split=Dirichlet(4, 0.5)))
name: str = config.method + config.data.dataset + config.data.split + config.model.name + config.loss
"""
WRONG = """import raffed
from script import Last
raffed.RunConfig(method=3)
raffed.Data(split=3)
raffed.Model(name=3.0)
def of(k: raffed.Context[Last]) -> None:
    print(k.mine.weights)
"""


@pytest.mark.slow
def test_a_script_that_gives_objects_passes_mypy_strict_and_numbers_and_unknown_fields_do_not(
    tmp_path: Path,
) -> None:
    (tmp_path / "script.py").write_text(SCRIPT, encoding="utf-8")
    (tmp_path / "wrong.py").write_text(WRONG, encoding="utf-8")
    mypy = [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", "--config-file="]
    found = subprocess.run(
        [*mypy, "--cache-dir", str(tmp_path / "cache"), "script.py", "wrong.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "MYPYPATH": str(ROOT)},
    )
    lines = [line for line in found.stdout.splitlines() if ": error:" in line]
    assert not [line for line in lines if line.startswith("script.py")], found.stdout
    numbers = [line.partition(":")[2].partition(":")[0] for line in lines]
    assert numbers == ["3", "4", "5", "7"], found.stdout
    assert '"Last" has no attribute "weights"' in lines[-1]
