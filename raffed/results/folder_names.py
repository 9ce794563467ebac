"""Names of methods as folders may be called."""

from __future__ import annotations

import hashlib
import re

RUN_FILE = "run.json"
SWEEP_FILE = "sweep.json"


def folder_name(name: str) -> str:
    """Return a name as a folder may be called: itself, or for a reference a safe text with a hash.

    Two names never give the same folder.

    Args:
        name: A name as a configuration stores it.
    """
    safe = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.")
    digest = hashlib.sha256(name.encode()).hexdigest()[:8]
    return name if safe == name else f"{safe[-80:] or 'own'}-{digest}"
