"""The check of the built site finds what it is for. `make docs` applies it to the site."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.check_site import faults, main


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('<a href="https://a.example">a</a><link rel="canonical" href="https://a.example">', []),
        ("<details>\n\n| a |\n| --: |\n| 1 |\n</details>", ["bad.html: shows a table as text"]),
        ('<script src="https://cdn.example/x.js"></script>', ["bad.html: loads https://cdn.example/x.js"]),
    ],
)
def test_a_fault_of_the_site_is_reported_with_its_page(tmp_path: Path, text: str, said: list[str]) -> None:
    (tmp_path / "bad.html").write_text(text, encoding="utf-8")
    assert faults(tmp_path) == said
    assert main(str(tmp_path)) == bool(said)
