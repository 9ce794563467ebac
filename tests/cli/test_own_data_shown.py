"""What the command line says about data of one's own: at a run's start, in `datasets` and in `check`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from raffed.data.datasets import load_dataset
from raffed.errors import UsageError
from tests.cli.conftest import Cli

RUN = ("--execution", "serial", "--rounds", 1, "--epochs", 1, "--split", "iid:2", "--model", "mlp")


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RAFFED_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def images() -> Path:
    draws = np.random.RandomState(0)
    for part, label, number in np.ndindex(3, 2, 6):
        folder = Path("pictures") / ("Training", "val", "Testing")[part] / ("cat", "dog")[label]
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(draws.randint(0, 256, (8, 8, 3)).astype(np.uint8)).save(folder / f"{number}.png")
    return Path("pictures")


def test_a_run_says_at_its_start_which_parts_it_uses(cli: Cli, images: Path) -> None:
    done = cli("run", "--dataset", f"folder:{images}", *RUN, "--out", "runs/a")
    assert done.code == 0, done.err
    said = " ".join((done.out + done.err).split())
    assert "not used: val (12); 'Training' is trained on" in said
    assert cli("verify", "runs/a").code == 0


@pytest.fixture
def every(images: Path) -> dict[str, str]:
    """The same 12 rows of 2 classes as every kind of data that `--dataset` takes, with clients."""
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
        "    return raffed.Dataset.from_arrays(np.arange(24.0).reshape(12, 2), y, clients=y, test=0.25)\n\n\n"
        "TABLE = raffed.Dataset.from_table('t.csv', label='y', client='site')\n"
    )
    return {
        "csv": "csv:t.csv?label=y&client=site",
        "npz": "npz:a.npz",
        "folder": f"folder:{images}",
        "pfllib": "pfllib:pfl",
        "function": "./mine.py:load",
        "object": "./mine.py:TABLE",
    }


@pytest.mark.parametrize(
    ("kind", "said"),
    {
        "csv": ["training part 10 rows", "test part 2 rows", "2, in column site", "red", "numbers (value - "],
        "npz": ["training part 10 samples", "one input 2 numbers (float32), 0 to 23", "clients 2"],
        "folder": ["training part 12 images", "one input 3x8x8 pixels", "cat", "not used: val (12)"],
        "pfllib": ["training part 24 samples", "test part 24 samples", "clients 2"],
        "function": ["training part 8 samples", "test part 4 samples", "clients 2"],
        "object": ["2, in column site", "categories 0 or 1 for each of 2 categories: blue, red"],
    }.items(),
)
def test_every_kind_of_own_data_is_shown(cli: Cli, every: dict[str, str], kind: str, said: list[str]) -> None:
    shown = cli("datasets", every[kind])
    assert shown.code == 0, shown.err
    words = " ".join(shown.out.split())
    assert [one for one in said if one not in words] == []
    checked = cli("check", every[kind])
    assert "a dataset" in checked.out
    assert ("not used" in " ".join(checked.out.split())) == (kind == "folder")
    data = load_dataset(every[kind])
    assert f"training part {len(data.x)} " in words


def test_classes_and_clients_are_shown_with_their_counts(cli: Cli, every: dict[str, str]) -> None:
    lines = [line.split() for line in cli("datasets", every["csv"]).out.splitlines()]
    data = load_dataset(every["csv"])
    assert data.clients is not None
    assert data.test_clients is not None
    for place, name in enumerate("xy"):
        assert [str(place), name, str((data.y == place).sum()), str((data.y_test == place).sum())] in lines
    for place, name in enumerate("ab"):
        counts = [str((who == place).sum()) for who in (data.clients, data.test_clients)]
        assert [str(place), name, *counts] in lines


def test_a_split_names_classes_and_its_natural_clients(cli: Cli, every: dict[str, str]) -> None:
    data = load_dataset(every["csv"])
    assert data.clients is not None
    shown = cli("splits", "natural", "--dataset", every["csv"], "--draw", "d.png")
    assert (shown.code, Path("d.png").is_file()) == (0, True), shown.err
    lines = [line.split() for line in shown.out.splitlines()]
    for client, name in enumerate("ab"):
        own = data.y[data.clients == client]
        counts = [f"{label}:{n}" for label, n in zip("xy", np.bincount(own, minlength=2), strict=True) if n]
        assert any(line[:1] == [name] and line[-len(counts) :] == counts for line in lines)
    plain = cli("splits", "iid:2", "--dataset", every["csv"]).out.splitlines()
    assert any(line.split()[:2] == ["0", "5"] for line in plain), "drawn clients have numbers"


def test_a_refusal_names_classes_and_natural_clients_beside_their_numbers(cli: Cli) -> None:
    lines = [
        f"{row},{row % 5},{('rose', 'tulip')[row > 2]},{('north', 'south')[row < 2]}" for row in range(40)
    ]
    Path("plants.csv").write_text("\n".join(["a,b,kind,site", *lines]))
    source = "csv:plants.csv?label=kind&client=site"
    for words in (["splits", "p8c2"], ["run", "--split", "p8c2", *RUN[:6], "--out", "runs/a"]):
        assert "class 0 (rose) has" in cli(*words, "--dataset", source).err
    with pytest.raises(UsageError) as refused, load_dataset(source).naming("natural"):
        raise UsageError("client 1 lacks class 0; client 9 has class 9")
    assert str(refused.value) == "client 1 (south) lacks class 0 (rose); client 9 has class 9"
