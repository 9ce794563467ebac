"""The numbers of a summary, worked out by hand, and how they are shown. A report is whole, opens without a
network, and obeys no name that it shows.
"""

from __future__ import annotations

import base64
import hashlib
import math
import re
import subprocess
import sys
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from raffed.analysis import load_runs, summary, to_text, write_report
from raffed.analysis.figures.curves import task_curves
from raffed.analysis.figures.theme import spread
from raffed.analysis.heading import heading
from raffed.analysis.metrics.intervals import t_interval
from raffed.analysis.metrics.measures import measures
from raffed.analysis.metrics.own_metrics import own_measures
from raffed.analysis.metrics.protocols import Protocols, protocol_table
from raffed.analysis.metrics.summary import cells
from raffed.analysis.render import page as page_module
from raffed.analysis.render.cells import for_csv, for_latex, for_markdown
from raffed.analysis.render.page import Picture, render
from raffed.analysis.runs.groups import groups
from raffed.analysis.runs.method_names import METHOD_NAMES

from raffed.methods import METHODS, method_info
from raffed.results.metric import Row
from raffed.results.metrics import METRICS, TEST_ACCURACY
from raffed.results.text import visible
from tests.analysis.conftest import WriteRun, change, write_rows


def test_the_interval_of_three_values_is_4_303_standard_errors() -> None:
    """For ν = 2 the t distribution has a closed form: P(|T| <= t) = t/√(2 + t²), so t = √(2·0.95²/(1 -
    0.95²)), and 1, 2, 3 have s = 1. For ν = 1, P(|T| <= t) = 2·atan(t)/π; 0 and 2 have s/√n = 1.
    """
    t = math.sqrt(2 * 0.95**2 / (1 - 0.95**2))
    assert t_interval([1.0, 2.0, 3.0]) == pytest.approx(t / math.sqrt(3), rel=1e-9)
    assert t_interval([0.0, 2.0]) == pytest.approx(math.tan(0.95 * math.pi / 2), rel=1e-9)
    assert math.isnan(t_interval([0.5]))


def test_the_measures_of_a_run_are_what_its_rows_say(write_run: WriteRun) -> None:
    """Accuracies 0.01 … 0.11, then 0.9, 0.2. Last ten: 0.04 … 0.11, 0.9, 0.2, sum 0.6 + 1.1 = 1.7."""
    accuracies = [r / 100 for r in range(1, 12)] + [0.9, 0.2]
    write_run("a", accuracies, personal=[0.7] * 12 + [0.8], seconds=0.25)
    (row,) = summary(write_run.load()).to_dict("records")
    assert row["accuracy_last"] == pytest.approx(0.2)
    assert row["accuracy_best"] == pytest.approx(0.9)
    assert row["accuracy_mean10"] == pytest.approx(0.17)
    assert row["personal_last"] == pytest.approx(0.8)
    assert (row["mb_up"], row["mb_down"], row["seconds_round"]) == (2.0, 4.0, 0.25)
    assert (row["rounds_done"], row["state"], row["seeds"]) == (13, "finished", 1)


@pytest.mark.parametrize(("rounds", "last"), [(1, 1), (4, 1), (10, 2), (25, 5)])
def test_the_last_fifth_is_the_same_part_of_every_run(write_run: WriteRun, rounds: int, last: int) -> None:
    write_run("a", [number / 1000 for number in range(rounds)])
    value = measures(write_run.load())["accuracy_mean_fifth"].item()
    assert value == pytest.approx((rounds - 1 - (last - 1) / 2) / 1000)


def test_seeds_are_averaged_with_their_interval(write_run: WriteRun) -> None:
    """0.5, 0.6, 0.7: mean 0.6, s = 0.1, half width 4.30265·0.1/√3 = 0.24841."""
    for seed, accuracy in enumerate([0.5, 0.6, 0.7]):
        write_run(f"s{seed}", [0.1, accuracy], seed=seed)
    (row,) = summary(write_run.load()).to_dict("records")
    assert row["seeds"] == 3
    assert row["accuracy_last"] == pytest.approx(0.6)
    assert row["accuracy_last_ci"] == pytest.approx(0.24841, abs=1e-5)
    assert math.isnan(row["personal_last"]), "no run measured a personal model"
    assert "60.00 ± 24.84" in to_text(summary(write_run.load()))


def test_a_mean_of_fewer_seeds_than_the_row_has_says_so(write_run: WriteRun) -> None:
    """Personal models were evaluated with three of the five seeds."""
    for seed in range(5):
        personal = [0.6 + 0.01 * seed] if seed < 3 else None
        write_run(f"r{seed}", [0.5], personal=personal, seed=seed)
    titles, rows = cells(summary(write_run.load()))
    shown = dict(zip(titles, rows[0], strict=True))
    assert shown["Seeds"] == "5"
    assert shown["Personalization, last %"].endswith("(of 3)")
    assert "(of" not in shown["Aggregation, last %"]


