"""README, pages and notebooks say what the code says."""

from __future__ import annotations

import csv
import json
import re
import shlex
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest
from raffed.analysis.runs.method_names import METHOD_NAMES
from raffed.analysis.sweeps import Sweep, tuning_table
from raffed.reproductions.checker.items import ITEMS
from raffed.reproductions.pages.checker_page import written
from raffed.reproductions.pages.zoo_page import written as zoo_page

import raffed
from raffed.cli.options import FLAGS
from raffed.config.portable import flags_of
from raffed.config.training import SCHEDULES, Local, schedule_arguments
from raffed.config.validation import declarations
from raffed.core.server import ServerRule
from raffed.methods import METHODS, build_method
from raffed.results.runfile import read_run
from tests.cli.conftest import Cli, cli, shell
from tests.docs import admission, checker, methods, reference, speed_chart, training
from tests.docs.code_blocks import BLOCK
from tests.tiny import over_methods
from tests.warm import python

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
MADE = {  # `python -m tests.docs.reference`, `tests.docs.methods` and so on write them
    **{f"reference/{name}": make for name, make in reference.PAGES.items()},
    "methods.md": methods.written,
    "training.md": training.written,
    "checker.md": checker.page,
    "images/speed.svg": speed_chart.drawn,
}


def text(page: str) -> str:
    return (DOCS / page).read_text(encoding="utf-8")


@pytest.mark.parametrize("page", MADE)
def test_a_page_is_the_one_that_the_code_makes(page: str) -> None:
    assert MADE[page]() == text(page)


def test_the_page_says_which_method_admits_what() -> None:
    """`python -m tests.docs.admission` prints the table of docs/federation.md."""
    assert admission.table() in text("federation.md")


MEASURED = {"zoo.md", "checker_results.md", "cost.md", "torchvision-models.md"}  # made from records


