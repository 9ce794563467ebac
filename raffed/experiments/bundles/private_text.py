"""Find what must not leave in a text: logins, names of this account and machine, and paths."""

from __future__ import annotations

import getpass
import os
import platform
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from raffed.results.redact import names_a_secret, without_secrets
from raffed.runtime.secret_files import secret_contents

SHORTEST_VALUE = 8  # characters of a variable's value that is looked for
SHORTEST_NAME = 3
COMMON = {  # names of accounts and machines that say nothing about a person
    *("root", "user", "users", "admin", "ubuntu", "debian", "runner", "ray", "jovyan", "docker", "nobody"),
    *("localhost", "test", "guest", "app", "home", "main", "data", "local", "python", "raffed"),
}
# An absolute path, but not the middle of a relative one, of a URL or of a fraction
PATH = re.compile(
    r"(?<![\w.)\]/~-])/[\w@+.-]+(?:/[\w@+.=,-]*)*|(?<!\w)~\w*/[\w@+./=,-]*|(?<!\w)[A-Za-z]:[\\/][^\s\"']*"
)
_ADDRESS = re.compile(r"\w+://\S+")
_FOLDER_OF_SOMEBODY = re.compile(r"(?:/home|/Users|/root|[A-Za-z]:\\Users)[/\\][\w.@+-]+")


@dataclass(frozen=True)
class Machine:
    """What texts are searched for.

    Attributes:
        names: Names of the account and of the machine.
        home: The account's home folder.
        secrets: Variable of the environment whose name says that it is secret → its value.
        allowed: Texts that may stay although they are found.
    """

    names: tuple[str, ...]
    home: str
    secrets: Mapping[str, str]
    allowed: tuple[str, ...] = ()

    def found(self, text: str, name: str = "") -> Iterator[tuple[str, str]]:
        """Yield (what it is, the text itself) for everything in a text that must not leave.

        Args:
            text: The text.
            name: The name of the file that it comes from, by which settings are told from programs.
        """
        yield from self._logins(text, name)
        for one in self.names:
            if re.search(rf"(?<![A-Za-z0-9]){re.escape(one)}(?![A-Za-z0-9])", text, re.IGNORECASE):
                yield from self._kept_out("the name of this account or machine", one)
        for one in _FOLDER_OF_SOMEBODY.findall(text):
            yield from self._kept_out("a path of a person's folder", one)
        if len(self.home) > 1 and self.home != "/root" and self.home in text:
            yield from self._kept_out("the path of your home folder", self.home)

    def _logins(self, text: str, name: str) -> Iterator[tuple[str, str]]:
        for variable, value in self.secrets.items():
            if value in text:
                yield from self._kept_out("the value of the environment variable", variable)
        if why := secret_contents(text.encode("utf-8", "replace"), name):
            yield why.removeprefix("holds "), ""
        if any(without_secrets(one) != one for one in _ADDRESS.findall(text)):
            yield "a user or a password in an address", ""

    def paths(self, text: str) -> Iterator[tuple[str, str]]:
        """Yield (what it is, the path) for every absolute path in a text."""
        for one in PATH.finditer(text):
            yield from self._kept_out("an absolute path", one.group())

    def _kept_out(self, what: str, text: str) -> Iterator[tuple[str, str]]:
        if text not in self.allowed:
            yield what, text

    def scrubbed(self, text: str) -> str:
        """Return a message without paths, names and addresses with logins; each becomes …"""
        text = PATH.sub(
            lambda one: one.group() if one.group() in self.allowed else "…", without_secrets(text)
        )
        for name in (*self.names, *self.secrets.values()):
            if name not in self.allowed:
                text = re.sub(
                    rf"(?<![A-Za-z0-9]){re.escape(name)}(?![A-Za-z0-9])", "…", text, flags=re.IGNORECASE
                )
        return text


def this_machine(allowed: Sequence[str] = ()) -> Machine:
    """Return what identifies this account and machine, and the secrets of its environment."""
    hosts = {platform.node(), platform.node().partition(".")[0]}
    names = sorted(
        one for one in {_account(), *hosts} if len(one) >= SHORTEST_NAME and one.lower() not in COMMON
    )
    secrets = {
        name: value
        for name, value in sorted(os.environ.items())
        if names_a_secret(name) and len(value) >= SHORTEST_VALUE and not os.path.exists(value)
    }
    return Machine(tuple(names), str(_home()), secrets, tuple(allowed))


def _account() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):  # an account without a name
        return ""


def _home() -> Path | str:
    try:
        return Path.home()
    except RuntimeError:
        return ""


__all__ = ["Machine", "this_machine"]
