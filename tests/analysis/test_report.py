"""The report is whole, opens without a network, and obeys no name that it shows."""

from __future__ import annotations

import base64
import hashlib
import re
import subprocess
import sys
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from raffed.analysis import write_report
from raffed.analysis.figures.curves import task_curves
from raffed.analysis.figures.theme import spread
from raffed.analysis.render import page as page_module
from raffed.analysis.render.cells import for_csv, for_latex, for_markdown
from raffed.analysis.render.page import Picture, render

from raffed.results.text import visible
from tests.analysis.conftest import WriteRun

TASK = ("digits", "p10c2")


class Outline(HTMLParser):
    """Tags and attributes of a page, and whether every tag that needs closing is closed in order."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in {"meta", "img", "source"}:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.fixture(scope="session")
def report(some_runs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_report([some_runs], tmp_path_factory.mktemp("report") / "new")


def test_a_report_is_whole_and_has_the_same_bytes(report: Path, some_runs: Path, tmp_path: Path) -> None:
    assert report.name == "report.html"
    files = {"curves.png", "report.html", "summary.csv", "summary.md"}
    assert {path.name for path in report.parent.iterdir()} == files
    text = report.read_text(encoding="utf-8")
    hashes = (one * 32 for one in ("ab", "cd", "ef"))
    for said in (
        "two seeds are too few for an interval",
        "Configuration",
        "2.54.0",
        "0123abc",
        "local.lr",
        *hashes,
    ):
        assert said in text
    assert (report.parent / "curves.png").read_bytes().startswith(b"\x89PNG")
    outline = Outline(text)
    assert outline.open == []
    assert [tag for tag, _ in outline.tags].count("img") == 4, "two panels, the classes and the clients"
    assert write_report([some_runs], tmp_path).read_bytes() == report.read_bytes()


def test_nothing_in_a_page_is_fetched_and_its_own_script_alone_is_run(report: Path) -> None:
    text = report.read_text(encoding="utf-8")
    outline = Outline(text)
    links = [
        value
        for _, attrs in outline.tags
        for name, value in attrs.items()
        if name in {"src", "srcset", "href"}
    ]
    assert links
    assert all(str(link).startswith("data:image/svg+xml;base64,") for link in links)
    assert not [tag for tag, _ in outline.tags if tag in {"link", "iframe", "object"}]
    scripts = [attrs.get("type") for tag, attrs in outline.tags if tag == "script"]
    assert scripts.count(None) == 1
    assert set(scripts) == {None, "application/json"}, "data are read, and not run"
    begin, end = "<script>", "</script>\n</body>"
    code = text[text.index(begin) + len(begin) : text.index(end)]
    digest = base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()
    policy = next(attrs["content"] for tag, attrs in outline.tags if attrs.get("http-equiv"))
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules["default-src"] == "'none'", "what no other rule allows, such as any connection, is refused"
    assert rules["script-src"] == f"'sha256-{digest}'"
    assert rules["img-src"] == "data:"


def test_what_a_stranger_wrote_is_shown_and_not_obeyed(tmp_path: Path, write_run: WriteRun) -> None:
    evil = "<script>alert('1')</script>\"><img src=x onerror=alert(1)>"
    names = {"method": evil, "dataset": f"d{evil}", "split": "$\\frac{" + evil, "args": {evil: evil}}
    about = {"state": evil, "error": evil, "versions": {evil: evil}, "hashes": {evil: [evil]}, "commit": evil}
    folder = write_run("a", [0.5], personal=[0.5], hardware={evil: {evil: evil}}, **names, **about)
    (folder / "metrics" / f"part-{'<b>'}.parquet").write_bytes(evil.encode())
    write_run("b", [0.5], method="$\\frac{", dataset=f"d{evil}", split="$\\frac{" + evil)
    text = write_report([tmp_path], tmp_path / "out").read_text(encoding="utf-8")
    outline = Outline(text)
    assert not [tag for tag, attrs in outline.tags if "onerror" in attrs or attrs.get("src") == "x"]
    scripts = [attrs.get("type") for tag, attrs in outline.tags if tag == "script"]
    assert scripts == ["application/json"] * (len(scripts) - 1) + [None]
    assert "alert('1')" not in text
    assert text.count("&lt;script&gt;") > 10
    assert "<script" not in (tmp_path / "out" / "summary.md").read_text(encoding="utf-8")


def test_a_curve_is_the_mean_of_its_seeds_between_the_lowest_and_the_highest(write_run: WriteRun) -> None:
    for seed, accuracies in enumerate([[0.2, 0.4], [0.4, 0.8, 0.9]]):
        write_run(f"s{seed}", accuracies, seed=seed, planned=3)
    (curve,) = task_curves(write_run.load(), TASK, "Aggregation accuracy")
    assert curve.rounds.tolist() == [1, 2], (
        "only rounds that every seed has, so the mean is over the same seeds throughout"
    )
    assert curve.mean.tolist() == pytest.approx([0.3, 0.6])
    assert curve.low.tolist() == [0.2, 0.4]
    assert curve.high.tolist() == [0.4, 0.8]


@given(st.lists(st.floats(0, 1), min_size=1, max_size=14))
def test_names_beside_lines_never_overlap_and_keep_the_order_of_the_lines(ends: list[float]) -> None:
    gap = 0.068
    places = spread(ends, gap)
    order = sorted(range(len(ends)), key=ends.__getitem__)
    assert all(places[b] - places[a] >= gap - 1e-9 for a, b in pairwise(order))
    assert min(places) >= -1e-9
    assert max(places) <= 1 + 1e-9


def test_the_module_runs_as_a_command_whose_exit_code_tells_the_truth(tmp_path: Path) -> None:
    command = [sys.executable, "-X", "importtime", "-m", "analysis", str(tmp_path), "--out", str(tmp_path)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert "no run.json at or below it" in done.stderr
    assert "raffed.analysis.metrics.compare" in done.stderr
    late = [name for name in ("scipy", "jinja2") if name in done.stderr]
    assert not late, "their imports take a second, so they wait for the first test and the first page"


def test_no_template_lets_a_value_pass_unescaped_and_invisible_letters_are_shown() -> None:
    templates = sorted((Path(page_module.__file__).parent / "templates").glob("*.j2"))
    assert len(templates) > 10
    for template in templates:
        text = template.read_text(encoding="utf-8")
        assert not re.search(r"\|\s*safe\b|autoescape|Markup", text), template.name
    found = render("ranking.html.j2", diagram=Picture("", "", "<b>\x1b\u202e", "\"'><b>", "c"))
    assert "<figcaption>&lt;b&gt;\\x1b\\u202e</figcaption>" in found
    assert 'alt="&#34;&#39;&gt;&lt;b&gt;"' in found


HOSTILE = [
    '=HYPERLINK("http://evil")',
    "+1+cmd|'/C calc'!A0",
    "@SUM(1)",
    "\t=1",
    "＝1+1",
    "a;=1+1",
    "\x1b[2J\x1b]0;owned\x07",
    "a\u202egnp",
    "x\x00y",
    "<script>alert(1)</script>",
    "\\input{/etc/passwd}",
    "*x",
    "a & b \\\\ \\hline $x$ % c",
    "![x](http://evil)",
    "a|b\n|c `x`",
]


def obeyed(text: str) -> list[str]:
    """Characters of a terminal's output that are commands."""
    return [letter for letter in text if letter != "\n" and not letter.isprintable()]


def test_one_function_a_format_takes_any_name() -> None:
    for name in HOSTILE:
        assert obeyed(visible(name)) == []
        assert for_csv(name).lstrip()[0] not in "=+-@＝\t\r"
        assert "\n" not in for_csv(name)
        assert ";=" not in for_csv(name)
        plain = re.sub(r"\\[\\`*_\[\]|~$/.]|`[\w ]+`", "", for_markdown(name))
        assert not set("`*[]|$<>\n") & set(plain)
        assert "://" not in plain
        latex = for_latex(name)
        assert latex[0] not in "[*"
        assert not re.search(r"(?<!\\)[&%#_]|\\input|\\hline|\n", latex)
    assert [for_csv(number) for number in ("1", "-1.5", "+3e-05")] == ["1", "-1.5", "+3e-05"]


def test_every_character_that_a_terminal_obeys_is_shown_as_its_code_and_no_other_is() -> None:
    letters = [chr(code) for code in (*range(0x3000), *range(0xFE00, 0x10000), 0x1F600, 0xE0001, 0xD800)]
    assert obeyed(visible("".join(letters))) == []
    changed = [letter for letter in letters if visible(letter) != letter]
    assert {*changed} == {*obeyed("".join(letters)), "\n"}
