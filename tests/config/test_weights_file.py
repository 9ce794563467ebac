"""The file of `model.init` is a regular file, or the configuration is refused before anything is read."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from raffed.config.sections import Model
from raffed.errors import UsageError
from raffed.runtime.initial_weights import read_initial


def placed(path: Path, kind: str) -> str:
    if kind == "a named pipe":
        os.mkfifo(path)
    if kind == "a folder":
        path.mkdir()
    if kind == "a link in a circle":
        path.symlink_to(path)
    return "/dev/zero" if kind == "a device without an end" else str(path)


@pytest.mark.skipif(os.name != "posix", reason="other systems have no such files")
@pytest.mark.parametrize(
    "kind", ["a named pipe", "a device without an end", "a folder", "a link in a circle", "missing"]
)
@pytest.mark.parametrize("known", ["", "0" * 64])  # a new run, and one whose run.json has the hash
def test_what_is_not_a_regular_file_is_refused_at_once(tmp_path: Path, kind: str, known: str) -> None:
    file = placed(tmp_path / "weights.pt", kind)
    with pytest.raises(UsageError, match=r"model\.init = "):
        read_initial(Model(init=file, init_sha256=known))
