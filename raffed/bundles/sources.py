"""The user's own code in a bundle: the files that a run was made with, found again by their hashes.

Nothing is imported, so nothing of it is executed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path

from raffed.bundles.archive import CODE
from raffed.errors import UsageError
from raffed.own.gate import within
from raffed.own.located import CodeLocation, located
from raffed.results.run_contents import CodeRecord


def shared_code(run: Path, records: list[CodeRecord]) -> tuple[list[CodeRecord], dict[str, bytes]]:
    """Return the records of a run's code with places inside the bundle, and the files: name → bytes.

    Args:
        run: The run's folder, which holds the code of a notebook.
        records: What its run.json says about its code.

    Raises:
        UsageError: A file has changed since the run or is gone.
    """
    found: list[CodeRecord] = []
    members: dict[str, bytes] = {}
    for one in records:
        root = _recorded_root(run, one)
        place = f"{CODE}/{_digest(one['files'])}"
        for name in one["files"]:
            members[f"{place}/{name}"] = within(root, name).read_bytes()
        inside = _below(one).as_posix()
        package = one["package"]
        found.append({**one, "root": place, "file": f"{place}/{inside}", "package": package})
    return found, members


def _digest(files: Mapping[str, str]) -> str:
    lines = "".join(f"{name} {files[name]}\n" for name in sorted(files))
    return hashlib.sha256(lines.encode()).hexdigest()[:12]


def _below(record: CodeRecord) -> Path:
    """Return the path of the defining file below the folder from which it is imported."""
    return Path(record["file"]).relative_to(record["root"])


def _recorded_root(run: Path, record: CodeRecord) -> Path:
    """Return the folder in which all files have the hashes of the run."""
    for root in _roots(run, record):
        if all(_sha256(within(root, name)) == digest for name, digest in record["files"].items()):
            return root
    first = next(iter(record["files"]), record["file"])
    raise UsageError(
        f"{run}: {first} of {record['reference']} is not there as it was when the run was begun; put the "
        f"earlier version back, or run again"
    )


def _roots(run: Path, record: CodeRecord) -> Iterator[Path]:
    yield run / record["root"]  # an absolute path stays as it is
    here = located(record["reference"].rpartition(":")[0])
    if here is not None:
        yield Path(here.root)


def _sha256(path: Path) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return ""


def place_in(top: Path, record: CodeRecord) -> CodeLocation:
    """Return where the code of a record lies in the folder in which its bundle was unpacked."""
    root, file = within(top.absolute(), record["root"]), within(top.absolute(), record["file"])
    return CodeLocation(record["reference"].rpartition(":")[0], str(file), str(root))


def check_code_files(top: Path, records: list[CodeRecord]) -> None:
    """Raise a UsageError unless a bundle holds the code of a run, with the hashes that the run recorded."""
    for one in records:
        inside = one["root"].startswith(f"{CODE}/") and one["file"].startswith(f"{one['root']}/")
        if not inside or one["file"].removeprefix(f"{one['root']}/") not in one["files"]:
            raise UsageError(
                f"{one['reference']}: the bundle does not say where its code is; fetch the bundle again"
            )
        for name, digest in one["files"].items():
            if _sha256(within(within(top, one["root"]), name)) != digest:
                raise UsageError(
                    f"{one['root']}/{name}: is not the code that the run was made with; fetch the bundle "
                    f"again"
                )


__all__ = ["check_code_files", "place_in", "shared_code"]
