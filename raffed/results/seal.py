"""The hash that run.json and sweep.json hold of their own contents.

Their other fields are the only record of many numbers: seconds, counts, the scores of trials. A damaged disk
that changes one digit would otherwise change a report without a word. It is no protection against a forger.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

from raffed.config.validation import Json

SEAL = "contents_sha256"
BROKEN = "the file was edited or damaged, because its contents no longer have the hash that it holds of them"


def seal_of(contents: Mapping[str, Json]) -> str:
    """Return the SHA-256 (hex) of what a JSON object holds, without its seal. Layout and order do not count.

    Raises:
        ValueError, TypeError: `contents` is not plain JSON.
    """
    rest = {name: value for name, value in contents.items() if name != SEAL}
    text = json.dumps(rest, sort_keys=True, ensure_ascii=False, allow_nan=False)
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()


def sealed(contents: Mapping[str, Json]) -> dict[str, Json]:
    """Return a JSON object with its seal."""
    return {**contents, SEAL: seal_of(contents)}


def is_broken(contents: Mapping[str, Json]) -> bool:
    """Return whether a JSON object holds a seal that does not fit."""
    return SEAL in contents and contents[SEAL] != seal_of(contents)
