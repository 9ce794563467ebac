"""The file of `model.init` is a regular file, or the configuration is refused before anything is read."""

from __future__ import annotations

import os
from hashlib import sha256
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

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


@pytest.mark.parametrize("kind", ["pt", "safetensors"])
def test_numbers_in_bfloat16_are_read_as_the_same_numbers_in_float32(tmp_path: Path, kind: str) -> None:
    values = torch.tensor([[1.0, -0.0078125], [3.140625, 65536.0]])  # bfloat16 has them exactly
    path = tmp_path / f"weights.{kind}"
    (torch.save if kind == "pt" else save_file)({"a": values.bfloat16()}, path)
    read = read_initial(Model(init=str(path), init_sha256=sha256(path.read_bytes()).hexdigest()))
    assert read is not None
    assert read["a"].dtype == "float32"
    assert read["a"].tolist() == values.tolist()


def test_what_is_no_table_of_real_numbers_is_refused_by_its_name(tmp_path: Path) -> None:
    path = tmp_path / "weights.pt"
    wrong = {"is not a plain table of real numbers": 1j, "has NaN in it": float("nan")}
    for said, number in wrong.items():
        torch.save({"fc.weight": torch.ones(2) * number}, path)
        with pytest.raises(UsageError, match=rf"fc\.weight {said}"):
            read_initial(Model(init=str(path), init_sha256=sha256(path.read_bytes()).hexdigest()))
