"""The rules that choose the participants of a round, and their arguments. This module imports no torch.

The draws themselves are in `raffed.federation.selection`. A rule of one's own is a function, named by
reference.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal, TypeAlias

from raffed.budget import file_bytes
from raffed.config.validation import (
    Declaration,
    Doc,
    Range,
    Value,
    check_values,
    client_numbers,
    declarations,
)
from raffed.errors import UnknownNameError, UsageError
from raffed.own.located import is_reference

UNIFORM = "uniform"
FIXED = "fixed"
SelectionName = Annotated[
    str,
    Doc(
        "How the participants of a round are chosen: uniform, size, power_of_choice, round_robin, fixed, or "
        "./file.py:NAME for your own rule. In Python it may be the function itself, which is stored as its "
        "reference."
    ),
]
SelectionArgs = Annotated[
    Mapping[str, Value], Doc("Argument of the selection, such as candidates=20; repeat for more.")
]


@dataclass(frozen=True)
class Uniform:
    """Clients are drawn uniformly, without replacement."""

    weighting: ClassVar[Literal["", "clients"]] = ""  # weights of the mean that the rule was made for

    def repeats(self) -> bool:
        """Return whether a client can be drawn several times in a round."""
        return False


@dataclass(frozen=True)
class Size(Uniform):
    """Clients are drawn in proportion to their number of training samples (Li et al. 2020, scheme I).

    The mean is uniform over the draws, so a client that is drawn twice counts twice. It trains once.
    """

    weighting: ClassVar[Literal["", "clients"]] = "clients"
    replacement: Annotated[
        bool,
        Doc(
            "Whether a client may be drawn several times. Only then is the expected mean that of all "
            "clients, weighted by their samples."
        ),
    ] = True

    def repeats(self) -> bool:
        return self.replacement


@dataclass(frozen=True)
class PowerOfChoice(Uniform):
    """Candidates are drawn in proportion to their samples, and those with the largest loss take part.

    The loss is that of the present model on the candidate's training samples. Source: Cho, Wang, Joshi 2020.
    """

    weighting: ClassVar[Literal["", "clients"]] = "clients"
    candidates: Annotated[
        int, Range(0), Doc("Number d of candidates in a round; 0: twice the participants.")
    ] = 0

    def number(self, participants: int, clients: int) -> int:
        """Return the number d of candidates.

        Args:
            participants: Number of participants of a round.
            clients: Number N of all clients.
        """
        return self.candidates or min(2 * participants, clients)


@dataclass(frozen=True)
class RoundRobin(Uniform):
    """Clients take turns in the order of their numbers."""


@dataclass(frozen=True)
class Fixed(Uniform):
    """A list says who takes part.

    Raises:
        UsageError: The list cannot be read, or is empty.
    """

    clients: Annotated[
        str,
        Doc(
            "Numbers of the clients that take part, such as 0,3,5-7. Several rounds are separated by "
            "semicolons, and are repeated in turn."
        ),
    ] = ""
    file: Annotated[
        str, Doc("File with one line of such numbers for each round. Its contents are put into `clients`.")
    ] = ""

    def __post_init__(self) -> None:
        if not self.rounds():
            raise UsageError(
                "selection fixed needs the numbers of the clients: --selection-arg clients=0,3,5-7, or "
                "--selection-arg file=FILE"
            )

    def rounds(self) -> list[tuple[int, ...]]:
        """Return the clients of each listed round, in ascending order."""
        return [_numbers(part) for part in re.split(r"[;\n]", self.clients) if part.strip()]


Rule: TypeAlias = Uniform | Size | PowerOfChoice | RoundRobin | Fixed
SELECTIONS: dict[str, Callable[..., Rule]] = {
    UNIFORM: Uniform,
    "size": Size,
    "power_of_choice": PowerOfChoice,
    "round_robin": RoundRobin,
    FIXED: Fixed,
}


def settled_selection(name: str, given: Mapping[str, Value]) -> dict[str, Value]:
    """Return the arguments of a rule in one spelling, without files.

    Args:
        name: A key of SELECTIONS, or a reference, whose arguments are checked when its code is loaded.
        given: The arguments as they were given.

    Raises:
        UnknownNameError: There is no such rule, or it has no such argument.
        UsageError: An argument has another type or is outside its range, or its file cannot be read.
    """
    if name not in SELECTIONS:
        if not is_reference(name):
            raise UnknownNameError("federation.selection", name, SELECTIONS)
        return dict(given)
    known = declarations(SELECTIONS[name])
    listed = {key: _as_text(known, key, value) for key, value in given.items()}
    settled = check_values(f"selection {name}", known, listed)
    if name == FIXED and settled.get("file"):
        settled["clients"] = _read(str(settled.pop("file")))
    SELECTIONS[name](**settled)
    return settled


def _as_text(known: Mapping[str, Declaration], key: str, value: Value) -> Value:
    """Return a number or a list of numbers as the text that an argument of kind str holds."""
    if key not in known or known[key].kind != "str" or isinstance(value, str | bool):
        return value
    if isinstance(value, int):
        return str(value)
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else value


def _numbers(text: str) -> tuple[int, ...]:
    found = client_numbers("selection fixed", text)
    if len(set(found)) < len(found):
        raise UsageError(f"selection fixed: a client stands twice in {text.strip()!r}; leave one out")
    return tuple(sorted(found))


def _read(file: str) -> str:
    content = file_bytes("selection fixed: file", file, "give a file with numbers")
    lines = content.decode("utf-8-sig", errors="replace").splitlines()
    return "; ".join(line.strip() for line in lines if line.strip())
