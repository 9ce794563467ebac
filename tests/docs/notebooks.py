"""The notebooks of docs/notebooks, written by `python -m tests.docs.notebooks` from the cells below.

They are committed without outputs. A slow test executes them.
"""

from __future__ import annotations

import json
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "notebooks"
TEXT, CODE = "markdown", "code"

FIRST = [
    (
        TEXT,
        "# A first federation\n\nTen clients, each with two of ten classes, train a small network together. "
        "No data have to be downloaded. The notebook takes less than a minute.",
    ),
    (
        CODE,
        'import raffed\n\nDATA = raffed.Data(dataset="digits", split="p10c2", local_test=0.2)\n'
        "config = raffed.RunConfig(\n    data=DATA,\n    federation=raffed.Federation(rounds=6),\n"
        '    local=raffed.Local(epochs=2),\n    runtime=raffed.Runtime(execution="serial"),\n)',
    ),
    (TEXT, "`iterate` gives one event for each round. Leaving the loop stops the run; it can be resumed."),
    (
        CODE,
        'for event in raffed.iterate(config, out="runs/first"):\n'
        "    print(event.round, event.accuracy, event.personal)",
    ),
    (TEXT, "The result of the finished run. The hashes are the same whenever the run is repeated here."),
    (
        CODE,
        'result = raffed.run(config, out="runs/again")\n'
        "result.accuracy, result.personalization, result.hashes",
    ),
    (TEXT, "Every measurement is a row of a data frame."),
    (
        CODE,
        "rows = result.to_pandas().query(\"metric == 'accuracy' and model == 'personal'\")\n"
        'rows[rows["client"].notna() & rows["class"].isna()].groupby("client")["value"].last()',
    ),
    (TEXT, "Rounds can be executed again from checkpoints, and every hash is compared."),
    (CODE, 'raffed.verify("runs/again").ok'),
]
OWN = [
    (
        TEXT,
        "# A method of your own, and its report\n\nFedAvg with a pull towards the downloaded weights, "
        "compared with FedAvg over three seeds.",
    ),
    (
        CODE,
        "%%writefile prox.py\nimport raffed\nfrom raffed import Method, Term\n\n\nclass Pull(Term):\n"
        '    """(mu / 2) |w - w_t|^2: training stays near the downloaded weights w_t."""\n\n    mu: float\n\n'
        "    def loss(self, f, k):\n        return self.mu / 2 * (f.w - k.w0).sq_norm()\n\n\n"
        '@raffed.method(title="MyProx", source="my thesis", space={"mu": [0.01, 0.1]})\n'
        'def myprox(mu: float = 0.01):\n    return Method("MyProx", terms=(Pull(mu),))',
    ),
    (TEXT, "The method is named by its file. All methods get the same splits, participants and batches."),
    (
        CODE,
        "import raffed\n\nconfig = raffed.RunConfig(\n"
        '    data=raffed.Data(dataset="digits", split="p10c2", local_test=0.2),\n'
        "    federation=raffed.Federation(rounds=4),\n    local=raffed.Local(epochs=1),\n"
        '    runtime=raffed.Runtime(execution="serial"),\n)\n'
        'found = raffed.compare(["fedavg", "./prox.py:myprox"], config, out="runs/both", seeds=3)',
    ),
    (TEXT, "Mean, half width of the 95 % interval, and number of seeds:"),
    (CODE, "{name: seeds.accuracy for name, seeds in found.seeds.items()}"),
    (TEXT, "Differences, paired by seed, and the page with the curves:"),
    (CODE, "found.report.differences"),
    (CODE, "found.report.path"),
]
NOTEBOOKS = {"first_federation": FIRST, "own_method": OWN}


def notebook(cells: list[tuple[str, str]]) -> str:
    """Return a notebook without outputs as text."""
    made = []
    for number, (kind, text) in enumerate(cells):
        lines = text.splitlines(keepends=True)
        one: dict[str, object] = {"cell_type": kind, "id": f"cell-{number}", "metadata": {}, "source": lines}
        made.append(one | ({"execution_count": None, "outputs": []} if kind == CODE else {}))
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    about = {"kernelspec": kernel, "language_info": {"name": "python"}}
    book = {"cells": made, "metadata": about, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(book, indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    for name, cells in NOTEBOOKS.items():
        (FOLDER / f"{name}.ipynb").write_text(notebook(cells), encoding="utf-8")
