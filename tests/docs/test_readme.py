"""README says what the code does."""

from __future__ import annotations

import csv
import re
import shlex
import subprocess
from pathlib import Path

import pytest

from raffed.config.portable import flags_of
from raffed.results.runfile import read_run
from tests.cli.conftest import shell
from tests.warm import python

ROOT = Path(__file__).resolve().parents[2]
README, DOCS = ROOT / "README.md", ROOT / "docs"
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
    *(page for name in FOLDERS for page in sorted((ROOT / name).rglob("*.md"))),
]


def demo_words() -> list[str]:
    """Return the words of `make demo` behind `raffed`."""
    text = subprocess.check_output(["make", "--no-print-directory", "-n", "demo"], cwd=ROOT, text=True)
    return shlex.split(text.replace("\\\n", "").rpartition("/raffed ")[2])


def test_readme_is_short_enough_to_be_read() -> None:
    assert len(README.read_text(encoding="utf-8").splitlines()) <= 100


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
    "kept", [["map"], pytest.param(["fedmr", "fedavg", "fedrs"], marks=pytest.mark.slow)]
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
