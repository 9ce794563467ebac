"""A cluster whose nodes have the installed wheel and other working folders, and can read neither the project
of the user nor the cache of arrays. Code and arrays travel with the run.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from raffed.results import read_run
from tests.cluster.nodes import ROOT, Cluster
from tests.packaging.clean import CleanEnvironment, built, copied, environment

PROJECT = {
    "fieldlab/__init__.py": "",
    "fieldlab/helpers.py": "def pull(w, w0, mu):\n    return mu / 2 * (w - w0).sq_norm()\n",
    "fieldlab/methods.py": """
from typing import Annotated

from torch import Tensor

from fieldlab.helpers import pull
from raffed import Context, Doc, Forward, Method, Private, Range, Term


class Visits(Private):
    count: Tensor


class Pull(Term[Visits]):
    mu: float

    def client_init(self, k: Context) -> Visits:
        return Visits(k.w0.sq_norm() * 0)

    def loss(self, f: Forward, k: Context) -> Tensor:
        return pull(f.w, k.w0, self.mu)

    def finish(self, k: Context) -> tuple[Visits, None]:
        return Visits(k.mine.count + 1), None


def counting(mu: Annotated[float, Range(0.0, 10.0), Doc("Weight of the pull.")] = 0.1) -> Method:
    return Method("Counting", terms=(Pull(mu),))
""",
    "fieldlab/models.py": """
from torch import nn


class Net(nn.Module):
    def __init__(self, in_shape, num_classes, width=8):
        super().__init__()
        self.one, self.fc = nn.Linear(in_shape[0], width), nn.Linear(width, num_classes)

    def forward(self, x):
        return self.fc(self.one(x).relu())
""",
    "fieldlab/data.py": """
import numpy as np

from raffed import Dataset


def points() -> Dataset:
    draws = np.random.default_rng(0)
    y = np.arange(240) % 3
    x = (draws.normal(size=(240, 5)) + 2 * y[:, None]).astype(np.float32)
    return Dataset.from_arrays(x, y, clients=np.arange(240) // 40, test=0.2)
""",
}
HIDE = """
import pathlib, sys
from raffed.cli import main
from raffed.runtime.ray import launch

planned = launch.make_plan

def plan(*given):
    # From here on only the driver and the actors work: for them project and cache do not exist
    for name in ("fieldlab", "cache"):
        pathlib.Path(name).rename(name + ".hidden")
    return planned(*given)

launch.make_plan = plan
main(sys.argv[1:])
"""
SAID = [
    *("run", "--method", "fieldlab.methods:counting", "--model", "fieldlab.models:Net"),
    *("--dataset", "fieldlab.data:points", "--split", "natural", "--rounds", "3", "--epochs", "1", "--quiet"),
]


@pytest.fixture
def clean(tmp_path: Path) -> CleanEnvironment:
    (tmp_path / "wheel").mkdir()
    return environment(tmp_path, built(copied(tmp_path / "wheel")))


@pytest.fixture
def lab(tmp_path: Path) -> Path:
    for name, text in PROJECT.items():
        path = tmp_path / "lab" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return tmp_path / "lab"


def called(clean: CleanEnvironment, lab: Path, variables: dict[str, str], *words: str) -> str:
    settings = {**clean.variables, **variables, "RAFFED_CACHE": str(lab / "cache"), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [str(clean.python), *words],
        cwd=lab,
        env=settings,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
def test_own_method_model_and_data_run_on_nodes_that_have_the_wheel_alone(
    clean: CleanEnvironment, lab: Path, tmp_path: Path
) -> None:
    where = called(clean, lab, {}, "-c", "import raffed, json; print(json.dumps(list(raffed.__path__)))")
    [installed] = json.loads(where)
    assert str(ROOT) not in installed
    called(clean, lab, {}, "-m", "raffed", *SAID, "--execution", "serial", "--out", "serial")
    elsewhere = tmp_path / "elsewhere"
    with Cluster(workers=1, python=clean.python, variables={"RAFFED_CACHE": str(elsewhere)}) as cluster:
        token = {name: value for name, value in cluster.environment.items() if name.startswith("RAY_")}
        at = ["--clients-per-actor", "3", "--address", cluster.gcs_address, "--out", "there"]
        called(clean, lab, token, "-c", HIDE, *SAID, *at)
    about = read_run(lab / "there")
    assert len({place["node"] for place in about["placement"]["places"]}) == 2
    assert about["hashes"] == read_run(lab / "serial")["hashes"]
    assert about["data_sha256"] == read_run(lab / "serial")["data_sha256"]
    assert not elsewhere.exists()
    assert not (lab / "fieldlab").exists()
