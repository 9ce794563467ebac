"""The pictures in docs/images, made anew by `python -m tests.docs.screenshots [REPORT.html]` with Chromium.

Without a report it first runs the demo of the Makefile. A picture shows the top of the page.
The picture of the terminal has what a run prints. docs/images/round.svg is drawn by hand.
"""

from __future__ import annotations

import io
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).resolve().parents[2]
IMAGES = ROOT / "docs" / "images"
COLUMNS = 104
RUN = (
    *("run", "--method", "map", "--dataset", "digits", "--split", "p10c2", "--local-test", "0.2"),
    *("--rounds", "10", "--out", "runs/map"),
)


def demo_words() -> list[str]:
    """Return the words of `make demo` behind `raffed`."""
    text = subprocess.check_output(["make", "--no-print-directory", "-n", "demo"], cwd=ROOT, text=True)
    return shlex.split(text.replace("\\\n", "").rpartition("/raffed ")[2])


def demo_report(folder: Path) -> Path:
    """Run the demo in a folder and return its page."""
    subprocess.run([sys.executable, "-m", "raffed", *demo_words()], check=True, cwd=folder)
    return folder / "demo" / "report" / "report.html"


def picture(page: Path, target: Path, width: int = 1280, height: int = 880) -> None:
    """Draw the top of a page.

    Args:
        page: The HTML file.
        target: The PNG file.
        width: Width of the window in pixels.
        height: Height of the part that is shown, in pixels.
    """
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        raise SystemExit("no Chromium here; install the package chromium")
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
    size = [f"--window-size={width},{height}", f"--screenshot={target}"]
    subprocess.run([browser, *options, *size, page.resolve().as_uri()], check=True, capture_output=True)


def terminal(target: Path) -> None:
    """Draw what a command and its output look like in a terminal.

    Args:
        target: The PNG file.
    """
    with tempfile.TemporaryDirectory() as place:
        words = [sys.executable, "-m", "raffed", *RUN, "--execution", "serial"]
        environment = {**os.environ, "FORCE_COLOR": "1", "COLUMNS": str(COLUMNS)}
        done = subprocess.run(words, check=True, cwd=place, env=environment, capture_output=True, text=True)
        shown = Text.assemble(("$ ", "bold green"), f"raffed {' '.join(RUN)}\n", Text.from_ansi(done.stdout))
        console = Console(record=True, width=COLUMNS, file=io.StringIO(), color_system="truecolor")
        console.print(shown)
        drawing = Path(place) / "terminal.svg"
        svg = re.sub(r"@font-face \{.*?\}", "", console.export_svg(title="raffed"), flags=re.DOTALL)
        drawing.write_text(svg, encoding="utf-8")  # without fonts from a network
        size = re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', svg)
        assert size is not None
        picture(drawing, target, int(float(size[1])), int(float(size[2])))


def main() -> None:
    terminal(IMAGES / "terminal.png")
    with tempfile.TemporaryDirectory() as place:
        page = Path(sys.argv[1]) if sys.argv[1:] else demo_report(Path(place))
        IMAGES.mkdir(parents=True, exist_ok=True)
        picture(page, IMAGES / "report.png")


if __name__ == "__main__":
    main()
