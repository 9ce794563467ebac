"""A finished run and its bundle, and zips that a stranger could send."""

from __future__ import annotations

import hashlib
import json
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

import raffed
from tests.cli.conftest import cli
from tests.own.conftest import lab
from tests.runtime.conftest import small

__all__ = ["cli", "lab"]


@pytest.fixture(scope="session")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bundles") / "run"
    raffed.run(small(), folder)
    return folder


@pytest.fixture(scope="session")
def archive(run_folder: Path) -> Path:
    return raffed.bundle(run_folder, run_folder.parent / "run.zip").path


Forge = Callable[[Mapping[str, bytes]], Path]


@pytest.fixture
def forged(archive: Path, tmp_path: Path) -> Forge:
    """forged({name: bytes}) is a bundle with these members changed or added, and with hashes that fit."""

    def make(changes: Mapping[str, bytes]) -> Path:
        members = {**contents(archive), **changes}
        if "bundle.json" not in changes:
            listed = json.loads(members["bundle.json"])
            others = {name: data for name, data in members.items() if name not in OUTER}
            listed["files"] = {name: hashlib.sha256(data).hexdigest() for name, data in others.items()}
            members["bundle.json"] = json.dumps(listed).encode()
        path = tmp_path / "forged.zip"
        with zipfile.ZipFile(path, "w") as made:
            for name, data in members.items():
                made.writestr(name, data)
        return path

    return make


OUTER = ("bundle.json",)


def contents(archive: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(archive) as found:
        return {name: found.read(name) for name in found.namelist()}
