"""A split of one's own: a function of labels by reference, checked, recorded and drawn again."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import raffed
from raffed import Data
from raffed.data.label_splits import Dirichlet
from raffed.data.partition import make_partition
from raffed.data.splits import parse_split, split_name
from raffed.errors import UsageError
from raffed.own.resolve import load
from raffed.testing import check, check_split
from tests.cli.conftest import Cli
from tests.own.own_code import BASE, write

LABELS = np.arange(120) % 10


@pytest.fixture(autouse=True)
def mylab(lab: Path) -> Path:
    write(lab)
    return lab


def divided(text: str, seed: int = 0, owners: np.ndarray | None = None, **args: float) -> list[np.ndarray]:
    made = make_partition(parse_split(text, args), LABELS, 10, owners, seed, local_test=0.0)
    return list(made.train)


def test_a_function_divides_the_labels_with_arguments_of_its_own() -> None:
    assert [len(one) for one in divided("./mylab.py:halves")] == [60, 20, 20, 20]
    assert [len(one) for one in divided("mylab:halves", clients=3, share=0.25)] == [30, 45, 45]
    parts = divided("./mylab.py:by_class")
    assert [set(LABELS[one]) for one in parts] == [{one} for one in range(10)]
    assert parse_split("./mylab.py:halves", {"clients": 7}).client_count == 7
    assert [len(one) for one in divided("./mylab.py:everybody")] == [120] * 3  # which its mark allows
    (Path.cwd() / "boom.py").write_text("raise SystemExit(3)\n", encoding="utf-8")
    assert split_name(" ./boom.py:f ") == "./boom.py:f"  # a name is checked without importing the file


def test_the_seed_decides_and_nothing_else_does() -> None:
    one, two, other = (divided("./mylab.py:halves", seed) for seed in (3, 3, 4))
    assert all(np.array_equal(a, b) for a, b in zip(one, two, strict=True))
    assert not all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


def test_natural_clients_are_given_to_a_function_that_asks_for_them() -> None:
    assert [len(one) for one in divided("./mylab.py:owners_of", owners=LABELS // 5)] == [60, 60]
    with pytest.raises(UsageError, match="needs the natural clients"):
        divided("./mylab.py:owners_of")


def test_a_subclass_of_split_and_objects_are_splits_too(mylab: Path) -> None:
    lumps = load("./mylab.py:Lumps")
    assert [len(one) for one in divided("./mylab.py:Lumps", clients=4)] == [30] * 4
    assert Data(split=lumps(5)) == Data(split="./mylab.py:Lumps", split_args={"clients": 5})
    assert Data(split=Dirichlet(10, 0.5)) == Data(split="dirichlet:10:0.5")


def test_check_recognises_a_split_by_its_parameters_and_finds_what_is_wrong(mylab: Path) -> None:
    assert check("./mylab.py:halves", {"clients": 3}).ok
    assert check("./mylab.py:halves").kind == check("./mylab.py:Lumps").kind == "split"
    (mylab / "bad.py").write_text(
        "import numpy as np\n\ndef bad(labels, clients=3):\n"
        "    return np.array_split(np.random.permutation(len(labels)), clients)\n",
        encoding="utf-8",
    )
    failed = {one.name for one in check_split("./bad.py:bad").failed}
    assert failed == {"same-twice", "no-global-generator"}


DRAWS = {
    "NumPy's": "np.random.permutation(len(labels))",
    "Python's": "random.sample(range(len(labels)), len(labels))",
    "torch's": "torch.randperm(len(labels)).numpy()",
    "one of no seed": "np.random.default_rng().permutation(len(labels))",
}


@pytest.mark.parametrize(
    ("whose", "named"), [("NumPy's", "labels"), *((whose, "labels, rng") for whose in DRAWS)]
)
def test_a_function_that_draws_from_another_generator_than_rng_is_refused_before_training(
    mylab: Path, cli: Cli, whose: str, named: str
) -> None:
    (mylab / "bad.py").write_text(
        "import random\nimport numpy as np\nimport torch\n\n"
        f"def bad({named}, clients=3):\n    return np.array_split({DRAWS[whose]}, clients)\n",
        encoding="utf-8",
    )
    done = cli("run", "--split", "./bad.py:bad", "--rounds", 1, "--execution", "serial", "--out", "run")
    assert done.code == 2
    said = " ".join(done.err.split())
    assert f"{mylab / 'bad.py'}:5: ./bad.py:bad must draw from" in said
    assert ("its argument `rng` only" if "rng" in named else "an argument `rng`, which it must name") in said
    assert not (mylab / "run").exists()
    why = {one.name: one.why for one in check_split("./bad.py:bad").failed}
    assert "`rng`" in why["same-twice"]


def test_a_subclass_that_draws_from_a_global_generator_is_refused_with_its_file_and_line(mylab: Path) -> None:
    (mylab / "bad.py").write_text(
        "from dataclasses import dataclass\nimport numpy as np\nfrom raffed.data.splits import Split\n\n"
        "@dataclass(frozen=True)\nclass Bad(Split):\n    name, syntax, meaning = 'bad', 'bad', 'draws'\n"
        "    def divide(self, labels, seed, num_classes=None):\n"
        "        return np.array_split(np.random.permutation(len(labels)), 3)\n",
        encoding="utf-8",
    )
    with pytest.raises(UsageError, match=r"bad\.py:\d+: Bad must draw from stream\(seed, PURPOSE\) only"):
        divided("./bad.py:Bad")


def test_a_split_that_depends_on_more_than_its_seed_is_named_and_not_the_data(
    mylab: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    (mylab / "odd.py").write_text(
        "import os\nimport numpy as np\n\ndef odd(labels):\n"
        "    return np.array_split(np.roll(np.arange(len(labels)), int(os.environ['SHIFT'])), 3)\n",
        encoding="utf-8",
    )
    monkeypatch.setenv("SHIFT", "0")
    config = BASE.changed(
        {"data.split": "./odd.py:odd", "federation.rounds": 3, "runtime.execution": "serial"}
    )
    next(rounds := raffed.iterate(config, out="run"))
    rounds.close()
    monkeypatch.setenv("SHIFT", "1")
    refused = cli("resume", "run")
    assert refused.code == 2
    message = " ".join(refused.err.split())
    assert "the labels are the same, so the split has drawn other lists" in message
    assert f"{mylab / 'odd.py'}:4: ./odd.py:odd must draw from an argument `rng`" in message
    assert "data have changed" not in message


def test_splits_shows_one_of_ones_own(cli: Cli) -> None:
    assert "package.module:NAME" in cli("splits").out
    shown = cli("splits", "./mylab.py:halves", "--split-arg", "clients=3")
    assert shown.code == 0
    assert "./mylab.py:halves (clients=3)" in shown.out
