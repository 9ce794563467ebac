"""Which source files of the user's own code travel with a job, and how the command names them there."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from raffed.config.toml import read_toml
from raffed.errors import UsageError
from raffed.references.gate import texts_of
from raffed.references.located import CodeLocation, is_file, is_reference, located
from raffed.references.source_files import files_of


def own_references(words: Sequence[str], files: Iterable[str]) -> list[str]:
    """Return the references among the words of a command, and those in its TOML files.

    Args:
        words: The command's words, such as `--method`, `./prox.py:myprox`.
        files: The TOML files among them.
    """
    typed = [word.partition("=")[2] if word.startswith("--") and "=" in word else word for word in words]
    named = [text for file in files for text in texts_of(read_toml(Path(file)))]
    every = (word.strip() for text in [*typed, *sorted(named)] for word in text.split(","))
    return [word for word in dict.fromkeys(every) if is_reference(word)]


def code_files(references: Iterable[str], root: Path) -> dict[str, Path]:
    """Return the source files of own code: path below the job's folder → file here.

    Code of installed packages stays here, since the cluster has its own.

    Args:
        references: The references of the command.
        root: The folder that becomes the job's.

    Raises:
        UsageError: A file lies outside the folder, so the job would not find it by the same reference.
    """
    found: dict[str, Path] = {}
    for reference in references:
        home = reference.rpartition(":")[0]
        place = located(home)
        if place is None and is_file(home):
            raise UsageError(f"{reference}: there is no file {home}, so the job could not read it")
        if place is not None and "site-packages" not in Path(place.root).parts:
            found |= _files(reference, place, root)
    return found


def _files(reference: str, place: CodeLocation, root: Path) -> dict[str, Path]:
    base = root if is_file(place.home) else Path(place.root)
    every = files_of(place)
    outside = [one for one in every if not one.resolve().is_relative_to(base.resolve())]
    typed = Path(place.home)
    if outside or (is_file(place.home) and (typed.is_absolute() or ".." in typed.parts)):
        raise UsageError(
            f"{reference}: {place.file} would not be found by this name in the job; start in the folder that "
            f"holds it and write ./{Path(place.file).name}:{reference.rpartition(':')[2]}"
        )
    return {one.resolve().relative_to(base.resolve()).as_posix(): one for one in every}


__all__ = ["code_files", "own_references"]
