"""Text in and out that is not UTF-8: output streams of any encoding, TOML files as editors under Windows
write them.
"""

from __future__ import annotations

import codecs
import os
import subprocess
import sys
from pathlib import Path

import pytest

from raffed.config.toml import read_toml
from raffed.errors import UsageError

SHOWN = """
from raffed.cli import main
for words in (["--help"], ["run", "--help"], ["methods", "fedmr"], ["datasets"], ["splits"], ["run", "--method", "μ"],
              ["run", "--split", "p4c3", "--rounds", "1", "--epochs", "1", "--execution", "serial", "--out", "run"]):
    try:
        main(words)
    except SystemExit as ended:
        assert ended.code == (2 if "μ" in words else 0), (words, ended.code)
"""


@pytest.mark.more
@pytest.mark.parametrize(
    "variables",
    [
        pytest.param({"PYTHONIOENCODING": "cp1252"}, id="cp1252"),
        pytest.param(
            {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}, id="C", marks=pytest.mark.slow
        ),
    ],
)
def test_help_listings_errors_and_a_run_are_printed_in_an_encoding_without_their_symbols(
    variables: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "shown.py").write_text(SHOWN, encoding="utf-8")
    command = [sys.executable, str(tmp_path / "shown.py")]
    done = subprocess.run(
        command, cwd=tmp_path, env={**os.environ, **variables}, capture_output=True, timeout=120
    )
    assert done.returncode == 0, done.stderr.decode("latin-1")
    assert b"UnicodeEncodeError" not in done.stderr
    assert rb"\u2192" in done.stdout


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
    ids=["UTF-8 with a mark", "UTF-8", "UTF-16", "big-endian UTF-16", "UTF-32"],
)
def test_a_toml_file_is_read_with_any_byte_order_mark(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_bytes(content)
    assert read_toml(tmp_path / "run.toml") == {"method": "fedavg", "data": {"split": "p4c3"}}


@pytest.mark.parametrize(
    "content",
    [
        TEXT.encode("utf-16-le"),
        b'a = "\xe9"',
        codecs.BOM_UTF16_LE + b"a",
        b"a = 1\rb",
        b"a = \x00",
        codecs.BOM_UTF8 + b"=",
    ],
    ids=[
        "UTF-16 without a mark",
        "Latin-1",
        "half a character",
        "lines of a Mac",
        "NUL",
        "a mark and a mistake",
    ],
)
def test_any_other_is_refused_in_one_line_that_names_the_file(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_bytes(content)
    with pytest.raises(UsageError, match=r"run\.toml: not (a )?TOML") as error:
        read_toml(tmp_path / "run.toml")
    assert "\n" not in str(error.value)
