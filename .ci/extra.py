"""Print the requirements of an extra of pyproject.toml, so that they can be installed without the package.

`python .ci/extra.py docs > requirements.txt`. Only the standard library and pip's own TOML reader are needed.
"""

from __future__ import annotations

import sys
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:
    from pip._vendor import tomli as tomllib

PROJECT = Path(__file__).resolve().parents[1] / "pyproject.toml"


def main(extra: str) -> None:
    known = tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    print("\n".join(known[extra]))


if __name__ == "__main__":
    main(sys.argv[1])
