"""Inputs of a network: ids beyond its rows are refused before training, and a finished run says how its
inputs were made, so that its model can be used on new rows and images.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import raffed
from raffed import Data, Federation, Local
from raffed.errors import UsageError
from raffed.runs.record import SavedInputs
from tests.cli.conftest import Cli, cli
from tests.tiny import digits

CONFIG = digits(hidden=4, local=Local(epochs=1), federation=Federation(rounds=1))


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RAFFED_CACHE", str(tmp_path / "cache"))


def finished(dataset: str, split: str = "iid:2") -> Path:
    raffed.run(replace(CONFIG, data=Data(dataset=dataset, split=split, local_test=0.2)), out="run")
    return Path("run")


def table(rows: range) -> str:
    lines = [f"{n / 7},{('red', 'blue', 'green')[n % 3]},{'xy'[n % 2]},{'ab'[n % 3 > 1]}" for n in rows]
    return "size,tint,y,site\n" + "\n".join(lines) + "\n"


def test_new_rows_are_encoded_with_the_numbers_of_the_training_rows() -> None:
    Path("t.csv").write_text(table(range(30)))
    Path("new.csv").write_text("tint,size\nblue,3.5\nblack,0\n")
    run = finished("csv:t.csv?label=y&client=site&test=0", "natural")
    inputs = SavedInputs.load(run)
    sizes = np.arange(30) / 7
    wanted = (np.array([3.5, 0.0]) - sizes.mean()) / sizes.std()
    found = inputs.rows("new.csv")
    assert found[:, 0].tolist() == pytest.approx(wanted.tolist(), abs=1e-6)
    assert found[:, 1:].tolist() == [[1, 0, 0], [0, 0, 0]]  # blue, and a tint that was never seen
    assert (inputs.class_names, inputs.facts.client_names) == (("x", "y"), ("a", "b"))
    assert (inputs.facts.label, inputs.facts.client) == ("y", "site")
    with pytest.raises(UsageError, match=r"column of .* for the model 'tint'"):
        inputs.rows({"size": [1.0]})
    with pytest.raises(UsageError, match="not images"):
        inputs.images(["a.png"])


def test_new_rows_miss_values_by_the_words_and_the_rule_of_the_run() -> None:
    """A run of before these were kept has the usual words and no rule."""
    rows = [f"{-999 if n % 9 == 4 else n / 7},{('None', 'blue', '')[n % 3]},{'xy'[n % 2]}" for n in range(30)]
    Path("t.csv").write_text("size,tint,y\n" + "\n".join(rows) + "\n")
    place = "csv:t.csv?label=y&na=-999&missing=mean&test=0"
    run = finished(place)
    inputs = SavedInputs.load(run)
    assert np.array_equal(inputs.rows("t.csv"), raffed.Dataset.load(place).x)
    new = {"size": [np.nan, np.nan], "tint": ["None", None]}
    assert inputs.rows(new).tolist() == [[0, 1, 0, 0], [0, 0, 0, 1]]  # the mean; None, blue, missing
    about = json.loads((run / "run.json").read_text())
    assert (about["dataset"].pop("na"), about["dataset"].pop("missing")) == (["-999"], "mean")
    Path("old.json").write_text(json.dumps(about))
    old = SavedInputs.load("old.json")
    assert old.rows({"size": [50.0], "tint": ["blue"]}).shape == (1, 4)
    with pytest.raises(UsageError, match=r"column 'size' has 2 missing values.*column 'tint' 1"):
        old.rows(new)


def test_an_export_brings_the_same_and_the_run_is_verified() -> None:
    Path("t.csv").write_text(table(range(30)))
    run = finished("csv:t.csv?label=y")
    assert raffed.export(run, "model.pt") == [Path("model.pt"), Path("model.json")]
    assert SavedInputs.load("model.json") == SavedInputs.load(run)
    held = json.loads(Path("model.json").read_text())
    assert held["dataset"]["class_names"] == ["x", "y"]
    assert raffed.verify(run).ok
    with pytest.raises(UsageError, match=r"model\.json exists already"):
        raffed.export(run, "model.onnx.pt", onnx="model.onnx")


def test_new_images_are_prepared_as_those_of_the_run() -> None:
    draws = np.random.RandomState(0)
    for label, number in np.ndindex(2, 5):
        folder = Path("pictures") / ("cat", "dog")[label]
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(draws.randint(0, 256, (6, 9, 3)).astype(np.uint8)).save(folder / f"{number}.png")
    inputs = SavedInputs.load(finished("folder:pictures?size=8&test=0"))
    files = sorted(Path("pictures").rglob("*.png"))
    stored = raffed.Dataset.load("folder:pictures?size=8&test=0").x
    assert torch.equal(inputs.images(files), torch.from_numpy(stored.astype(np.float32)) / 255)
    assert inputs.class_names == ("cat", "dog")


__all__ = ["cli"]

NET = """
from torch import nn

class Bag(nn.Module):
    def __init__(self, num_classes):
        super().__init__()
        self.words = nn.Embedding(50, 8)
        self.fc = nn.Linear(8, num_classes)

    def forward(self, x):
        return self.fc(self.words(x).mean(1))
"""


@pytest.mark.parametrize(
    ("training", "test", "refused"),
    [
        (49, 49, ""),
        (49, 50, "id 50, the largest of the test part"),
        (50, 4, "id 50, the largest of the training"),
    ],
)
def test_ids_beyond_the_rows_of_an_embedding_are_refused_before_training(
    training: int, test: int, refused: str, cli: Cli, tmp_path: Path
) -> None:
    Path("net.py").write_text(NET, encoding="utf-8")
    rng = np.random.default_rng(0)
    parts = {}
    for name, largest in {"": training, "_test": test}.items():
        parts[f"x{name}"] = rng.integers(0, largest, (40, 6))
        parts[f"x{name}"][17, 3] = largest
        parts[f"y{name}"] = np.arange(40) % 2
    np.savez("words.npz", **parts)
    done = cli("run", "--dataset", "npz:words.npz", "--split", "iid:2", "--rounds", 1, "--epochs", 1,
               "--model", "./net.py:Bag", "--execution", "serial", "--quiet", "--out", "run")  # fmt: skip
    assert done.code == (2 if refused else 0), done.err
    assert refused in done.err
    assert ("IndexError: index out of range" in done.err) is bool(refused)
    assert (tmp_path / "run").exists() is not bool(refused)
