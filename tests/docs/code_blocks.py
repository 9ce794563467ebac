"""The code blocks of README and docs: what they are, which test runs them, and why some are not run.

A block is divided into pieces: each command of an `sh` block, and every other block as a whole. Blocks of the
language `text` are output, formulas or trees of files, and no code.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
PAGES = ("README.md", *sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md")))
BLOCK = re.compile(r"^```([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LANGUAGES = {"sh", "python", "toml", "text"}

# Pages whose own tests run all their blocks
OWN_TESTS = {
    "docs/own_data.md": "test_own_pages.py",
    "docs/libraries.md": "test_own_pages.py",
    "docs/programs.md": "test_own_pages.py",
}
CHECKOUT = "it needs a checkout; tests/adopted runs such commands with an engine of its own"
CLUSTER = "it needs a cluster or a bucket; tests/cluster runs its parts"
ENVIRONMENT = "it makes an environment or installs into one, as CI does"
FLOOR = "it makes an environment of the oldest versions; docs/install.md says what was tried with it"
HOURS = "it takes hours and needs real data; reproductions/records has its results"
PORTABLE = "it needs a process that has not loaded torch; tests/runtime/test_portable_bits.py has it"
# Page or "" for all of them, beginning of a command → why it is not run
NOT_RUN = {
    ("", "make "): ENVIRONMENT,
    ("", "python3 -m venv"): ENVIRONMENT,
    ("", ".venv/bin/pip"): ENVIRONMENT,
    ("", "source .venv"): ENVIRONMENT,
    ("", "cd mylab && pip install"): ENVIRONMENT,
    ("docs/install.md", "python3.11 -m venv"): FLOOR,
    ("docs/install.md", "uv pip install"): FLOOR,
    ("docs/install.md", "PYTHONPATH=. floor"): FLOOR,
    ("", ".venv/bin/raffed compare"): "it is `make demo`, which CI runs",
    ("", "raffed methods | datasets"): "it stands for four commands, which tests/cli/test_screen.py runs",
    ("", "raffed doctor"): "it measures the machine; tests/cli runs it on a small one",
    ("README.md", "raffed run --dataset"): "docs/own_data.md has the same command, which its test runs",
    ("", "raffed reproduce map/table1 --scale full"): HOURS,
    ("", "raffed reproduce zoo/"): HOURS,
    ("docs/reproducing.md", "raffed reproduce fedmr/paper-cell"): "it needs a GPU",
    ("docs/bundles.md", "raffed bundle"): "tests/bundles makes bundles of runs, sweeps and tables",
    ("docs/bundles.md", "raffed replay"): "tests/bundles replays them",
    ("docs/checker.md", "raffed reproduce checker/fedvls-mnist --scale full --out"): HOURS,
    ("docs/checker_results.md", "raffed reproduce checker/"): HOURS,
    (
        "",
        "python -m reproductions.pages.",
    ): "it packs the results of the command before it; tests/analysis runs it",
    ("", "raffed reproduce fedmr/table6 --only fmnist"): "tests/contract runs every item at smoke scale",
    ("docs/reports.md", "raffed report"): "docs/tuning.md has it for a sweep of its own",
    ("docs/portable.md", "raffed "): PORTABLE,
    ("docs/portable.md", "import raffed"): PORTABLE,
    ("docs/authors_code.md", "raffed "): CHECKOUT,
    ("docs/portable.md", "apt-get"): ENVIRONMENT,
    ("docs/portable.md", "python -m pytest"): "it is a part of the suite",
    ("", "raffed submit"): CLUSTER,
    ("", "ray "): CLUSTER,
    ("", "export RAY_AUTH_MODE"): CLUSTER,
    ("", "raffed report /shared"): CLUSTER,
}
# Blocks of Python that are files for later commands: page, first words of the block → name of the file. A
# block that begins with a comment such as `# net.py` is that file.
FILES = {
    ("README.md", "import raffed\nfrom raffed import Method, Term"): "prox.py",
    ("docs/metrics.md", "import raffed\n\n\n@raffed.metric"): "mymetrics.py",
    ("docs/own_loss.md", "def focal"): "losses.py",
    ("docs/own_split.md", "import numpy as np\n\n\ndef hospitals"): "splits.py",
}


class Piece(NamedTuple):
    """A command, or a block in another language than `sh`."""

    page: str
    language: str
    text: str

    @property
    def file(self) -> str | None:
        """The name under which the block is saved, if later commands need it."""
        if said := re.match(r"# (\w+\.py)\n", self.text):
            return said[1]
        names = [
            name for (page, head), name in FILES.items() if page == self.page and head == self.head(head)
        ]
        return names[0] if names else None

    def head(self, like: str) -> str:
        """Return as much of the beginning as another text is long."""
        return self.text[: len(like)]

    @property
    def reason(self) -> str | None:
        """Why it is not run, or None."""
        for (page, head), why in NOT_RUN.items():
            if page in ("", self.page) and self.head(head) == head:
                return why
        return None


def pieces(page: str) -> Iterator[Piece]:
    """Yield what is code on a page, in order."""
    for language, text in BLOCK.findall((ROOT / page).read_text(encoding="utf-8")):
        if language == "sh":
            joined = re.sub(r"\\\n\s*", "", text)
            lines = (re.sub(r"\s+#.*", "", line).strip() for line in joined.splitlines())
            yield from (Piece(page, "sh", line) for line in lines if line)
        elif language != "text":
            yield Piece(page, language, text)
