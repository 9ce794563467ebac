"""A user-defined file imports what lies beside it, also where another folder holds a module of that name."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from safetensors.numpy import load_file

from raffed.errors import UsageError
from raffed.own.resolve import load, sources_of
from raffed.results.runfile import read_run
from tests.cli.conftest import shell

SAID = ["--rounds", 1, "--epochs", 1, "--split", "p4c5", "--quiet"]
ON_RAY = ["--execution", "ray", "--actors", 2]

NET = """
from common import WIDTH
from torch import nn

class Net(nn.Module):
    def __init__(self, num_classes):
        super().__init__()
        self.hidden = nn.Linear(64, WIDTH)
        self.fc = nn.Linear(WIDTH, num_classes)

    def forward(self, x):
        return self.fc(self.hidden(x.flatten(1)).relu())
"""


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def value_of(text: str) -> object:
    function = load(text)
    assert callable(function)
    return function()


@pytest.mark.parametrize("how", ["import common", "from common import VALUE", "import common as other"])
@pytest.mark.parametrize("late", [False, True])
def test_files_of_two_folders_each_get_the_module_beside_them(lab: Path, how: str, late: bool) -> None:
    name = {"from common import VALUE": "VALUE", "import common": "common.VALUE"}.get(how, "other.VALUE")
    for folder, value in (("a", 1), ("b", 2)):
        write(lab / folder / "common.py", "from deeper import VALUE\n")
        write(lab / folder / "deeper.py", f"VALUE = {value}\n")
        body = f"def f():\n    {how}\n    return {name}\n"
        within = body if late else f"{how}\n{body.replace(how, 'pass')}"
        write(lab / folder / "own.py", within)
    assert [value_of(f"./{folder}/own.py:f") for folder in "aba"] == [1, 2, 1]
    assert "common" not in sys.modules


def test_a_module_beside_a_file_never_stands_in_for_an_installed_one(lab: Path) -> None:
    """Neither when it is imported nor in the record of what was executed."""
    for name in ("numpy", "random", "time"):
        write(lab / "code" / f"{name}.py", "VALUE = 1\n")
    write(
        lab / "code" / "own.py", "import numpy, random, time\ndef f():\n    return hasattr(numpy, 'VALUE')\n"
    )
    assert value_of("./code/own.py:f") is False
    assert set(sources_of("./code/own.py:f").files) == {"own.py"}


def test_two_packages_of_one_name_are_refused(lab: Path) -> None:
    for folder in "ab":
        write(lab / folder / "tools" / "__init__.py", "VALUE = 1\n")
        write(lab / folder / "own.py", "from tools import VALUE\ndef f():\n    return VALUE\n")
    assert value_of("./a/own.py:f") == 1
    with pytest.raises(UsageError, match=r"b/own.py:1: ./b/own.py imports tools, and .*another name"):
        load("./b/own.py:f")


def test_what_ran_is_what_is_recorded_for_a_method_and_a_network_on_ray_too(lab: Path) -> None:
    """Both import a module called common. The hidden layer is as wide as the network's own says."""
    write(lab / "methods" / "common.py", "WIDTH = 1\n")
    source = (lab / "prox.py").read_text(encoding="utf-8")
    write(lab / "methods" / "prox.py", f"{source}\nimport common\nassert common.WIDTH == 1\n")
    write(lab / "nets" / "common.py", "WIDTH = 12\n")
    write(lab / "nets" / "net.py", NET)
    said = [*SAID, "--method", "./methods/prox.py:myprox", "--model", "./nets/net.py:Net"]
    for out, where in (("serial", ["--execution", "serial"]), ("ray", ON_RAY)):
        done = shell("run", *said, *where, "--out", out, cwd=lab)
        assert done.returncode == 0, done.stderr
        (file,) = (lab / out).rglob("final.safetensors")
        weights = load_file(file)
        assert next(v for name, v in weights.items() if name.endswith("hidden.bias")).shape == (12,)
        files = {one["role"]: set(one["files"]) for one in read_run(lab / out)["code"]}
        assert files == {"method": {"prox.py", "common.py"}, "model": {"net.py", "common.py"}}
    assert read_run(lab / "serial")["hashes"] == read_run(lab / "ray")["hashes"]
    done = shell("verify", "ray", cwd=lab)
    assert done.returncode == 0, done.stdout
