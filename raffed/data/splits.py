"""The notation for a division of data among clients: `p10c2`, `dirichlet:100:0.5`, ... parsed into
a Split.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from typing import NamedTuple

from raffed.errors import UsageError, check_range

MAX_CLIENTS = 1_000_000


class SplitInfo(NamedTuple):
    """One way to divide data, as `raffed splits` shows it."""

    name: str
    syntax: str
    meaning: str


SPLITS: tuple[SplitInfo, ...] = (
    SplitInfo(
        "dirichlet",
        "dirichlet:CLIENTS:ALPHA",
        "each class over clients by Dir(alpha) (Yurochkin et al. 2019)",
    ),
    SplitInfo(
        "dirichlet-client", "dirichlet-client:CLIENTS:ALPHA", "each client's classes by Dir(alpha) (MAP)"
    ),
    SplitInfo(
        "equal",
        "equal:CLIENTS:CLASSES[:duplicates]",
        "equal counts of CLASSES classes, test parts alike (MpFedcon)",
    ),
    SplitInfo("file", "file:PATH", "a partition.npz that was saved before"),
    SplitInfo("iid", "iid:CLIENTS", "every class spread evenly over all clients"),
    SplitInfo("incomplete", "incomplete:CLIENTS", "a random set of 2..C classes for each client (MAP)"),
    SplitInfo(
        "lognormal",
        "lognormal:CLIENTS:CLASSES",
        "CLASSES neighbouring classes, log-normal sizes (MpFedcon's FEMNIST)",
    ),
    SplitInfo(
        "natural", "natural or natural:CLIENTS", "one client per writer or centre; the first CLIENTS of them"
    ),
    SplitInfo(
        "pXcY",
        "pCLIENTScCLASSES[:duplicates], e.g. p10c2",
        "CLASSES classes for each client, every class owned (FedMR)",
    ),
    SplitInfo("shards", "shards:CLIENTS:SHARDS", "SHARDS label-sorted pieces a client (McMahan et al. 2017)"),
    SplitInfo(
        "stages",
        "stages:CLIENTS:CLASSES:STAGES:ifIMBALANCE[:OPTION...]",
        (
            "CLASSES classes a stage, equal sizes, a global long tail (GLDP); options outer, *_shards, "
            "balanced, nMAX"
        ),
    ),
)
OPTIONS = ("outer", "sorted_shards", "fedrep_shards", "balanced")
_INFO = {info.name: info for info in SPLITS}


@dataclass(frozen=True)
class Split:
    """A parsed split.

    Attributes:
        scheme: A name of SPLITS.
        clients: Number of clients; None where the data or the file decides.
        classes: Classes per client (pXcY, equal, lognormal) or per stage (stages).
        shards: Shards per client (shards).
        alpha: Concentration of the Dirichlet distribution, above 0 (dirichlet, dirichlet-client).
        path: The partition's file (file).
        stages: Number of stages M (stages).
        imbalance: Imbalance factor IF, at least 1 (stages).
        n_max: Size of the largest class (stages).
        options: Further words of `stages`, `equal` and pXcY.
    """

    scheme: str
    clients: int | None = None
    classes: int | None = None
    shards: int | None = None
    alpha: float | None = None
    path: str | None = None
    stages: int | None = None
    imbalance: float | None = None
    n_max: int | None = None
    options: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The canonical spelling, which `parse_split` reads back to an equal Split."""
        if self.scheme == "pXcY":
            return ":".join([f"p{self.clients}c{self.classes}", *self.options])
        rest: list[object] = [self.clients, self.classes, self.shards, self.alpha, self.path, self.stages]
        if self.imbalance is not None:
            rest.append(f"if{self.imbalance:.0f}" if self.imbalance.is_integer() else f"if{self.imbalance}")
        rest += self.options
        rest.append(None if self.n_max is None else f"n{self.n_max}")
        return ":".join([self.scheme, *(str(part) for part in rest if part is not None)])


