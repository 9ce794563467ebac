"""An environment that holds the built wheel, as a stranger has it: this checkout is not on its path."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BESIDE = ("analysis", "reproductions", "tune_spaces", "cluster", "tests")  # folders whose names are anybody's
PIP = [sys.executable, "-m", "pip"]


def stranger(path: str = "") -> dict[str, str]:
    """The environment variables of a process that knows nothing of this checkout.

    `path` is a folder of commands that are found first.
    """
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    first = [path] if path else []
    found = os.pathsep.join([*first, kept.get("PATH", "")])
    return {**kept, "PATH": found, "PYTHONWARNINGS": "default", "OMP_NUM_THREADS": "1"}


def call(*command: object, cwd: Path, seconds: float = 300) -> str:
    """stdout of a command that must succeed, without this repository on its path."""
    words = [str(part) for part in command]
    done = subprocess.run(
        words, cwd=cwd, env=stranger(), capture_output=True, text=True, timeout=seconds, check=False
    )
    assert done.returncode == 0, f"{command}: {done.stdout}\n{done.stderr}"
    return done.stdout


def copied(folder: Path) -> Path:
    """A copy of what a wheel is built from, so that no build folder is left in the repository."""
    for name in ("pyproject.toml", "README.md", "LICENSE", ".ci", "raffed", *BESIDE):
        if (ROOT / name).exists():
            call("cp", "-r", ROOT / name, folder, cwd=folder)
    return folder


def built(copy: Path) -> Path:
    """The wheel of a copy of the repository."""
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", copy / "out"]
    call(*PIP, "wheel", *options, copy, cwd=copy)
    (wheel,) = (copy / "out").glob("raffed-*.whl")
    return wheel


@dataclass(frozen=True)
class CleanEnvironment:
    """A virtual environment with the wheel in it. This one lends torch and the rest, by path and without
    its .pth files, so that an editable raffed is not found.
    """

    folder: Path

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    @property
    def variables(self) -> dict[str, str]:
        """The environment variables of somebody who has activated it, and has no network."""
        offline = {"PIP_NO_INDEX": "1", "PIP_NO_BUILD_ISOLATION": "0", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
        return {**stranger(str(self.folder / "bin")), **offline, "VIRTUAL_ENV": str(self.folder)}


def environment(folder: Path, wheel: Path) -> CleanEnvironment:
    """Make the environment, with the commands that a person types in it."""
    made = CleanEnvironment(folder / "venv")
    call(sys.executable, "-m", "venv", "--without-pip", made.folder, cwd=folder)
    site = Path(
        call(made.python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=folder).strip()
    )
    (site / "lent.pth").write_text("\n".join(lent()) + "\n")
    for name in ("pip", "pytest"):
        command = made.folder / "bin" / name
        command.write_text(f'#!/bin/sh\nexec "{made.python}" -m {name} "$@"\n')
        command.chmod(0o755)
    options = ["--quiet", "--no-deps", "--no-index"]
    call(*PIP, "--python", made.python, "install", *options, wheel, cwd=folder)
    return made


def lent() -> list[str]:
    """The folders from which this process imports installed packages."""
    own = sysconfig.get_path("purelib")
    return [own, *(one for one in sys.path if one.endswith("site-packages") and one != own)]


@pytest.fixture(scope="session")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the repository, so that no build folder is left in it."""
    return copied(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="session")
def wheel(copy: Path) -> Path:
    return built(copy)


@pytest.fixture(scope="session")
def clean(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> CleanEnvironment:
    """An environment that holds the wheel."""
    return environment(tmp_path_factory.mktemp("clean"), wheel)


@pytest.fixture(scope="session")
def python(clean: CleanEnvironment) -> Path:
    """The Python of that environment."""
    return clean.python
