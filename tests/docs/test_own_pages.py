"""The pages on own data, own tables, programs that read JSON and networks of other libraries: what they
show runs as it stands, without a network. A tiny BERT lies where the page's name of the hub leads as a
path.
"""

from __future__ import annotations

import json
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from PIL import Image
from typer.testing import CliRunner

import raffed
from raffed.cli.app import app
from raffed.errors import UsageError
from raffed.tables.catalogue import own_item
from raffed.tables.items import MEASURES
from tests.docs.code_blocks import pieces

DOCS = Path(__file__).parents[2] / "docs"


def text(page: str) -> str:
    return (DOCS / page).read_text(encoding="utf-8")


def blocks(page: str, kind: str) -> list[str]:
    return re.findall(rf"```{kind}\n(.*?)```", text(page), re.DOTALL)


def test_the_commands_and_programs_on_own_data_run_and_learn(capsys: pytest.CaptureFixture[str]) -> None:
    """Who is ill has a faster pulse and a fever in the table that the page writes."""
    draws = np.random.RandomState(0)
    for label, number in ((label, number) for label in ("cat", "dog") for number in range(10)):
        images = Path("images") / label
        images.mkdir(parents=True, exist_ok=True)
        Image.fromarray(draws.randint(0, 256, (9, 8, 3)).astype(np.uint8)).save(images / f"{number}.png")
    table, learns, names = blocks("own_data.md", "python")
    exec(compile(table, "own_data.md", "exec"), {})
    shown, run, pictures = [line for block in blocks("own_data.md", "sh") for line in block.splitlines()]
    command(pictures, "--execution", "serial")
    command(shown)
    command(run, "--execution", "serial")
    capsys.readouterr()
    exec(compile(names, "own_data.md", "exec"), {})
    assert capsys.readouterr().out == "['well', 'ill']\n"
    exec(compile(learns, "own_data.md", "exec"), {})
    assert float(capsys.readouterr().out.splitlines()[-1]) > 0.8


@pytest.mark.more
def test_the_program_that_compares_two_methods_reads_json_alone(capsys: pytest.CaptureFixture[str]) -> None:
    """Its method `plain` is FedAvg, so its first run has FedAvg's accuracy to the last bit."""
    mine, program = blocks("programs.md", "python")
    Path("mine.py").write_text(mine, encoding="utf-8")
    exec(compile(program, "programs.md", "exec"), {})
    printed = capsys.readouterr().out.splitlines()
    runs = [line.split() for line in printed[:4]]
    assert sorted((method.rpartition(":")[2], seed) for method, seed, _ in runs) == [
        ("plain", "0"),
        ("plain", "1"),
        ("uniform", "0"),
        ("uniform", "1"),
    ]
    assert len(printed) == 5
    [plain] = [accuracy for method, seed, accuracy in runs if method.endswith("plain") and seed == "0"]
    config = raffed.RunConfig(
        data=raffed.Data("digits", "dirichlet:10:0.3"),
        local=raffed.Local(epochs=1),
        federation=raffed.Federation(rounds=4),
        runtime=raffed.Runtime(execution="serial"),
    )
    assert raffed.run(config, out="alone").accuracy == float(plain)


def test_the_page_on_own_tables_has_cells_and_measures(capsys: pytest.CaptureFixture[str]) -> None:
    table, program = blocks("own_table.md", "python")
    Path("items.py").write_text(table, encoding="utf-8")
    item = own_item("./items.py:TABLE", None)
    printed = [(*cell.place, cell.printed.get("value")) for cell in item.cells]
    assert printed == [
        ("FedAvg", "digits", None),
        ("FedProx", "digits", None),
        ("FedAvg", "digits, iid", "92.5"),
        ("FedProx", "digits, iid", "92.7"),
    ]
    line = text("own_table.md").partition("- **`measure`**")[2].partition("\n- ")[0]
    named = re.findall(r"`(\w+_\w+)`", line)
    assert len(named) >= 5
    assert set(named) <= set(MEASURES)
    exec(compile(program, "own_table.md", "exec"), {})
    assert float(capsys.readouterr().out) >= 0


