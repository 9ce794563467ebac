"""The section `federation` of a run's configuration. This module imports neither torch nor Ray."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Literal

from raffed.config.aggregation import (
    COMPRESSIONS,
    MEANS,
    CompressionArgs,
    CompressionName,
    CompressionRule,
    MeanArgs,
    MeanName,
    MeanRule,
    settled_arguments,
)
from raffed.config.names import Importable, Name, keep
from raffed.config.selection import (
    SELECTIONS,
    UNIFORM,
    Fixed,
    Rule,
    SelectionArgs,
    SelectionName,
    settled_selection,
)
from raffed.config.validation import Doc, Range, Words
from raffed.own.names import as_name


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

    selection: SelectionName = UNIFORM
    selection_args: SelectionArgs = field(default_factory=dict)
    mean: MeanName = ""
    mean_args: MeanArgs = field(default_factory=dict)
    compression: CompressionName = ""
    compression_args: CompressionArgs = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._settle_rules()
        given = self.metrics if isinstance(self.metrics, str | list | tuple) else [self.metrics]
        names = [given] if isinstance(given, str) else [as_name(one) for one in given]
        if all(isinstance(one, str) for one in names):  # anything else is reported by the check of the field
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
        return name in (one.strip() for one in self.measures.split(","))
