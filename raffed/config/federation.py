"""The section `federation` of a run's configuration. This module imports neither torch nor Ray."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Literal, TypeAlias

from raffed.budget import file_bytes
from raffed.config.aggregation import (
    COMPRESSIONS,
    MEANS,
    CompressionRule,
    MeanRule,
)
from raffed.config.validation import (
    Declaration,
    Doc,
    Importable,
    Name,
    Range,
    Value,
    Words,
    check_values,
    declarations,
    keep,
)
from raffed.errors import UnknownNameError, UsageError
from raffed.own.located import is_reference
from raffed.own.names import as_name

# The rules that choose the participants of a round, and their arguments. The draws themselves are in
# `raffed.federation.selection`. A rule of one's own is a function, named by reference.


UNIFORM = "uniform"
FIXED = "fixed"


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
    clients = client_numbers("selection fixed", text)
    if len(set(clients)) < len(clients):
        raise UsageError(f"selection fixed: a client stands twice in {text.strip()!r}; leave one out")
    return tuple(sorted(clients))


def _read(file: str) -> str:
    content = file_bytes("selection fixed: file", file, "give a file with numbers")
    lines = content.decode("utf-8-sig", errors="replace").splitlines()
    return "; ".join(line.strip() for line in lines if line.strip())


def settled_arguments(
    field: str, rules: Mapping[str, Callable[..., object]], name: str, given: Mapping[str, Value]
) -> dict[str, Value]:
    """Return the arguments of a rule in one spelling.

    Args:
        field: The field of the section `federation` that names the rule. Its option has the same name.
        rules: Name → rule, whose parameters are its arguments.
        name: A key of `rules`, or "" for no rule.
        given: The arguments as they were given.

    Raises:
        UnknownNameError: The rule has no such argument.
        UsageError: An argument has another type or is outside its range, or there is no rule for it.
    """
    if not name:
        if given:
            raise UsageError(
                f"federation.{field}_args = {dict(given)} has no effect without federation.{field}; give "
                f"--{field} too"
            )
        return {}
    return check_values(f"{field} {name}", declarations(rules[name]), given)


# Numbers of clients as they are typed, such as 0,3,5-7.


def client_numbers(what: str, text: str) -> list[int]:
    """Return the clients that a text lists, in its order.

    Args:
        what: Name of the setting, for messages.
        text: Numbers and ranges, separated by commas or spaces.

    Raises:
        UsageError: A part is neither a number nor a range.

    >>> client_numbers("clients", "0, 3, 5-7")
    [0, 3, 5, 6, 7]
    """
    clients: list[int] = []
    for part in filter(None, re.split(r"[,\s]+", text.strip())):
        match = re.fullmatch(r"(\d+)(?:-(\d+))?", part)
        if match is None or int(match[2] or match[1]) < int(match[1]):
            raise UsageError(f"{what}: {part!r} is not the number of a client, as 3, nor a range, as 5-7")
        clients += range(int(match[1]), int(match[2] or match[1]) + 1)
    return clients


# When a run ends before its last round: the text of `stop_when`, and what it means.
#
#     val.accuracy no better for 20 rounds
#     val.accuracy no better for 20 rounds by 0.001
#     val.loss below 0.1
#
# The measures come from the clients' validation parts. No test data can decide when a run ends.


# Measure → whether a larger value is better
MEASURES = {"val.accuracy": True, "val.loss": False, "val.personal": True}
FORMS = "'val.accuracy no better for 20 rounds', with 'by 0.001' behind it, or 'val.loss below 0.1'"
_NUMBER = r"([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)"
_WAITING = re.compile(rf"no better for (\d{{1,9}}) rounds?(?: by {_NUMBER})?")
_BOUND = re.compile(rf"(above|below) {_NUMBER}")


@dataclass(frozen=True)
class StopRule:
    """A rule that ends a run.

    Attributes:
        measure: One of MEASURES.
        kind: "waiting": the measure has not become better for `rounds` rounds. "above" and "below": it has
            passed `bound`.
        rounds: Number of rounds of a waiting rule.
        bound: Of a waiting rule, by how much a value must be better to count, at least 0.
    """

    measure: str
    kind: Literal["waiting", "above", "below"]
    rounds: int = 0
    bound: float = 0.0

    def reason(self, curve: ValidationCurve, round: int) -> str:
        """Return why the run ends after `round` rounds; empty if it goes on.

        Args:
            curve: The values of the measure so far, the one of this round among them.
            round: Number of rounds done.
        """
        value = curve.values.get(round)
        if value is None:
            return ""
        if self.kind == "waiting":
            best = curve.best(self.bound)
            since = 0 if best is None else best[0]
            if round - since < self.rounds:
                return ""
            progress = "it was never a number" if best is None else f"best {best[1]:.4g} after round {since}"
            return f"{self.measure} no better for {self.rounds} rounds ({progress})"
        passed = value > self.bound if self.kind == "above" else value < self.bound
        return f"{self.measure} {self.kind} {self.bound:g} ({value:.4g})" if passed else ""


class ValidationCurve:
    """The values of one measure, by the number of rounds done."""

    def __init__(self, measure: str, values: Iterable[tuple[int, float]] = ()) -> None:
        self.measure, self.values = measure, dict(values)

    def better(self, value: float, than: float | None, by: float = 0.0) -> bool:
        """Return whether a value is better than another one by more than `by`. NaN is never better."""
        if than is None:
            return not math.isnan(value)
        return value > than + by if MEASURES[self.measure] else value < than - by

    def best(self, by: float = 0.0) -> tuple[int, float] | None:
        """Return round and value of the last improvement by more than `by`; the earliest among equals."""
        best: tuple[int, float] | None = None
        for round, value in sorted(self.values.items()):
            if self.better(value, None if best is None else best[1], by):
                best = round, value
        return best


def read_rule(text: str) -> StopRule | None:
    """Return the rule that a text stands for; None for an empty text.

    Raises:
        UsageError: The text is not a rule.
    """
    words = " ".join(text.split())
    if not words:
        return None
    measure, _, condition = words.partition(" ")
    if measure not in MEASURES:
        raise UsageError(
            f"federation.stop_when = {text!r}: {measure!r} cannot end a run; it must be one of "
            f"{', '.join(MEASURES)}, because test data may not decide"
        )
    if waiting := _WAITING.fullmatch(condition):
        rounds, by = int(waiting[1]), float(waiting[2] or 0.0)
        if rounds and by >= 0:
            return StopRule(measure, "waiting", rounds, by)
    elif bound := _BOUND.fullmatch(condition):
        return StopRule(measure, "above" if bound[1] == "above" else "below", 0, float(bound[2]))
    raise UsageError(f"federation.stop_when = {text!r}: it must be {FORMS}")


@dataclass(frozen=True)
class Federation:
    """How many rounds a run has, who takes part in them, and when models are evaluated."""

    rounds: Annotated[int, Range(1), Doc("Number of rounds T.")] = 20
    participation: Annotated[
        float,
        Range(0.0, 1.0, open_low=True),
        Doc(
            "Fraction Q of the clients that take part in a round. In every round, round(Q·N) of the N "
            "clients, but at least one, are drawn uniformly without replacement."
        ),
    ] = 1.0
    eval_every: Annotated[
        int,
        Range(1),
        Doc(
            "Rounds between evaluations of the global model, which is also evaluated after the last round. "
            "The participants' models are evaluated on their local test parts in the same rounds."
        ),
    ] = 1
    survey: Annotated[
        int,
        Range(0),
        Doc(
            "Number of last rounds in which the participants' models are evaluated as well; 0: no survey. "
            "After the last round, all clients' models are scored on their local test parts as they stand at "
            "that time."
        ),
    ] = 0
    measures: Annotated[
        str,
        Words(
            "memory", "spectrum", "calibration", "fairness", "training", "term_strength"
        ),  # docs/metrics.md
        Doc(
            "Additional measurements, separated by commas. `training` and `term_strength` are made whenever "
            "the global model is evaluated, the others after the last round."
        ),
    ] = ""
    strength_every: Annotated[
        int,
        Range(1),
        Doc(
            "Rounds between measurements of `term_strength`, which is also measured after the last round. It "
            "is measured only in rounds in which the global model is evaluated."
        ),
    ] = 1
    metrics: Annotated[
        Name[Importable | Sequence[str | Importable]],
        Doc(
            "Metric of your own, ./file.py:NAME or package.module:NAME, a function of scores and labels; "
            "repeat for more. A file lists them. They are measured whenever models are evaluated. In Python "
            "they may be the functions themselves."
        ),
    ] = Name("")
    unseen_clients: Annotated[
        float,
        Range(0.0, 0.99),
        Doc(
            "Fraction of the clients that never train. round(fraction · N) clients, drawn by the seed, are "
            "only scored, as clients that come new, after the last round and in surveyed ones."
        ),
    ] = 0.0
    weighting: Annotated[
        Literal["", "samples", "clients"],
        Doc(
            "Weights p_k of the mean of the uploads; without it: the method's own. They are n_k / Σ n for "
            "`samples` and 1/|S| for `clients`."
        ),
    ] = ""

    stop_when: Annotated[
        str,
        Doc(
            'Rule that ends the run early, such as "val.accuracy no better for 20 rounds"; without it: no '
            "early end. It needs a validation part."
        ),
    ] = ""
    forked_at: Annotated[
        int, Range(0), Doc("Set by `raffed fork`: number of rounds that the other run had done.")
    ] = 0
    fork_sha256: Annotated[
        str, Doc("Set by `raffed fork`: SHA-256 of the checkpoint from which the run was continued.")
    ] = ""

    selection: Annotated[
        str,
        Doc(
            "How the participants of a round are chosen: uniform, size, power_of_choice, round_robin, fixed, "
            "or ./file.py:NAME for your own rule. In Python it may be the function itself, which is stored "
            "as its reference."
        ),
    ] = UNIFORM
    selection_args: Annotated[
        Mapping[str, Value], Doc("Argument of the selection, such as candidates=20; repeat for more.")
    ] = field(default_factory=dict)
    mean: Annotated[
        Literal["", "median", "trimmed", "krum", "multi_krum", "geometric_median", "norm_bound"],
        Doc("Robust rule in place of the mean of the uploads; without it: the mean."),
    ] = ""
    mean_args: Annotated[
        Mapping[str, Value], Doc("Argument of the robust rule, such as beta=0.3; repeat for more.")
    ] = field(default_factory=dict)
    compression: Annotated[
        Literal["", "topk", "quantize"],
        Doc("Compression of the weights that a client uploads; without it: none."),
    ] = ""
    compression_args: Annotated[
        Mapping[str, Value], Doc("Argument of the compression, such as fraction=0.01; repeat for more.")
    ] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._settle_rules()
        given = self.metrics if isinstance(self.metrics, str | list | tuple) else [self.metrics]
        names = [given] if isinstance(given, str) else [as_name(metric) for metric in given]
        if all(isinstance(name, str) for name in names):  # the check of the field reports anything else
            keep(self, metrics=",".join(map(str, names)))

    def _settle_rules(self) -> None:
        """Store the selection, the mean, the compression and their arguments in one spelling."""
        keep(self, selection=as_name(self.selection))
        if isinstance(self.selection, str) and isinstance(self.selection_args, Mapping):
            keep(self, selection_args=settled_selection(self.selection, self.selection_args))
        if self.mean in ("", *MEANS) and isinstance(self.mean_args, Mapping):
            keep(self, mean_args=settled_arguments("mean", MEANS, self.mean, self.mean_args))
        if self.compression in ("", *COMPRESSIONS) and isinstance(self.compression_args, Mapping):
            given = self.compression, self.compression_args
            keep(self, compression_args=settled_arguments("compression", COMPRESSIONS, *given))

    def rule(self) -> Rule | None:
        """Return the rule of the selection, or None if it is the user's own."""
        return SELECTIONS[self.selection](**self.selection_args) if self.selection in SELECTIONS else None

    def mean_rule(self) -> MeanRule | None:
        """Return the robust rule in place of the mean, or None."""
        return MEANS[self.mean](**self.mean_args) if self.mean else None

    def compression_rule(self) -> CompressionRule | None:
        """Return the compression of uploads, or None."""
        return COMPRESSIONS[self.compression](**self.compression_args) if self.compression else None

    def participants(self, clients: int) -> int:
        """Return the number of participants |S_t| = round(Q·N) of a round, at least 1.

        Of a fixed list it is the largest number of participants of its rounds.

        Args:
            clients: Number N of all clients.
        """
        rule = self.rule()
        if isinstance(rule, Fixed):
            return max(map(len, rule.rounds()))
        return max(1, round(self.participation * clients))

    def measures_strength(self, round: int) -> bool:
        """Return whether the measure `term_strength` is due in an evaluated round, counted from 0."""
        due = (round + 1) % self.strength_every == 0 or round + 1 == self.rounds
        return due and self.asks("term_strength")

    def asks(self, name: str) -> bool:
        """Return whether `measures` contains the name of an additional measurement."""
        return name in (measure.strip() for measure in self.measures.split(","))