def test_the_pages_that_people_write_are_few_and_short() -> None:
    """Pages that are made from the code or from records do not count. training.md is partly made."""
    made = {*MADE, *MEASURED} - {"training.md"}
    pages = {str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md")}
    assert pages > {name for name in made if name.endswith(".md")}
    assert 20 < len(pages - made) <= 35
    assert sum(len(text(page).split()) for page in pages - made) <= 60_000
    assert len(README.read_text(encoding="utf-8").splitlines()) <= 100


@pytest.mark.slow
@pytest.mark.parametrize("file", sorted((DOCS / "notebooks").glob("*.ipynb")), ids=lambda file: file.stem)
def test_every_cell_of_a_notebook_runs(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a kernel of this Python, which `make extras` installs. It is committed without outputs."""
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    spec = {"argv": [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]}
    spec |= {"display_name": "Python 3", "language": "python"}
    kernel = tmp_path / "jupyter" / "kernels" / "python3"
    kernel.mkdir(parents=True)
    (kernel / "kernel.json").write_text(json.dumps(spec), encoding="utf-8")
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path / "jupyter"))
    book = nbformat.read(file, as_version=4)
    assert not [cell for cell in book.cells if cell.get("outputs")]
    nbclient.NotebookClient(book, timeout=600, resources={"metadata": {"path": str(tmp_path)}}).execute()
    outputs = [out for cell in book.cells if cell.cell_type == "code" for out in cell.outputs]
    assert outputs
    assert [out for out in outputs if out.output_type == "error"] == []


def test_every_public_name_is_on_one_python_page_once() -> None:
    pages = [path.read_text(encoding="utf-8") for path in (DOCS / "reference" / "python").glob("*.md")]
    found = re.findall(r"^::: raffed\.(\w+)$", "\n".join(pages), re.MULTILINE)
    assert sorted(found) == sorted(name for name in raffed.__all__ if name != "__version__")


def test_the_page_on_events_lists_those_of_the_command_line() -> None:
    folders = (ROOT / "raffed" / "cli", ROOT / "raffed" / "api")
    sources = [path.read_text(encoding="utf-8") for folder in folders for path in folder.glob("*.py")]
    emitted = {name for one in sources for name in re.findall(r'(?:_emit\(\s*|"event": )"([a-z_]+)"', one)}
    assert len(emitted) > 15
    listed = set(re.findall(r"^\| `([a-z_]+)` \|", text("programs.md"), re.MULTILINE))
    assert listed == emitted - {"begin", "said", "ended"}  # only people see the first two


# Methods


@over_methods
def test_every_departure_that_a_docstring_names_is_on_the_page(name: str) -> None:
    """It stands in a paragraph of its own, which begins with this word, and the page quotes it."""
    doc = METHODS[name].described().doc
    told = [note for note in methods.notes(doc) if note.startswith("Departure")]
    assert len(re.findall("departure", doc, re.IGNORECASE)) == len(told)
    page = text("methods.md")
    assert all(f"- {note}" in page for note in methods.notes(doc))


def test_the_page_on_own_methods_shows_that_of_a_new_project_and_names_public_functions() -> None:
    page = text("own_method.md")
    template = ROOT / "raffed" / "api" / "project" / "methods.py.in"
    assert f"```python\n{template.read_text(encoding='utf-8')}```" in page
    named = set(re.findall(r"raffed\.([a-z]+)\(", page))
    assert named >= {"compare", "iterate", "report", "reproduce", "resume", "tune", "verify"}
    assert named <= {*raffed.__all__, "iterate"}


# Training


def test_every_schedule_with_its_defaults_every_way_to_count_and_no_other_option_is_on_the_page() -> None:
    page = text("training.md")
    for name, schedule in SCHEDULES.items():
        row = next(line for line in page.splitlines() if line.startswith(f"| `{name}` |"))
        for one in schedule_arguments(schedule).values():
            default = one.shown_default.replace(" ", "").strip("()")
            assert f"`{one.name}={default}`" in row.replace(" ", "")
    for word in declarations(Local)["schedule_by"].choices:
        assert f"\n| `{word}`" in page
    known = {one for flag in FLAGS for one in re.findall(r"--[\w-]+", flag.flag)} | {"--grid", "--out"}
    assert set(re.findall(r"(?<![\w-])--[a-z][\w-]+", page)) <= known


# The results of other people's tables

RESULTS = Path("docs") / "checker_results.md"
RECORDS = re.findall(r"reproductions/records/[\w-]+", text("checker_results.md").split("```")[0])


@pytest.mark.more
def test_the_page_is_made_from_the_records_that_it_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command in its head makes it again, with a picture for each table.

    The bytes of a picture depend on the version of matplotlib, so only its name is compared.
    """
    monkeypatch.chdir(ROOT)
    files = written([Path(name) for name in RECORDS], RESULTS)
    assert files.pop(RESULTS) == text("checker_results.md")
    assert {path.name for path in files} == {path.name for path in DOCS.glob("checker-*.svg")}


@pytest.mark.parametrize("file", sorted((ROOT / "reproductions" / "pages" / "prose").glob("*.md")))
def test_a_measured_number_stands_in_prose_as_an_expression_alone(file: Path) -> None:
    """So the page has it from the records. Settings, and names of rows and columns, may have digits."""
    item = next(item for item in ITEMS if item.key.replace("/", "-") == file.stem)
    said = re.sub(r"\{\{.+?\}\}|`.+?`", "", file.read_text(encoding="utf-8"), flags=re.DOTALL)
    said = " ".join(said.split())
    names = {name for cell in item.cells for name in (cell.row, cell.column)}
    for name in sorted(names, key=len, reverse=True):
        said = said.replace(name, "")
    said = re.sub(r"([λμ] =|momentum) [\d.]+\d", "", said)
    assert not re.findall(r"\S*\d\.\d\S*|[+−±] ?\d\S*|\d\S* (?:%|points?\b)", said)


ZOO = Path("docs") / "zoo.md"


@pytest.mark.slow
def test_the_page_on_the_zoo_is_made_from_the_records_that_it_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    names = re.findall(r"reproductions/records/[\w-]+", text("zoo.md").split("```")[0])
    assert zoo_page([Path(name) for name in names], ZOO) == text("zoo.md")


def test_a_table_of_an_earlier_protocol_names_no_command_that_would_make_it_again() -> None:
    for table in re.split("^## ", text("zoo.md"), flags=re.MULTILINE)[1:]:
        assert ("by an earlier protocol" in table) != ("`raffed reproduce zoo/" in table)


def test_the_page_says_of_which_methods_a_hash_does_not_name_the_scored_model() -> None:
    """They are those whose server's rule evaluates other weights than it broadcasts."""
    others = {
        METHOD_NAMES[name]
        for name in METHODS
        if type(build_method(name, {}).server).evaluation_weights is not ServerRule.evaluation_weights
    }
    page = text("zoo.md").replace("\n", " ")
    (said,) = re.findall(r"^(.+) can be scored with another model", page, re.MULTILINE)
    assert set(re.findall(r"\w+", said.rpartition(". ")[2])) - {"and"} == others


README = ROOT / "README.md"
FOLDERS = (
    "analysis",
    "benchmarks",
    "cluster",
    "docs",
    "examples",
    "raffed",
    "reproductions",
    "tests",
    "tune_spaces",
)
PAGES = [
    *sorted(ROOT.glob("*.md")),
    *(page for folder in FOLDERS for page in sorted((ROOT / folder).rglob("*.md"))),
]


def demo_words() -> list[str]:
    """Return the words of `make demo` behind `raffed`."""
    text = subprocess.check_output(["make", "--no-print-directory", "-n", "demo"], cwd=ROOT, text=True)
    return shlex.split(text.replace("\\\n", "").rpartition("/raffed ")[2])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_to_a_file_leads_to_one_and_every_module_that_is_named_is_there(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    inside = [link for link in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text) if "://" not in link]
    assert [link for link in inside if not (page.parent / link).exists()] == []
    module = r"(?<![\w/])((?:raffed|analysis|reproductions|cluster|tests|benchmarks)/[\w/]+\.py)\b"
    assert [path for path in re.findall(module, text) if not (ROOT / path).is_file()] == []


def test_every_page_is_in_the_list_of_pages() -> None:
    listed = set(re.findall(r": ([\w/-]+\.md)", (ROOT / "mkdocs.yml").read_text(encoding="utf-8")))
    listed.remove("records/index.md")  # tests/docs/site_hooks.py makes it
    assert listed == {str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")}


def test_the_method_that_readme_writes_runs_by_reference_and_as_an_object(tmp_path: Path) -> None:
    """Both ways make one run: the same weights. The example has 12 lines, without blank ones."""
    text = README.read_text(encoding="utf-8")
    [block] = [one for one in re.findall(r"```python\n(.*?)```", text, re.DOTALL) if "@raffed.method" in one]
    assert sum(bool(line.strip()) for line in block.splitlines()) <= 12
    short = "data=raffed.Data(split='p4c5'), runtime=raffed.Runtime(execution='serial'), "
    short += "federation=raffed.Federation(1), local=raffed.Local(epochs=1)"
    call = f'raffed.run(raffed.RunConfig(method=myprox, args={{"mu": 0.1}}, {short}), out="prox")'
    script = f'{block}\nif __name__ == "__main__":\n    {call}\n'
    (tmp_path / "prox.py").write_text(script, encoding="utf-8")
    said = ["--set", "mu=0.1", "--split", "p4c5", "--execution", "serial", "--rounds", "1", "--epochs", "1"]
    run = ["-m", "raffed", "run", "--method", "./prox.py:myprox", *said, "--out", "a"]
    for words in (["prox.py"], run):
        done = python(words, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
    one, other = (read_run(tmp_path / name) for name in ("prox", "a"))
    assert one["hashes"] == other["hashes"]
    assert one["identity"] == other["identity"]


def test_readme_writes_the_command_of_make_demo() -> None:
    [block] = re.findall(r"raffed (compare .*?--out demo)", README.read_text(encoding="utf-8"), re.DOTALL)
    assert shlex.split(block.replace("\\\n", "")) == demo_words()


@pytest.mark.skipif("avx2" not in flags_of(), reason="this processor has no AVX2")
@pytest.mark.parametrize(
    "kept",
    [
        pytest.param(["map"], marks=pytest.mark.more),
        pytest.param(["fedmr", "fedavg", "fedrs"], marks=pytest.mark.slow),
    ],
)
def test_make_demo_has_the_numbers_of_readme_s_picture(kept: list[str], tmp_path: Path) -> None:
    """The text for those who do not see the picture has its numbers. They are portable, and the same for any
    number of actors.
    """
    text = README.read_text(encoding="utf-8").partition("](docs/images/report.png)")[0].rpartition("![")[2]
    shown = {name.lower(): value for value, name in re.findall(r"([\d.]+) %\s+for (\w+)", text)}
    words = " ".join(demo_words()).replace("--clients-per-actor 1", "--execution serial")
    words = re.sub(r"--method (\w+) ", lambda found: found[0] if found[1] in kept else "", words)
    done = shell(*words.split(), cwd=tmp_path, fresh=True)
    assert done.returncode == 0, done.stderr
    rows = csv.DictReader((tmp_path / "demo/report/summary.csv").read_text().splitlines())
    found = {row["method"]: f"{100 * float(row['accuracy_last']):.2f}" for row in rows}
    assert found == {name: shown[name] for name in kept}


__all__ = ["cli"]  # a fixture


def columns(line: str) -> list[str]:
    return re.split(r"\s{2,}", line.strip())


def test_the_table_of_a_search_has_today_s_titles_and_the_trials_of_its_command(
    tmp_path: Path, cli: Cli
) -> None:
    blocks = BLOCK.findall((ROOT / "docs" / "tuning.md").read_text(encoding="utf-8"))
    command = next(text for language, text in blocks if language == "sh" and text.startswith("raffed tune"))
    table = next(text for language, text in blocks if language == "text" and text.startswith("Method  "))
    title, _, *lines = table.splitlines()
    words = shlex.split(command.splitlines()[0])
    titles = list(tuning_table(Sweep(tmp_path, {"request": {"select": "global"}, "methods": {}})).titles)
    assert columns(title) == titles
    done = cli(*words[1:], "--plan", "--json")
    assert done.code == 0, done.err
    settings = defaultdict[str, list[str]](list)
    for row in done.events[0]["rows"]:
        settings[row["method"]].append(row["setting"])
    shown = [dict(zip(titles, columns(line), strict=True)) for line in lines]
    assert [row["Method"] for row in shown] == list(settings)
    rounds = int(words[words.index("--rounds") + 1])
    for row in shown:
        tried = settings[row["Method"]]
        assert row["Trials"] == f"{len(tried)}/{len(tried)}"
        assert int(row["Rounds to choose"]) == len(tried) * rounds
        assert row["Chosen"].replace(" ", "") in tried
