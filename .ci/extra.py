"""Print the requirements of an extra of pyproject.toml, so that they can be installed without the package.

`python .ci/extra.py docs > requirements.txt`. An extra of raffed that it names is printed in its place. Only
the standard library is needed.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[1] / "pyproject.toml"


def requirements(extra: str, known: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Yield the requirements of an extra, with those of the extras that it names as raffed[a,b]."""
    for one in known[extra]:
        own = re.fullmatch(r"raffed\[(.+)\]", one)
        if own is None:
            yield one
        else:
            for name in own[1].split(","):
                yield from requirements(name.strip(), known)


def main(extra: str) -> None:
    known = tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    print("\n".join(requirements(extra, known)))


if __name__ == "__main__":
    main(sys.argv[1])