@pytest.mark.parametrize(
    ("changed", "uploads"),
    [
        ({}, 5),
        ({"federation.unseen_clients": 0.2}, 4),  # half of the eight that train
        ({"clock.server": "waits"}, 5),
        ({"clock.server": "fedbuff", "clock.buffer": 2}, 2),
        ({"clock.server": "fedasync"}, 1),
    ],
)
def test_a_client_sends_its_share(write_run: WriteRun, changed: dict[str, object], uploads: int) -> None:
    """Of ten clients half take part. A round uploads 2 MB, which is half a million numbers of four bytes."""
    folder = write_run("a", [0.5], clients=10)
    for name, value in {"federation.participation": 0.5, **changed}.items():
        change(folder, f"config.{name}", value)
    assert measures(write_run.load())["floats_up"].item() == pytest.approx(0.5 / uploads)


def trained(*epochs: float, steps: float, **more: Any) -> dict[str, Any]:
    return {"shared": [{"epochs": one} for one in epochs], "overridden": {}, "steps": steps} | more


def test_how_long_clients_train_stands_in_the_table_where_methods_differ(
    tmp_path: Path, write_run: WriteRun
) -> None:
    given = {"momentum": {"given": 0.9, "used": 0.0}, "schedule": {"given": "cosine", "used": None}}
    write_run("a", [0.3], effective=trained(1, steps=2.5))
    write_run("a1", [0.3], seed=1, effective=trained(1, steps=3.5))
    write_run("b", [0.4], method="gldp", effective=trained(10, 20, steps=69, overridden=given))
    write_run("c", [0.5], method="map", effective=trained(1, steps=3, private={}))
    titles, lines = cells(summary(write_run.load()))
    at = titles.index("Local epochs")
    assert titles[at : at + 4] == ["Local epochs", "Steps/round", "Overrides", "Rounds"]
    assert {line[0]: line[at : at + 3] for line in lines} == {
        "fedavg": ["1", "3", "none"],
        "gldp": ["10 + 20", "69", "momentum = 0.0, schedule = own rule"],
        "map": ["1 + private", "3", "none"],
    }
    assert "The same for every row" not in write_report([tmp_path], tmp_path / "out").read_text()


def test_metrics_of_one_name_and_two_directions_have_columns_of_their_own(tmp_path: Path) -> None:
    """Two people call other things by one name; a run's value is in the column of its own metric alone.
    That of the last round is NaN for c, and no earlier one stands for it.
    """
    metric = METRICS.admit(replace(TEST_ACCURACY, name="mine"))
    for name, better, values in (
        ("a", "higher", [0.75]),
        ("b", "lower", [0.25]),
        ("c", "lower", [0.9, math.nan]),
    ):
        rows = [metric.row(number, value, n=9) for number, value in enumerate(values, 1)]
        described = [{"name": "mine", "better": better, "unit": "fraction"}]
        write_rows(tmp_path / name, rows, metrics=described)
    found = own_measures(load_runs([tmp_path]))
    assert found["own:mine:global:higher:fraction"].dropna().to_dict() == {"a": 0.75}
    assert found["own:mine:global:lower:fraction"].dropna().to_dict() == {"b": 0.25}


def part(started: str, command: str = "", raffed: str = "0.1.0") -> dict[str, Any]:
    about = {"from": 1, "to": 1, "started": started, "versions": {"raffed": raffed}, "said": []}
    return about | ({"command": command} if command else {})


def test_a_report_says_what_was_run_when_and_with_what(tmp_path: Path, write_run: WriteRun) -> None:
    early, late = "2026-11-25T10:12:33+00:00", "2026-11-26T07:00:01+00:00"
    both = "raffed compare --method fedavg --method map"
    write_run("a", [0.5], segments=[part(late, both)], commit="0123456789abcdef+")
    write_run("b", [0.5], method="map", segments=[part(early, both), part(late, "raffed resume b", "0.2.0")])
    write_run("c", [0.5], method="map", seed=1, versions={"raffed": "0.1.0"}, started=early, commit=None)
    found = heading(write_run.load().called(METHOD_NAMES))
    assert found.title == "FedAvg and MAP on digits · p10c2"
    assert found.when == "2026-11-25 10:12 UTC to 2026-11-26 07:00 UTC"
    assert found.versions == [
        "raffed 0.1.0, commit 0123456789+",
        "raffed 0.2.0, commit 0123abc",
        "raffed 0.1.0",
    ]
    assert found.commands == [both, "raffed resume b"]
    assert found.unnamed == 1
    write_run("trial", [0.5], seed=2, segments=[part("2026-11-24T10:12:33+00:00", "raffed tune --out s")])
    continued = heading(write_run.load().without(["trial"]), whole=write_run.load())
    assert continued.commands[0] == "raffed tune --out s"
    page = write_report([tmp_path / "a", tmp_path / "b"], tmp_path / "out").read_text(encoding="utf-8")
    assert "<h1>FedAvg and MAP on digits · p10c2</h1>" in page
    assert f"<code>{both}</code>" in page
    assert "<title>FedAvg and MAP on digits · p10c2 – raffed report</title>" in page