LIBRARIES = pytest.mark.filterwarnings("ignore")  # of the libraries, which are of their own age
PAGE = "docs/libraries.md"
NAME = "google/bert_uncased_L-2_H-128_A-2"
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "good", "bad", "film", "a", "very"]
DATA = '"parquet:ids.parquet?x=input_ids&pad=0&label=label"'
WIDTH, LAYERS, RANK, CLASSES = 16, 2, 4, 2


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RAFFED_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    yield
    for name in ("text", "lora", "vision"):
        sys.modules.pop(name, None)


def command(line: str, *more: str) -> str:
    done = CliRunner().invoke(app, [*shlex.split(line)[1:], *more], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


def write_files(named: str) -> tuple[list[str], list[str]]:
    """Write the page's files of these names. Return its commands with them and its other programs."""
    lines, programs = [], []
    for piece in pieces(PAGE):
        name = piece.text.splitlines()[0].removeprefix("# ")
        if piece.language == "python" and name.endswith(".py"):
            Path(name).write_text(piece.text, encoding="utf-8")
        elif piece.language == "python":
            programs.append(piece.text)
        elif f"./{named}:" in piece.text:
            lines.append(piece.text)
    assert lines
    return lines, programs


@pytest.fixture
def ids() -> dict[str, Any]:
    """Make the texts and the tiny BERT, and run the lines with the tokenizer."""
    transformers = pytest.importorskip("transformers", reason="make extras")
    pytest.importorskip("datasets", reason="make extras")
    place = Path(NAME)
    place.mkdir(parents=True)
    vocabulary = {word: number for number, word in enumerate(WORDS)}
    transformers.BertTokenizerFast(vocab=vocabulary).save_pretrained(place)
    about = transformers.BertConfig(
        vocab_size=len(WORDS), hidden_size=WIDTH, num_hidden_layers=LAYERS, num_attention_heads=2,
        intermediate_size=32, max_position_embeddings=64,
    )  # fmt: skip
    transformers.BertModel(about).save_pretrained(place)  # without a head, as on the hub
    texts = [("a good film", "yes"), ("a very bad film", "no"), ("good", "yes"), ("bad", "no")] * 6
    for part, rows in (("train", texts), ("test", texts[:4])):
        lines = [json.dumps({"text": text, "label": label}) for text, label in rows]
        Path(f"{part}.jsonl").write_text("\n".join(lines), encoding="utf-8")
    [program] = write_files("text.py")[1]
    held: dict[str, Any] = {}
    exec(compile(program, PAGE, "exec"), held)
    held["ids"]["train"].to_parquet("ids.parquet")
    return held


@LIBRARIES
@pytest.mark.more
@pytest.mark.usefixtures("ids")
def test_a_model_of_hugging_face_is_checked_and_trained() -> None:
    check, run = write_files("text.py")[0]
    assert "none failed" in command(check)
    command(run)


def sent(width: int, layers: int) -> int:
    """Return how many numbers LoRA sends: in each layer two pairs of matrices, rank x width and width x rank,
    and the head.
    """
    return layers * 2 * 2 * RANK * width + CLASSES * (width + 1)


@LIBRARIES
@pytest.mark.more
@pytest.mark.usefixtures("ids")
def test_lora_sends_only_its_matrices_and_the_head() -> None:
    """Of four bytes a number, and four for the number of samples."""
    pytest.importorskip("peft", reason="make extras")
    [run] = write_files("lora.py")[0]
    command(run)
    assert "none failed" in command(f"raffed check ./lora.py:Lora --dataset {DATA}")
    rows = pd.concat(map(pd.read_parquet, Path("runs/lora/metrics").glob("*.parquet")))
    assert set(rows.loc[rows["client"].notna(), "bytes_up"].dropna()) == {4 * (sent(WIDTH, LAYERS) + 1)}


def test_networks_of_timm_are_refused_with_the_three_lines() -> None:
    lines = r"three lines .*import timm.*create_model\(\"resnet18\", .* ./net.py:net"
    for words in ("run --model timm:resnet18", "check timm:resnet18", "models timm:resnet18"):
        with pytest.raises(UsageError, match=lines):
            command(f"raffed {words}")


@LIBRARIES
@pytest.mark.more
def test_networks_of_timm_are_trained() -> None:
    pytest.importorskip("timm", reason="make extras")
    [run] = write_files("vision.py")[0]
    command(run)
