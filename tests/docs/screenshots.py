"""The pictures in docs/images, made anew by `python -m tests.docs.screenshots [REPORT.html]` with Chromium.

Without a report it first runs the demo of the Makefile, in one process. A picture shows the top of the page.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
IMAGES = ROOT / "docs" / "images"
DEMO = (
    *("--method", "fedavg", "--method", "fedrs", "--method", "fedmr", "--method", "map"),
    *("--dataset", "digits", "--split", "p10c2", "--local-test", "0.2", "--rounds", "20", "--epochs", "5"),
    *("--batch-size", "16", "--execution", "serial"),
)


def demo_report(folder: Path) -> Path:
    """Run the demo and return its page."""
    subprocess.run(
        [sys.executable, "-m", "raffed", "compare", *DEMO, "--out", str(folder)], check=True, cwd=ROOT
    )
    return folder / "report" / "report.html"


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


def main() -> None:
    with tempfile.TemporaryDirectory() as place:
        page = Path(sys.argv[1]) if sys.argv[1:] else demo_report(Path(place) / "demo")
        IMAGES.mkdir(parents=True, exist_ok=True)
        picture(page, IMAGES / "report.png")


if __name__ == "__main__":
    main()
