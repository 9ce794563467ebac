"""Text in and out that is not UTF-8: output streams of any encoding, TOML files as editors under Windows
write them.
"""

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
        TEXT.encode("utf-16"),
        codecs.BOM_UTF16_BE + TEXT.encode("utf-16-be"),
        TEXT.encode("utf-32"),
    ],
)
def test_a_toml_file_is_read_with_any_byte_order_mark(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_bytes(content)
    assert read_toml(tmp_path / "run.toml") == {"method": "fedavg", "data": {"split": "p4c3"}}


@pytest.mark.parametrize(
    "content",
    [TEXT.encode("utf-16-le"), b'a = "\xe9"', codecs.BOM_UTF16_LE + b"a", b"a = 1\rb", b"a = \x00"],
    ids=["UTF-16 without a mark", "Latin-1", "half a character", "lines of a Mac", "NUL"],
)
def test_any_other_is_refused_in_one_line_that_names_the_file(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_bytes(content)
    with pytest.raises(UsageError, match=r"run\.toml: not (a )?TOML") as error:
        read_toml(tmp_path / "run.toml")
    assert "\n" not in str(error.value)
