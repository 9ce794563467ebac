"""What the command line says about data of one's own: at a run's start, in `datasets` and `splits`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from raffed.data.datasets import load_dataset
from tests.cli.conftest import Cli


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RAFFED_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def every() -> dict[str, str]:
    """Rows of 2 classes as every kind of data that `--dataset` takes, with clients."""
    draws = np.random.RandomState(0)
    for part, label, number in np.ndindex(3, 2, 6):
        folder = Path("pictures") / ("Training", "val", "Testing")[part] / ("cat", "dog")[label]
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(draws.randint(0, 256, (8, 8, 3)).astype(np.uint8)).save(folder / f"{number}.png")
    rows = [f"{n / 4},{('red', 'blue')[n % 3 > 0]},{'xy'[n % 2]},{'ab'[n % 3 > 1]}" for n in range(12)]
    Path("t.csv").write_text("size,tint,y,site\n" + "\n".join(rows) + "\n")
    x, y, site = np.arange(24.0).reshape(12, 2), np.arange(12) % 2, (np.arange(12) % 3 > 1).astype(int)
    np.savez("a.npz", x=x, y=y, clients=site)
    for part in ("train", "test"):
        (Path("pfl") / part).mkdir(parents=True)
        for client in range(2):
            np.savez(f"pfl/{part}/{client}.npz", data=np.array({"x": x, "y": y}, dtype=object))
    Path("mine.py").write_text(
        "import numpy as np\nimport raffed\n\n\ndef load() -> raffed.Dataset:\n"
        "    y = np.arange(12) % 2\n"
        "    return raffed.Dataset.from_arrays(np.arange(24.0).reshape(12, 2), y, clients=y, test=0.25)\n"
    )
    return {
        "csv": "csv:t.csv?label=y&client=site",
        "npz": "npz:a.npz",
        "folder": "folder:pictures",
        "pfllib": "pfllib:pfl",
        "function": "./mine.py:load",
    }


@pytest.mark.parametrize(
    ("kind", "said"),
    {
        "csv": ["training part 10 rows", "test part 2 rows", "2, in column site", "red", "numbers (value - "],
        "npz": ["training part 10 samples", "one input 2 numbers (float32), 0 to 23", "clients 2"],
        "folder": ["training part 12 images", "one input 3x8x8 pixels", "cat", "not used: val (12)"],
        "pfllib": ["training part 24 samples", "test part 24 samples", "clients 2"],
        "function": ["training part 8 samples", "test part 4 samples", "clients 2"],
    }.items(),
)
def test_every_kind_of_own_data_is_shown(cli: Cli, every: dict[str, str], kind: str, said: list[str]) -> None:
    shown = cli("datasets", every[kind])
    assert shown.code == 0, shown.err
    words = " ".join(shown.out.split())
    assert [one for one in said if one not in words] == []
    assert f"training part {len(load_dataset(every[kind]).x)} " in words
    assert "a dataset" in cli("check", every[kind]).out
