"""The check of the built site finds what it is for. `make docs` applies it to the site."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.docs.check_site import faults, main

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('<a href="bad.html#here">x</a><p id="here"></p><a href="https://a.example">a</a>', []),
        ('<a href="gone.html">x</a>', ["bad.html: there is no gone.html"]),
        ("<details>\n\n| a |\n| --: |\n| 1 |\n</details>", ["bad.html: shows a table as text: | a |"]),
        ('<a href="#gone">x</a>', ["bad.html: this page has no place #gone"]),
        ('<script src="https://cdn.example/x.js"></script>', ["bad.html: loads https://cdn.example/x.js"]),
    ],
)
def test_a_fault_of_the_site_is_reported_with_its_page(tmp_path: Path, text: str, said: list[str]) -> None:
    (tmp_path / "bad.html").write_text(text, encoding="utf-8")
    assert faults(tmp_path) == said
    assert main(str(tmp_path)) == bool(said)


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
