"""What a reader sees and does in a report, in a real browser."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from raffed.analysis import write_report

from tests.analysis.conftest import WriteRun
from tests.browser.chromium import Tab
from tests.browser.conftest import ITEM, PROGRAMS, OpenPage

pytestmark = pytest.mark.browser

WIDTHS = (420, 1280, 2200)
CHART = ".chart > svg"
TABLE = "table.summary:not(.list table)"
BOXES = """
[...document.querySelectorAll('.chart > svg')].map(one =>
  [...one.querySelectorAll('text')].map(text => {
    const box = text.getBoundingClientRect();
    return [text.textContent, box.left, box.top, box.right, box.bottom];
  }))
"""


def overlapping(boxes: list[list[Any]]) -> list[tuple[str, str]]:
    """The pairs of texts whose boxes have more than two pixels in common in both directions."""
    found = []
    for i, (one, left, top, right, bottom) in enumerate(boxes):
        for other, left2, top2, right2, bottom2 in boxes[i + 1 :]:
            if min(right, right2) - max(left, left2) > 2 and min(bottom, bottom2) - max(top, top2) > 2:
                found.append((one, other))
    return found


def column(page: Tab, number: int) -> list[str]:
    rows = f"[...document.querySelector('{TABLE}').tBodies[0].rows]"
    return [text.strip() for text in page.js(f"{rows}.map(row => row.cells[{number}].textContent)")]


def end(page: Tab, label: str) -> tuple[float, float]:
    """The place in the window of the last point of a line of the first chart."""
    page.box(CHART)
    found = page.js(
        f"""(() => {{
          const all = [...document.querySelectorAll('.chart .lines .series')];
          const line = all.find(one => one.series.label === {label!r}).querySelector('.line');
          const at = line.getPointAtLength(line.getTotalLength());
          const box = line.ownerSVGElement.getBoundingClientRect();
          return [box.left + at.x, box.top + at.y];
        }})()"""
    )
    return found[0], found[1]


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("runs", ["four", "unlike", "sixty"])
def test_names_do_not_overlap_nothing_is_wider_than_the_screen_and_what_may_not_be_compared_is_marked(
    runs: str, width: int, tab: OpenPage, request: pytest.FixtureRequest
) -> None:
    """The column that says so is the last one, which most screens scroll out of sight."""
    page = tab(request.getfixturevalue(runs), width)
    charts = page.js(BOXES)
    assert len(charts) == 3, "two panels and the plane of the two accuracies"
    for texts in charts:
        assert len(texts) > 8
        assert overlapping(texts) == []
        assert all(left >= -1 and right <= width + 1 for _, left, _, right, _ in texts)
    assert page.js("document.documentElement.scrollWidth") <= width
    names, shown = column(page, 0), page.texts(".chart .name text")
    assert [text for text in shown if "…" in text and not text.endswith(("…", "… ≠"))] == []
    if runs != "four":
        assert sum(name.endswith(" ≠") for name in names) == len(names) / 2
        assert f"≠ marks {len(names) // 2} of {len(names)} rows" in page.js("document.body.textContent")
        rows = f"[...document.querySelector('{TABLE}').tBodies[0].rows]"
        rights = page.js(f"{rows}.map(row => row.cells[0].getBoundingClientRect().right)")
        assert max(rights) <= width
        assert any(text.endswith("… ≠") for text in shown)
    assert page.complaints() == []
    asked = [one for one in page.requests() if not one.startswith("data:")]
    assert len(asked) == 1
    assert asked[0].startswith("file:")


def test_the_page_has_the_colours_of_the_reader_s_scheme(four: Path, tab: OpenPage) -> None:
    page = tab(four)
    colours = (
        "[getComputedStyle(document.body).backgroundColor,"
        " getComputedStyle(document.querySelector('.line')).stroke]"
    )
    light = page.js(colours)
    page.prefer(dark=True)
    dark = page.js(colours)
    assert light[0] == "rgb(255, 255, 255)"
    assert dark[0] == "rgb(22, 26, 31)"
    assert light[1] != dark[1]


def test_the_pointer_shows_a_value_and_sets_its_line_off(four: Path, tab: OpenPage) -> None:
    page = tab(four)
    page.mouse("mouseMoved", *end(page, "FedAvg"))
    page.settle()
    assert page.texts(".tip:not([hidden]) > *") == ["FedAvg", "Round 10", "85.52 %"], "0.9 (1 - exp(-3))"
    opacities = "[...document.querySelectorAll('.chart svg, .chart > svg')[0].querySelectorAll('.series')]"
    shown = page.js(
        f"{opacities}.map(one => [one.classList.contains('active'), getComputedStyle(one).opacity])"
    )
    assert sorted(shown) == [[False, "0.13"]] * 3 + [[True, "1"]]
    page.mouse("mouseMoved", 5, 5)
    page.settle()
    assert page.js("document.querySelector('.tip:not([hidden])')") is None
    assert page.js("document.querySelector('.focused')") is None


def test_the_best_four_of_each_chart_are_shown_and_the_page_says_so(tmp_path: Path, tab: OpenPage) -> None:
    """Of ten methods, those with the best global models have the worst personal ones."""
    write = WriteRun(tmp_path / "runs")
    for number in range(10):
        name = "fedavg" if number == 5 else f"method{number}"
        write(f"r{number}", [0.5, 0.9 - 0.01 * number], personal=[0.5, 0.6 + 0.01 * number], method=name)
    page = tab(write_report([tmp_path / "runs"], tmp_path / "out"))
    first = "document.querySelector('.figures .legend')"
    assert page.js(f"{first}.querySelectorAll('[aria-pressed=true]').length") == 4 + 4 + 1
    assert "The best 4 of each chart and FedAvg are shown" in page.js("document.body.textContent")


def test_of_sixty_lines_the_best_four_are_shown_and_of_all_twelve_are_named_and_the_pointer_names_any_other(
    sixty: Path, tab: OpenPage
) -> None:
    page = tab(sixty)
    assert page.js("document.querySelector('.chart').querySelectorAll('.series').length") == 4, "no FedAvg"
    page.js("document.querySelector('.choose button').click()")
    names = page.js(
        "[...document.querySelector('.chart').querySelectorAll('.name text')].map(one => one.textContent)"
    )
    assert len(names) == 12
    faint = page.js("document.querySelector('.chart').querySelectorAll('.series.rest').length")
    assert faint == 48
    other = "method number 0 with a name that is cut in charts"
    page.mouse("mouseMoved", *end(page, other))
    page.settle()
    assert page.js("document.querySelector('.tip:not([hidden]) b').textContent") == other


def test_a_press_on_a_name_hides_its_line_in_both_panels_and_shows_it_again(
    four: Path, tab: OpenPage
) -> None:
    page = tab(four)
    lines = (
        "[...document.querySelector('.figures').querySelectorAll('.chart')]"
        ".map(one => one.querySelectorAll('.series').length)"
    )
    assert page.js(lines) == [4, 4]
    page.click(".legend button")
    assert page.js(lines) == [3, 3]
    assert page.js("document.querySelector('.legend button').getAttribute('aria-pressed')") == "false"
    page.js("document.querySelector('.legend button').focus()")
    page.key("Enter")
    assert page.js(lines) == [4, 4], "the keyboard reaches it"
    page.js("[...document.querySelectorAll('.choose button')][1].click()")
    assert page.js(lines) == [0, 0]
    assert page.complaints() == []


def test_a_drag_zooms_and_a_double_click_shows_all_again(four: Path, tab: OpenPage) -> None:
    page = tab(four)
    ticks = (
        "[...document.querySelector('.chart').querySelectorAll('text')].map(one => one.textContent).join()"
    )
    whole = page.js(ticks)
    left, top, width, height = page.box(CHART)
    page.mouse("mousePressed", left + 0.3 * width, top + 0.3 * height, 1)
    for share in (0.4, 0.5):
        page.call(
            "Input.dispatchMouseEvent",
            type="mouseMoved",
            x=left + share * width,
            y=top + 0.6 * height,
            buttons=1,
            button="left",
        )
    page.mouse("mouseReleased", left + 0.5 * width, top + 0.6 * height, 1)
    page.settle()
    assert page.js(ticks) != whole
    assert page.js("document.querySelector('.whole').hidden") is False
    page.click(CHART, times=2)
    assert page.js(ticks) == whole
    assert page.js("document.querySelector('.whole').hidden") is True


def test_the_keyboard_walks_along_a_line_to_the_next_one_and_zooms(four: Path, tab: OpenPage) -> None:
    page = tab(four)
    page.js(f"document.querySelector('{CHART}').focus()")
    for key, told in (  # it begins at the highest last value
        ("ArrowLeft", ["FedAvg", "Round 10"]),
        ("ArrowLeft", ["FedAvg", "Round 9"]),
        ("ArrowDown", ["FedProx", "Round 9"]),
    ):
        page.key(key)
        assert page.texts(".tip:not([hidden]) > *")[:2] == told
    page.key("+")
    assert page.js("document.querySelector('.whole').hidden") is False
    page.key("0")
    assert page.js("document.querySelector('.whole').hidden") is True


def test_a_title_sorts_its_table_up_down_and_back(four: Path, tab: OpenPage) -> None:
    page = tab(four)
    before = column(page, 2)
    assert before == sorted(before, reverse=True)
    head = f"{TABLE} th:nth-child(3)"
    sorts = f"document.querySelector('{head}').getAttribute('aria-sort')"
    assert page.js(sorts) == "none"
    page.click(f"{head} button")
    assert (page.js(sorts), column(page, 2)) == ("descending", before)
    page.js(f"document.querySelector('{head} button').focus()")
    page.key("Enter")
    assert (page.js(sorts), column(page, 2)) == ("ascending", before[::-1])
    page.click(f"{TABLE} th:nth-child(1) button")
    names = column(page, 0)
    assert names == sorted(names, key=str.lower)
    assert page.js(sorts) == "none", "one column at a time"


def test_numbers_are_sorted_by_value_and_what_is_missing_stays_last(tmp_path: Path, tab: OpenPage) -> None:
    from raffed.analysis.render.page import render
    from raffed.analysis.table import TextTable

    cells = ["9.5 ± 1.0", "–", "−28.02 ± 2.01", "10.25", "< 0.001", "1,200"]
    table = TextTable(["n"], [[cell] for cell in cells])
    page = tmp_path / "page.html"
    section = render("views.html.j2", tables={"A": table}, note="", pictures=[], clients={})
    page.write_text(render("figures.html.j2", title="t", sections=[section]), encoding="utf-8")
    one = tab(page)
    one.click("th button")
    assert column(one, 0) == ["1,200", "10.25", "9.5 ± 1.0", "< 0.001", "−28.02 ± 2.01", "–"]
    one.click("th button")
    assert column(one, 0) == ["−28.02 ± 2.01", "< 0.001", "9.5 ± 1.0", "10.25", "1,200", "–"]


def test_sections_fold_and_a_chart_that_was_folded_is_drawn_when_it_is_unfolded(
    four: Path, tab: OpenPage
) -> None:
    page = tab(four)
    high = "document.documentElement.scrollHeight"
    unfolded = page.js(high)
    page.click("details.part > summary")
    assert page.js(high) < unfolded - 1000
    page.resize(900)
    page.click("details.part > summary")
    page.settle()
    assert page.js(f"document.querySelector('{CHART}').getBoundingClientRect().width") <= 900
    page.js("document.querySelector('.bar button').click()")
    assert page.js("[...document.querySelectorAll('details.part')].some(one => one.open)") is False
    page.js("document.querySelectorAll('.bar button')[1].click()")
    assert page.js("[...document.querySelectorAll('details.part')].every(one => one.open)") is True


def test_names_of_methods_runs_splits_classes_and_items_that_are_programs_are_shown_and_not_obeyed(
    strangers: Path, tab: OpenPage
) -> None:
    page = tab(strangers)
    page.js("[...document.querySelectorAll('details')].forEach(one => one.open = true)")
    for button in ("th button", ".legend button", ".choose button"):
        page.js(f"[...document.querySelectorAll('{button}')].forEach(one => one.click())")
        page.js(f"[...document.querySelectorAll('{button}')].forEach(one => one.click())")
    page.js(
        "[...document.querySelectorAll('*')].forEach("
        "one => one.dispatchEvent(new MouseEvent('mouseover', {bubbles: true})))"
    )
    page.settle()
    shown = page.js("document.body.textContent")
    assert [name for name in PROGRAMS if name not in shown] == []
    assert ITEM in shown
    made = "img[src=x], [onerror], [onload], [onmouseover], iframe, a[href^=javascript]"
    assert page.js(f"[...document.querySelectorAll('{made}')].map(one => one.outerHTML.slice(0, 80))") == []
    assert page.js("window.sprung") is None
    assert page.complaints() == []
    asked = [one for one in page.requests() if not one.startswith("data:")]
    assert len(asked) == 1


def test_without_scripts_the_page_shows_its_pictures_and_tables(four: Path, tab: OpenPage) -> None:
    page = tab(four, script=False)
    found = page.call("DOM.getDocument")["root"]["nodeId"]
    charts = page.call("DOM.querySelectorAll", nodeId=found, selector=".chart")["nodeIds"]
    pictures = page.call("DOM.querySelectorAll", nodeId=found, selector="figure > picture > img")["nodeIds"]
    assert charts == []
    assert len(pictures) >= 4
    boxes = [page.call("DOM.getBoxModel", nodeId=one)["model"] for one in pictures]
    assert all(box["width"] > 300 and box["height"] > 100 for box in boxes)


def test_a_printed_page_has_its_charts_and_none_of_its_buttons(four: Path, tab: OpenPage) -> None:
    page = tab(four)
    page.prefer(dark=False, media="print")
    page.settle()
    shown = (
        "[...document.querySelectorAll('div.bar, .choose, .whole')].map(one => getComputedStyle(one).display)"
    )
    assert set(page.js(shown)) == {"none"}
    assert page.js(f"document.querySelector('{CHART}').getBoundingClientRect().height") > 200


def test_a_page_loads_itself_again_only_while_it_is_watched_and_keeps_what_is_folded(
    four: Path, tab: OpenPage, tmp_path: Path
) -> None:
    text = four.read_text(encoding="utf-8")
    watched = tmp_path / "report.html"
    watched.write_text(text.replace("<html ", '<html data-reload="1" ', 1), encoding="utf-8")
    page = tab(watched)
    page.wait("(document.querySelector('details.part').open = false, window.first = true)")  # before a reload
    page.wait("window.first === undefined && document.documentElement.dataset.ready === ''")
    assert page.js("document.querySelector('details.part').open") is False
    plain = tab(four)
    plain.js("window.first = true")
    plain.js("new Promise(done => setTimeout(done, 600))")
    assert plain.js("window.first") is True
