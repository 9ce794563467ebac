"""The description of a bundle as an RO-Crate 1.1 (Soiland-Reyes et al. 2022): JSON-LD that archives read."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

from raffed.config.validation import Json
from raffed.experiments.bundles.archive import CRATE_FILE

CONTEXT: Final = "https://w3id.org/ro/crate/1.1/context"
SPECIFICATION: Final = "https://w3id.org/ro/crate/1.1"
UNSTATED: Final = "The authors of these results have not stated a licence."
_FORMATS = {
    ".json": "application/json",
    ".md": "text/markdown",
    ".txt": "text/plain",
    ".py": "text/x-python",
    ".npz": "application/zip",
    ".csv": "text/csv",
    ".parquet": "application/vnd.apache.parquet",
}
_KINDS = {
    "parquet": "Measurements of a run, one a row",
    "csv": "Speeds of the clients, one row each, which a virtual clock reads",
}
_MEANINGS = {
    "run.json": "Configuration, versions and hashes of a run",
    "sweep.json": "Request, trials and choices of a sweep",
    "item.json": "Cells of a reproduced table, with the runs behind them",
    "partition.npz": "Which client holds which samples: indices, no data",
    "bundle.json": "Contents of this bundle with SHA-256 hashes",
    "environment.txt": "Versions of the packages that raffed needs",
    "README.md": "How to use this bundle",
}


@dataclass(frozen=True)
class RunAction:
    """One run, as the crate describes it: its folder, its name, when it began, and its results."""

    folder: str
    name: str
    started: str
    results: tuple[str, ...]


def crate(
    title: str,
    license: str,
    version: str,
    hashes: Mapping[str, str],
    sizes: Mapping[str, int],
    runs: Sequence[RunAction],
) -> str:
    """Return the text of ro-crate-metadata.json.

    Args:
        title: What the bundle holds, in a few words.
        license: Terms of use, as a text or a URL.
        version: Version of raffed.
        hashes: Name of each other member → SHA-256.
        sizes: Name of each other member → bytes.
        runs: The runs.
    """
    published = max((one.started for one in runs), default="")[:10]
    files: list[Json] = [_file(name, hashes[name], sizes[name]) for name in sorted(hashes)]
    parts: list[Json] = [{"@id": _address(name)} for name in sorted(hashes)]
    actions: list[Json] = [_action(one) for one in runs]
    mentioned: list[Json] = [{"@id": f"#{_address(one.folder)}"} for one in runs]
    graph: list[Json] = [
        _descriptor(),
        {
            "@id": "./",
            "@type": "Dataset",
            "name": title,
            "description": f"{title}: configurations, partitions, measurements and hashes. "
            "`raffed replay` executes the runs again and compares them.",
            "datePublished": published,
            "license": _reference(license),
            "hasPart": parts,
            "mentions": mentioned[0] if len(mentioned) == 1 else mentioned,
        },
        *_license(license),
        {"@id": "#raffed", "@type": "SoftwareApplication", "name": "raffed", "version": version},
        *actions,
        *files,
    ]
    return json.dumps({"@context": CONTEXT, "@graph": graph}, indent=2, ensure_ascii=False) + "\n"


def _descriptor() -> Json:
    """Return what says that this file describes the crate."""
    return {
        "@id": CRATE_FILE,
        "@type": "CreativeWork",
        "conformsTo": {"@id": SPECIFICATION},
        "about": {"@id": "./"},
    }


def _address(name: str) -> str:
    """Return a name as a relative URL."""
    return quote(name, safe="/=,+@")


def _reference(license: str) -> Json:
    return {"@id": license if license.startswith("https://") else "#licence"}


def _license(license: str) -> list[Json]:
    about: dict[str, Json] = {"@type": "CreativeWork", "name": license, "description": license}
    return [{"@id": license if license.startswith("https://") else "#licence", **about}]


def _file(name: str, digest: str, size: int) -> dict[str, Json]:
    last = name.rpartition("/")[2]
    return {
        "@id": _address(name),
        "@type": "File",
        "name": last,
        "description": _MEANINGS.get(
            last, _KINDS.get(last.rpartition(".")[2], "Source code of the user's own")
        ),
        "encodingFormat": _FORMATS[f".{last.rpartition('.')[2]}"],
        "contentSize": str(size),
        "sha256": digest,
    }


def _action(run: RunAction) -> dict[str, Json]:
    return {
        "@id": f"#{_address(run.folder)}",
        "@type": "CreateAction",
        "name": run.name,
        "startTime": run.started,
        "instrument": {"@id": "#raffed"},
        "result": [{"@id": _address(name)} for name in run.results],
    }


__all__ = ["UNSTATED", "RunAction", "crate"]
