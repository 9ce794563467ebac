"""What .gitignore and .rayignore exclude, by git's rules."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from raffed.errors import UsageError

IGNORE_FILES = (".gitignore", ".rayignore")
_PARTS = re.compile(r"\\(.)|\*\*/|/\*\*$|\*+|\?|\[(!|\^)?(\]?(?:\\.|[^\]\\])*)\]|(.)")


class _Pattern(NamedTuple):
    names: re.Pattern[str]
    negated: bool


def ignore_rules(folder: Path) -> dict[str, Callable[[str], bool]]:
    """Return, for each ignore file in this folder, a function that says whether it excludes a path.

    The path is relative to the folder, such as "a/b", or "a/" for a folder. As in git, nothing below an
    excluded folder can be included again, so the caller does not enter such a folder.

    Raises:
        UsageError: An ignore file cannot be read.
    """
    found: dict[str, Callable[[str], bool]] = {}
    for name in IGNORE_FILES:
        file = folder / name
        if not file.is_symlink() and file.is_file():
            try:
                found[name] = _rule(file.read_text(encoding="utf-8-sig").split("\n"))
            except (OSError, ValueError, re.error) as error:
                raise UsageError(f"{file}: cannot be read as a list of patterns ({error})") from error
    return found


def _rule(lines: Sequence[str]) -> Callable[[str], bool]:
    patterns = [one for one in map(_pattern, lines) if one is not None]

    def names(path: str) -> bool:
        last = next((one for one in reversed(patterns) if one.names.fullmatch(path)), None)
        return last is not None and not last.negated

    return names


def _pattern(line: str) -> _Pattern | None:
    text = re.sub(r"(?<!\\) +$", "", line.rstrip("\r"))
    if not text or text.startswith("#"):
        return None
    negated, text = text.startswith("!"), text.removeprefix("!")
    folders_only, text = text.endswith("/"), text.removesuffix("/")
    anywhere, text = "/" not in text, text.removeprefix("/")
    body = "".join(map(_translated, _PARTS.finditer(text)))
    return _Pattern(
        re.compile(f"{'(?:.*/)?' if anywhere else ''}{body}{'/' if folders_only else '/?'}", re.DOTALL),
        negated,
    )


def _translated(part: re.Match[str]) -> str:
    escaped, negation, members, plain = part.groups()
    if members is not None:
        return f"(?!/)[{'^' if negation else ''}{members.replace('[', chr(92) + '[')}]"
    if escaped is not None or plain is not None:
        return re.escape(escaped or plain)
    return {"**/": "(?:.*/)?", "/**": "/.+", "?": "[^/]"}.get(part[0], "[^/]*")