def test_the_names_of_methods_are_those_of_the_methods() -> None:
    assert {name: method_info(name).title for name in METHODS} == METHOD_NAMES


def test_signs_that_the_usual_font_prints_as_others_are_written_as_commands() -> None:
    assert for_latex("a < b | c > d") == r"a \textless{} b \textbar{} c \textgreater{} d"
    assert for_latex("θ₁ → ∞") == r"$\theta$$_{1}$ $\rightarrow$ $\infty$"


FALLING = [k / 20 for k in range(11, 0, -1)] + [0.3]  # neither the best round nor the best ten are the last
FLAT = [0.4] * 12
SAMPLES = (20, 60)  # of the two clients


def scored(round: int, model: str, values: tuple[float, float]) -> list[Row]:
    """The rows of a model of the two clients on their test parts, and of the mean."""
    rows = [
        Row(round, model, "local_test", "accuracy", value, client=client, n=SAMPLES[client])
        for client, value in enumerate(values)
    ]
    return [*rows, Row(round, model, "local_test", "accuracy", sum(values) / 2, n=2)]


@pytest.fixture
def before_and_after(write_run: WriteRun, monkeypatch: pytest.MonkeyPatch) -> None:
    """Downloaded models have the server's accuracy a and a + 0.2, trained ones a + 0.1 and a."""
    written_by = type(write_run).__call__.__globals__
    usual_rows = written_by["rows_of_round"]

    def rows(round: int, accuracy: float, personal: float | None, classes: int, seconds: float) -> list[Row]:
        own = [] if personal is None else scored(round, "personal", (personal, personal))
        return [
            *usual_rows(round, accuracy, None, classes, seconds),
            *scored(round, "global", (accuracy, accuracy + 0.2)),
            *scored(round, "local", (accuracy + 0.1, accuracy)),
            *own,
        ]

    monkeypatch.setitem(written_by, "rows_of_round", rows)


def protocols(write_run: WriteRun) -> Protocols:
    runs = write_run.load()
    return protocol_table(runs, groups(runs))


def line(found: Protocols, method: str) -> dict[str, str]:
    rows = {row[0]: row for row in found.table.rows}
    return dict(zip(found.table.titles, rows[method], strict=True))


def read(found: Protocols, method: str, model: str) -> list[str]:
    """What a method has after the last round, at its best, and as the mean of its ten best rounds."""
    return [line(found, method)[f"{model}, {name} %"] for name in ("last", "best", "ten best")]


@pytest.mark.usefixtures("before_and_after")
def test_a_run_is_read_by_every_protocol_and_ranks_depend_on_it(write_run: WriteRun) -> None:
    """Of 0.55, 0.50, …, 0.05 and 0.30 the ten best have the mean 0.345. Pooled: (20 x + 60 y)/80. 0.4 is
    above the last round and the ten best, and below the best round, in every model.
    """
    write_run("a", FALLING)
    found = protocols(write_run)
    wanted = {
        "server": ("30.00", "55.00", "34.50"),
        "before, mean": ("40.00", "65.00", "44.50"),
        "before, pooled": ("45.00", "70.00", "49.50"),
        "after, mean": ("35.00", "60.00", "39.50"),
        "after, pooled": ("32.50", "57.50", "37.00"),
    }
    assert {model: tuple(read(found, "fedavg", model)) for model in wanted} == wanted
    assert found.first == ""
    write_run("b", FLAT, method="fedprox")
    found = protocols(write_run)
    assert read(found, "fedavg", "server") == ["30.00 (2)", "55.00 (1)", "34.50 (2)"]
    assert read(found, "fedprox", "server") == ["40.00 (1)", "40.00 (2)", "40.00 (1)"]
    assert line(found, "fedavg")["Ranks"] == line(found, "fedprox")["Ranks"] == "1–2"
    assert found.first == "First of 15 protocols: fedprox by 10, fedavg by 5."


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
