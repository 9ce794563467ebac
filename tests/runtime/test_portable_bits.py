"""Portable bits: one result on every x86-64 processor with AVX2, in this process and in actors.

Other processors are emulated by qemu-user. It computes estimates such as rsqrtps differently from every real
processor, so a function that depends on them shows here as well.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch

from raffed import Numerics
from raffed.config.portable import flags_of, variables
from raffed.errors import UsageError
from raffed.runtime.machine import begin_bits
from tests.cluster.nodes import Cluster
from tests.runtime.conftest import ROOT
from tests.runtime.portable_federations import FEDERATIONS

QEMU = shutil.which("qemu-x86_64")
avx2 = pytest.mark.skipif("avx2" not in flags_of(), reason="this processor has no AVX2")
SCRIPT = ("-m", "tests.runtime.portable_federations", "portable")
RUN = [sys.executable, "-m", "raffed", "run", "--method", "map", "--split", "iid:3", "--rounds", "2"]
RUN += ["--numerics", "portable", "--execution", "serial"]

IN_ONE_PROCESS = """
import json, sys
import raffed

raffed.portable()
loaded = [name for name in ("numpy", "torch") if name in sys.modules]
config = raffed.RunConfig(
    method="map",
    data=raffed.Data("digits", "iid:3"),
    federation=raffed.Federation(rounds=1),
    numerics=raffed.Numerics(bits="portable"),
    runtime=raffed.Runtime(execution="serial"),
)
result = raffed.run(config, sys.argv[1])
certificate = raffed.verify(sys.argv[1])
import torch

x = torch.arange(1, 20001) / 7000
exact = x.double() ** 0.5  # rounded to float32 once more, which keeps a root correctly rounded
roots = {
    "sqrt": torch.sqrt(x), "sqrt_": x.clone().sqrt_(), "out": torch.sqrt(x, out=torch.empty(0)),
    "power": x**0.5, "power_": x.clone().pow_(0.5), "foreach": torch._foreach_sqrt([x])[0],
    "vmap": torch.func.vmap(torch.sqrt)(x.view(100, 200)).flatten(),
}
slope = torch.func.grad(lambda v: v.sqrt().sum())(x)
a, b, c = (torch.rand(shape, requires_grad=True) for shape in ((64, 80), (80, 90), (90,)))
made = torch.from_numpy(a.detach().numpy() @ b.detach().numpy())
upper = torch.rand(64, 90)
torch.addmm(c, a, b).backward(upper)
products = {
    "mm": torch.equal(torch.mm(a, b), made),
    "linear": torch.equal(torch.nn.functional.linear(a, b.mT, c), made + c),
    "vmap": torch.equal(torch.func.vmap(torch.matmul)(a.expand(3, 64, 80), b.expand(3, 80, 90))[2], made),
    "stack": torch.equal(torch.baddbmm(c, a.expand(3, 64, 80), b.expand(3, 80, 90))[0], made + c),
    "gradient": torch.equal(b.grad, torch.from_numpy(a.detach().numpy().T @ upper.numpy())),
    "double": torch.allclose(torch.addmm(c, a, b, beta=2, alpha=3), 2 * c + 3 * made),
}
try:
    torch.mm(torch.rand(400, 400), torch.rand(401, 400))
except RuntimeError:
    products["refused"] = True
print(json.dumps({
    "loaded": loaded,
    "vectors": torch.backends.cpu.get_cpu_capability(),
    "ok": certificate.ok,
    "notes": certificate.notes,
    "inexact": [name for name, root in roots.items() if not torch.equal(root, exact.float())],
    "slope": torch.equal(slope, 1 / (2 * roots["sqrt"])),
    "products": products,
    "others": [bool(torch.equal(x**3, x * x * x)), torch.sqrt(torch.tensor([-1 + 0j])).tolist()[0].imag],
}))
"""


def printed(command: Sequence[object], **environment: str) -> list[str]:
    """Lines that a command prints in the repository's root; the test fails if the command does."""
    done = subprocess.run(
        [str(word) for word in command],
        cwd=ROOT,
        env={**os.environ, "COLUMNS": "200", **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.more
@avx2
def test_a_portable_process_computes_exact_roots_and_numpys_products_and_its_run_is_verified(
    tmp_path: Path,
) -> None:
    found = json.loads(printed([sys.executable, "-c", IN_ONE_PROCESS, tmp_path / "a"])[-1])
    assert found.pop("notes")[0].startswith("these bits hold on every x86-64 processor with AVX2")
    assert found == {
        "loaded": [],
        "vectors": "AVX2",
        "ok": True,
        "inexact": [],
        "slope": True,
        "products": dict.fromkeys(("mm", "linear", "vmap", "stack", "gradient", "double", "refused"), True),
        "others": [True, 1.0],
    }


@pytest.mark.parametrize(
    ("vectors", "mkl", "blas", "reason"),
    [
        ("AVX512", True, "scipy-openblas", "torch uses AVX512 in this process"),
        ("AVX2", False, "scipy-openblas", "built without one of them"),
        ("AVX2", True, "mkl-sdl", "this NumPy was built with another library"),
    ],
)
def test_a_torch_or_numpy_that_computes_other_bits_is_refused_with_the_reason(
    monkeypatch: pytest.MonkeyPatch, vectors: str, mkl: bool, blas: str, reason: str
) -> None:
    for name, value in variables().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: vectors)
    monkeypatch.setattr(torch.backends.mkl, "is_available", lambda: mkl)
    built = {"Build Dependencies": {"blas": {"name": blas}}}
    monkeypatch.setattr(np, "show_config", lambda mode: built)
    with pytest.raises(UsageError, match=reason):
        begin_bits(Numerics(bits="portable"))


@pytest.fixture(scope="module")
def here() -> list[str]:
    """Every federation of portable_federations.py with its hashes of weights, client states and rows."""
    found = printed([sys.executable, *SCRIPT])
    assert [json.loads(line)[0] for line in found] == list(FEDERATIONS)
    return found


@pytest.mark.slow
@avx2
@pytest.mark.skipif(QEMU is None, reason="qemu-user is not installed")
@pytest.mark.parametrize("processor", ["Haswell", "EPYC-Rome", "Skylake-Client"])
def test_every_federation_has_the_same_hashes_on_an_emulated_processor(
    processor: str, here: list[str]
) -> None:
    """The emulated Python finds modules as this process does."""
    path = os.pathsep.join([str(ROOT), *sys.path])
    command = [QEMU, "-cpu", processor, os.path.realpath(sys.executable), *SCRIPT]
    assert printed(command, PYTHONPATH=path) == here


def hashes_of(run: Path) -> object:
    return json.loads((run / "run.json").read_text())["hashes"]


@pytest.mark.slow
@avx2
def test_actors_of_an_own_ray_and_of_a_cluster_compute_the_bits_of_one_process(tmp_path: Path) -> None:
    """The cluster's nodes were started without the environment, which travels with the job."""
    printed([*RUN, "--out", tmp_path / "serial"])
    on_ray = [*RUN, "--execution", "ray"]
    printed([*on_ray, "--actors", "2", "--out", tmp_path / "ray"])
    with Cluster(workers=0) as cluster:
        words = ["--address", cluster.gcs_address, "--out", tmp_path / "there"]
        printed([*on_ray, *words], **cluster.environment)
    assert hashes_of(tmp_path / "ray") == hashes_of(tmp_path / "there") == hashes_of(tmp_path / "serial")
