"""The wheel, and an environment with it, made once for all tests of this folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.packaging.clean import CleanEnvironment, built, copied, environment


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
