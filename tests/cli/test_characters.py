"""TOML files as editors under Windows write them, and files that are not UTF-8."""

from __future__ import annotations

import codecs
from pathlib import Path

import pytest

from raffed.config.toml import read_toml
from raffed.errors import UsageError

TEXT = 'method = "fedavg"\r\n[data]\r\nsplit = "p4c3"\r\n'


@pytest.mark.parametrize(
    "content",
    [
        codecs.BOM_UTF8 + TEXT.encode(),
        TEXT.encode(),
    ],
)
def test_a_toml_file_is_read_with_any_byte_order_mark(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_bytes(content)
    assert read_toml(tmp_path / "run.toml") == {"method": "fedavg", "data": {"split": "p4c3"}}


@pytest.mark.parametrize(
    "content",
    [TEXT.encode("utf-16"), b'a = "\xe9"', b"a = 1\rb", b"a = \x00"],
    ids=["UTF-16", "Latin-1", "lines of a Mac", "NUL"],
)
def test_any_other_is_refused_in_one_line_that_names_the_file(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_bytes(content)
    with pytest.raises(UsageError, match=r"run\.toml: not (a )?TOML") as error:
        read_toml(tmp_path / "run.toml")
    assert "\n" not in str(error.value)
