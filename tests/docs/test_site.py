"""The check of the built site finds what it is for. `make docs` applies it to the site."""

from __future__ import annotations

import re
import runpy
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.docs.check_site import faults, main

ROOT = Path(__file__).resolve().parents[2]
GOOD = (
    '<h2 id="here">x</h2><a href="other.html#there">o</a><a href="#here">h</a>'
    '<a href="https://a.example">a</a>'
)


@pytest.fixture
def site(tmp_path: Path) -> Path:
    (tmp_path / "index.html").write_text(GOOD, encoding="utf-8")
    (tmp_path / "other.html").write_text('<p id="there">x</p><img src="p.svg">', encoding="utf-8")
    (tmp_path / "p.svg").write_text("<svg/>", encoding="utf-8")
    return tmp_path


def test_a_whole_site_has_no_fault_and_an_empty_folder_is_none(site: Path, tmp_path: Path) -> None:
    assert faults(site) == []
    assert main(str(site)) == 0
    (tmp_path / "empty").mkdir()
    assert main(str(tmp_path / "empty")) == 1


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ('<a href="gone.html">x</a>', "there is no gone.html"),
        ('<a href="other.html#gone">x</a>', "other.html has no place #gone"),
        ('<a href="#gone">x</a>', "this page has no place #gone"),
        ('<img src="gone.png">', "there is no gone.png"),
        ('<script src="https://cdn.example/x.js"></script>', "loads https://cdn.example/x.js"),
        ('<link rel="stylesheet" href="//cdn.example/x.css">', "loads //cdn.example/x.css"),
    ],
)
def test_a_fault_is_reported_with_its_page(site: Path, text: str, fault: str) -> None:
    (site / "bad.html").write_text(text, encoding="utf-8")
    assert faults(site) == [f"bad.html: {fault}"]
    assert main(str(site)) == 1


def test_a_style_sheet_that_loads_a_font_from_a_network_is_a_fault(site: Path) -> None:
    (site / "a.css").write_text("@font-face { src: url('https://fonts.example/a.woff2') }", encoding="utf-8")
    assert faults(site) == ["a.css: loads url('https://fonts.example/a.woff2"]


def test_the_extra_docs_can_be_installed_without_raffed(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(ROOT / ".ci" / "extra.py"))["main"]("docs")
    found = capsys.readouterr().out.split()
    assert [re.split(r"[\[>]", one)[0] for one in found] == ["mkdocs-material", "mkdocstrings"]


def test_the_site_loads_no_fonts_and_ci_builds_it() -> None:
    assert "font: false" in (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    assert "make docs" in (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert "make docs" in (ROOT / ".github" / "workflows" / "docs.yml").read_text(encoding="utf-8")


SORTED = """<article class="md-content"><table><thead><tr><th>name</th><th>gain</th></tr></thead><tbody>
<tr><td>b</td><td>−1.97 ± 1.88</td></tr><tr><td>c</td><td>1,200</td></tr><tr><td>a</td><td>–</td></tr>
<tr><td>d</td><td>+3.5</td></tr></tbody></table></article><script src="sort.js"></script><script>
addEventListener("load", () => {{
  for (const number of {clicks}) document.querySelectorAll("th")[number].click();
  const rows = [...document.querySelectorAll("tbody tr")];
  document.title = rows.map((row) => row.cells[0].textContent).join("");
}});
</script>"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("clicks", "order"), [([0], "abcd"), ([0, 0], "dcba"), ([1], "cdba"), ([1, 1], "bdca")]
)
def test_a_click_on_a_heading_sorts_words_and_numbers(clicks: list[int], order: str, tmp_path: Path) -> None:
    """Numbers begin with the largest one. A cell without a number stays last."""
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        pytest.skip("there is no Chromium")
    shutil.copy(ROOT / "docs" / "assets" / "sort.js", tmp_path)
    page = tmp_path / "page.html"
    page.write_text(f"<meta charset='utf-8'>{SORTED.format(clicks=clicks)}", encoding="utf-8")
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=2000", "--dump-dom"]
    done = subprocess.run([browser, *options, page.as_uri()], capture_output=True, text=True, check=True)
    assert re.findall(r"<title>(\w+)</title>", done.stdout) == [order]