def parse_split(text: str) -> Split:
    """Parse a split such as "p10c2" or "dirichlet:100:0.5", in any case.

    Args:
        text: The split as typed; `raffed splits` lists the syntax.

    Raises:
        UsageError: The text is not a split. The message contains the syntax.

    Example:
        >>> parse_split("dirichlet:100:0.5").alpha
        0.5
    """
    text = text.strip()
    if match := re.fullmatch(r"p(\d+)c(\d+)(:duplicates)?", text, re.IGNORECASE | re.ASCII):
        clients, classes = (_whole(text, field, "pXcY") for field in match.groups()[:2])
        return Split("pXcY", clients=clients, classes=classes, options=("duplicates",) if match[3] else ())
    name, _, rest = text.partition(":")
    scheme = name.strip().lower()
    if scheme == "file" and rest.strip():
        return Split("file", path=rest.strip())
    fields = rest.split(":") if rest else []
    if scheme in ("iid", "incomplete") and len(fields) == 1:
        return Split(scheme, clients=_whole(text, fields[0], scheme))
    if scheme == "natural" and len(fields) <= 1 and text[-1:] != ":":
        return Split(scheme, clients=_whole(text, fields[0], scheme) if fields else None)
    if scheme in ("dirichlet", "dirichlet-client") and len(fields) == 2:
        return Split(
            scheme,
            clients=_whole(text, fields[0], scheme),
            alpha=_number(text, fields[1], scheme, "alpha", 1e-6),
        )
    if scheme == "shards" and len(fields) == 2:
        return Split(scheme, clients=_whole(text, fields[0], scheme), shards=_whole(text, fields[1], scheme))
    if scheme in ("equal", "lognormal") and len(fields) >= 2:
        clients, classes = (_whole(text, field, scheme) for field in fields[:2])
        if fields[2:] == [] or (scheme, fields[2:]) == ("equal", ["duplicates"]):
            return Split(scheme, clients=clients, classes=classes, options=tuple(fields[2:]))
    if scheme == "stages" and len(fields) >= 4:
        return _stages(text, fields)
    raise _nonsense(text, scheme)


def _stages(text: str, fields: list[str]) -> Split:
    clients, classes, stages = (_whole(text, field, "stages") for field in fields[:3])
    words = [word.strip().lower() for word in fields[4:]]
    sizes = [word for word in words if re.fullmatch(r"n\d{1,9}", word, re.ASCII)]
    options = tuple(word for word in OPTIONS if word in words)
    match = re.fullmatch(r"\s*if(.+)", fields[3], re.IGNORECASE)
    once = len(set(words)) == len(words) == len(options) + len(sizes) and len(sizes) <= 1
    if not match or not once or {"sorted_shards", "fedrep_shards"} <= set(options):
        raise _nonsense(text, "stages")
    imbalance = _number(text, match[1], "stages", "imbalance", 1.0)
    n_max = _whole(text, sizes[0][1:], "stages") if sizes else None
    return Split("stages", clients, classes, stages=stages, imbalance=imbalance, n_max=n_max, options=options)


def _nonsense(text: str, scheme: str) -> UsageError:
    if scheme in _INFO:
        return UsageError(f"split {text!r}: wanted {_INFO[scheme].syntax} ({_INFO[scheme].meaning})")
    near = difflib.get_close_matches(scheme, _INFO, n=2)
    hint = f"nearest: {', '.join(_INFO[name].syntax for name in near)}; " if near else ""
    return UsageError(f"unknown split {text!r}; {hint}known: {', '.join(info.syntax for info in SPLITS)}")


def _whole(text: str, field: str, scheme: str) -> int:
    if not re.fullmatch(r"\s*\d{1,9}\s*", field, re.ASCII):
        raise _nonsense(text, scheme)
    check_range(f"split {text!r}: count", int(field), 1, MAX_CLIENTS)
    return int(field)


def _number(text: str, field: str, scheme: str, what: str, low: float) -> float:
    try:
        value = float(field)
    except ValueError as cause:
        raise _nonsense(text, scheme) from cause
    check_range(f"split {text!r}: {what}", value, low, 1e6)
    return value
