"""Execute the configurations under the raffed that this Python has, and print one JSON line of hashes for
each.

    python tests/golden/execute.py FOLDER [NAME ...]

Run as a file, not as a module: it must work with an installed wheel, without this repository on the path.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:] = [entry for entry in sys.path if Path(entry or ".").resolve() != HERE.parents[1]]
sys.path.insert(0, str(HERE))

from configurations import CONFIGURATIONS  # type: ignore[import-not-found]  # noqa: E402


def main(folder: str, *names: str) -> None:
    """Run each named configuration (all, if none is named) in a folder of its own."""
    import raffed

    print(json.dumps({"raffed": str(Path(raffed.__file__).parent)}), flush=True)
    for name in names or CONFIGURATIONS:
        config = raffed.RunConfig.from_dict(CONFIGURATIONS[name])
        result = raffed.run(config, out=Path(folder) / name)
        print(json.dumps({"name": name, "identity": config.identity(), **result.hashes}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
