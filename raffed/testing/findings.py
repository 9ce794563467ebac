"""What a check found: its name, the sentence that should hold, and, if it does not, what is wrong where."""

from __future__ import annotations

import contextlib
import importlib.util
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Generic, Literal, TypeVar

from raffed.errors import RaffedError, UsageError
from raffed.own.located import is_file, is_reference
from raffed.own.names import reference_to
from raffed.own.resolve import load
from raffed.own.user_code import where_raised

if TYPE_CHECKING:
    import pandas as pd

S = TypeVar("S")
Kind = Literal["method", "model", "dataset", "split", "loss", "metric", "schedule", "selection", "table"]


class ContractError(AssertionError):
    """A check does not hold. The message begins with the name of what was checked."""


class NotApplicableError(Exception):
    """Raised by a check that says nothing about this object; the message is the reason."""


@dataclass(frozen=True)
class CheckFinding:
    """The outcome of one check.

    Attributes:
        name: Name of the check, such as "same-seed-same-bits".
        sentence: What should hold.
        state: "holds", "fails", or "does not apply".
        why: What is wrong and where, or why the check does not apply; "" if it holds.
    """

    name: str
    sentence: str
    state: Literal["holds", "fails", "does not apply"]
    why: str = ""


@dataclass(frozen=True)
class Findings:
    """The outcomes of all checks of one object.

    Attributes:
        kind: What the object was recognised as.
        subject: Its reference or name.
        found: One outcome for each check, in order.
        notes: What else a user may not expect, such as a part of the data that is not used.
    """

    kind: Kind
    subject: str
    found: tuple[CheckFinding, ...]
    notes: tuple[str, ...] = ()

    def __iter__(self) -> Iterator[CheckFinding]:
        return iter(self.found)

    @property
    def ok(self) -> bool:
        """Whether no check fails."""
        return not self.failed

    @property
    def failed(self) -> list[CheckFinding]:
        """The outcomes of the checks that fail."""
        return [one for one in self.found if one.state == "fails"]

    def to_pandas(self) -> pd.DataFrame:
        """Return the outcomes as a pandas frame with the columns check, sentence, state and why."""
        import pandas as pd

        rows = [(one.name, one.sentence, one.state, one.why) for one in self.found]
        return pd.DataFrame(rows, columns=["check", "sentence", "state", "why"])

    def raise_if_failed(self) -> None:
        """Raise a ContractError that names each failing check, what is wrong, and where."""
        if not self.ok:
            lines = [f"{one.name}: {one.why} (the rule: {one.sentence})" for one in self.failed]
            raise ContractError(f"{self.subject}, {self.kind}: " + "; ".join(lines))


@dataclass(frozen=True)
class Check(Generic[S]):
    """One sentence of a contract.

    Attributes:
        name: Words with hyphens.
        sentence: What holds of every object that keeps to the contract.
        look: Called with the object. It returns what is wrong, or "" if the sentence holds.
    """

    name: str
    sentence: str
    look: Callable[[S], str]

    def of(self, subject: S, home: str) -> CheckFinding:
        """Return the outcome for an object. An error in the object's own code is one, with file and line.

        Args:
            subject: The object, prepared for these checks.
            home: What its messages call the object if an error has no line in its own code.
        """
        try:
            why = self.look(subject)
        except NotApplicableError as error:
            return CheckFinding(self.name, self.sentence, "does not apply", str(error))
        except RaffedError as error:
            why = str(error)
        except Exception as error:  # noqa: BLE001 (whatever the user's code raises is the finding)
            why = f"{where_raised(error, home)}: {type(error).__name__}: {error}"
        return CheckFinding(self.name, self.sentence, "fails" if why else "holds", " ".join(why.split()))


def found_by(checks: Sequence[Check[S]], subject: S, kind: Kind, name: str) -> Findings:
    """Return the outcomes of all checks of an object."""
    return Findings(kind, name, tuple(one.of(subject, name) for one in checks))


# From what a person gives to the object that is checked: a reference, or the object itself.


T = TypeVar("T")


def is_code(text: str) -> bool:
    """Return whether a text refers to Python code here: a file, or a module that can be imported.

    "npz:arrays.npz" has the form of a reference, and names a file of data.
    """
    if not is_reference(text):
        return False
    home = text.rpartition(":")[0]
    return is_file(home) or _importable(home.partition(".")[0])


def _importable(module: str) -> bool:
    with contextlib.suppress(ImportError, ValueError):
        return importlib.util.find_spec(module) is not None or _here(module)
    return False


def _here(module: str) -> bool:
    return Path(module).is_dir() or Path(f"{module}.py").is_file()


def resolved(text: str) -> Callable[..., T]:
    """Return the function or class that a reference names.

    Raises:
        UsageError: The text is not a reference, or the object cannot be called.
        UserCodeError: The user's file raised an error while it was imported.
    """
    found = load(text) if is_reference(text) else None
    if found is None:
        raise UsageError(
            f"{text!r} is neither a known name nor a reference; write package.module:name or ./file.py:name"
        )
    if not callable(found):
        raise UsageError(f"{text} is a {type(found).__name__}; it must be a function or a class")
    made: Callable[..., T] = found
    return made


def typed(thing: str | Callable[..., T]) -> str:
    """Return what a configuration stores for a function or its name.

    Raises:
        UsageError: No other process could find the function.
    """
    return thing if isinstance(thing, str) else reference_to(thing)


def named(thing: T) -> str:
    """Return what messages call an object: its reference, its name, or its type."""
    if isinstance(thing, str):
        return thing
    return str(getattr(thing, "__name__", "") or getattr(thing, "name", "") or type(thing).__name__)
