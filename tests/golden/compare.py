"""Compare the bits of two versions of raffed on this machine: the weights', vaults' and rows' hashes of
twenty runs.

    python -m tests.golden.compare OLD_PYTHON [NEW_PYTHON]

OLD_PYTHON has the wheel of the version before a refactoring; NEW_PYTHON (default: this one) has the present
code. These bits depend on the processor and on torch, so no such hash is committed: both versions run here,
one beside the other. (tests/golden/bits.txt has portable bits, of tiny federations.) Leaves with 1 and names
every hash that differs.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

SCRIPT = Path(__file__).with_name("execute.py")
Found = dict[str, dict[str, str]]


def started(python: str, folder: Path) -> subprocess.Popen[str]:
    """The configurations, running under one Python."""
    folder.mkdir()
    # Ray's workers would import raffed from there, whichever Python started them
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.Popen(
        [python, str(SCRIPT), str(folder)], stdout=subprocess.PIPE, text=True, cwd=folder, env=environment
    )


def hashes(process: subprocess.Popen[str]) -> tuple[str, Found]:
    """(where its raffed is, name of the run → what decides whether two are equal)."""
    where, found = "", {}
    assert process.stdout is not None
    for line in process.stdout:
        if not line.startswith("{"):
            continue
        row = json.loads(line)
        where = row.pop("raffed", where)
        if "name" in row:
            found[row.pop("name")] = row
    if process.wait():
        raise SystemExit(f"{process.args}: left with {process.returncode}")
    return where, found


def main(old: str, new: str = sys.executable) -> int:
    """Print one line for each run; 0 if all are equal."""
    with tempfile.TemporaryDirectory(prefix="raffed-golden-") as folder:
        before, after = (
            started(python, Path(folder) / name) for python, name in ((old, "old"), (new, "new"))
        )
        (old_place, old_found), (new_place, new_found) = hashes(before), hashes(after)
    print(f"old: {old_place}\nnew: {new_place}")
    if old_place == new_place:
        raise SystemExit("both Pythons have the same raffed; nothing was compared")
    differ = 0
    for name in dict.fromkeys([*old_found, *new_found]):
        one, other = old_found.get(name, {}), new_found.get(name, {})
        parts = [part for part in sorted(one.keys() | other.keys()) if one.get(part) != other.get(part)]
        differ += bool(parts)
        print(f"{name:<22} {'equal' if not parts else 'DIFFERENT: ' + ', '.join(parts)}")
    print(f"{len(old_found)} runs, {differ} differ")
    return 1 if differ or not old_found else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
