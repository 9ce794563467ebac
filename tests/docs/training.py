"""The tables of docs/training.md that are made from the code. `python -m tests.docs.training` writes them."""

from __future__ import annotations

import re
from pathlib import Path

from raffed.config.training import OPTIMIZERS, Local
from raffed.config.validation import declarations
from raffed.core.training.session import overrides
from raffed.methods import METHODS, build_method

PAGE = Path(__file__).resolve().parents[2] / "docs" / "training.md"
PLACES = re.compile(r"(<!-- (optimisers|methods): [^\n]*-->\n)(.*?)(<!-- /\2 -->)", re.DOTALL)
COLUMNS: dict[str, tuple[Local, set[str]]] = {  # what is asked for → a run that asks for it, and its settings
    "rate, schedule": (Local(schedule="cosine"), {"schedule"}),
    "by step": (Local(schedule="cosine", schedule_by="step"), {"schedule_by", "schedule"}),
    "momentum, weight decay": (Local(), {"momentum", "weight_decay"}),
    "optimiser": (Local(optimizer="adamw"), {"optimizer"}),
    "kept": (Local(optimizer="adamw", keep_optimizer=True), {"keep_optimizer"}),
    "smoothing": (Local(label_smoothing=0.1), {"label_smoothing"}),
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
        for local, asked in COLUMNS.values():
            found = [one for one in overrides(build_method(name), local) if one.name in asked]
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
