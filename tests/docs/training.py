"""The tables of docs/training.md that are made from the code. `python -m tests.docs.training` writes them."""

from __future__ import annotations

import re
from pathlib import Path

from raffed.config.training import OPTIMIZERS, Local
from raffed.config.validation import declarations
from raffed.core.training.overrides import overrides
from raffed.methods import METHODS, build_method

PAGE = Path(__file__).resolve().parents[2] / "docs" / "training.md"
PLACES = re.compile(r"(<!-- (optimisers|methods): [^\n]*-->\n)(.*?)(<!-- /\2 -->)", re.DOTALL)
COLUMNS: dict[str, Local] = {  # what is asked for → a run that asks for it
    "rate, schedule": Local(schedule="cosine"),
    "by step": Local(schedule="cosine", schedule_by="step"),
    "momentum, weight decay": Local(),
    "optimiser": Local(optimizer="adamw"),
    "kept": Local(optimizer="adamw", keep_optimizer=True),
    "smoothing": Local(label_smoothing=0.1),
}
ASKED: dict[str, set[str]] = {
    "rate, schedule": {"schedule"},
    "by step": {"schedule_by", "schedule"},
    "momentum, weight decay": {"momentum", "weight_decay"},
    "optimiser": {"optimizer"},
    "kept": {"keep_optimizer"},
    "smoothing": {"label_smoothing"},
}


def optimisers() -> str:
    """A row for each optimiser: its arguments with their defaults."""
    rows = ["| optimiser | arguments (`--optimizer-arg`) |", "|---|---|"]
    for name, kind in OPTIMIZERS.items():
        given = ", ".join(f"`{one.name}={one.shown_default}`" for one in declarations(kind).values())
        rows.append(f"| `{name}` | {given} |")
    return "\n".join(rows) + "\n"


def methods() -> str:
    """A row for each method that overrides something, and one for all others. Clips apply to all of them."""
    rows = [f"| method | {' | '.join(COLUMNS)} | clips | used instead |", "|---" * (len(COLUMNS) + 3) + "|"]
    others = []
    for name in METHODS:
        cells, used = [], {}
        for column, local in COLUMNS.items():
            found = [one for one in overrides(build_method(name), local) if one.name in ASKED[column]]
            used |= {one.name: one.used for one in found}
            cells.append("–" if found else "✓")
        if not used:
            others.append(f"`{name}`")
            continue
        own = None in used.values()
        shown = "a rule of its own" if own else ", ".join(f"{key} {value}" for key, value in used.items())
        rows.append(f"| `{name}` | {' | '.join(cells)} | ✓ | {shown} |")
    rows.append(f"| {', '.join(others)} | {' | '.join('✓' for _ in COLUMNS)} | ✓ | |")
    return "\n".join(rows) + "\n"


def written() -> str:
    """The page with its tables as they should be."""
    made = {"optimisers": optimisers, "methods": methods}
    text = PAGE.read_text(encoding="utf-8")
    return PLACES.sub(lambda found: found[1] + made[found[2]]() + found[4], text)


if __name__ == "__main__":
    PAGE.write_text(written(), encoding="utf-8")
