"""What a table or figure of a paper consists of: cells, averages, claims, measures and scales; and studies.

A study is a figure that is not a table of federated runs. The entry points `raffed.studies` name them.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import entry_points
from pathlib import Path

from raffed.config.federation import FIXED, UNIFORM, Federation
from raffed.config.run import RunConfig
from raffed.config.sections import Data, Model
from raffed.errors import check_choice
from raffed.methods.authors import is_authors
from raffed.own.located import Sources
from raffed.runtime.machine import deterministic_kernels, set_threads
from raffed.tables.search import RowSearch

# The scales at which a table is reproduced: full, proxy or smoke.


SCALES = {
    "smoke": "digits and a small MLP, 2 rounds: does every cell run",
    "proxy": "less data, smaller networks, fewer rounds than the paper's: are signs and orders the paper's",
    "full": "the paper's own settings: are the numbers the paper's",
}

STUDY_SCALES = {  # the scales of an item that is a study
    **SCALES,
    "smoke": "seconds of training: does the study run",
    "full": "the paper's own settings, where it gives them",
}


NUMBERED = (FIXED, "power_of_choice")  # selections whose arguments depend on the number of clients


def smoke(config: RunConfig) -> RunConfig:
    """Return a tiny run of the same method and kind of split, on digits with a small MLP.

    It has at most ten clients and two rounds of one epoch. With stages, every stage is visited twice. What
    names a client or a round that it may not have is left out. A fifth of the clients attacks or never trains
    where some do.
    """
    from raffed.data.splits import parse_split  # late, because it loads NumPy

    federation, split = config.federation, parse_split(config.data.split, config.data.split_args).shrunk()
    rounds, held_out = 2 * split.stage_count, None if split.brings_tests else 0.2
    return replace(
        config,
        args={
            name: min(value, 1.0) if isinstance(value, int | float) and name.endswith("epochs") else value
            for name, value in config.args.items()
        },
        data=replace(
            config.data,
            dataset="digits",
            split=split,
            split_args={},
            transform="auto",
            transform_args={},
            local_test=held_out,
            samples=0,
        ),
        model=Model("mlp", {"hidden": [16]}),
        local=replace(
            config.local,
            batch_size=16,
            epochs=1,
            epochs_to=2 if config.local.epochs_to else 0,
            min_steps=1,
            warmup_rounds=0,
        ),
        federation=shortened(
            replace(
                federation,
                participation=max(federation.participation, 0.4),
                eval_every=1,
                selection=UNIFORM if federation.selection == FIXED else federation.selection,
                selection_args={} if federation.selection in NUMBERED else federation.selection_args,
                unseen_clients=0.2 if federation.unseen_clients else 0.0,
            ),
            rounds,
        ),
        faults=replace(
            config.faults, at="", attacker_list="", attackers=0.2 if config.faults.attack else 0.0
        ),
        clock=replace(config.clock, buffer=min(config.clock.buffer, 2)),
        runtime=replace(config.runtime, execution="serial"),
    )


def shortened(federation: Federation, rounds: int, eval_every: int | None = None) -> Federation:
    """Return the same federation for fewer rounds. A survey is not longer than the run."""
    every = federation.eval_every if eval_every is None else eval_every
    return replace(federation, rounds=rounds, survey=min(federation.survey, rounds), eval_every=every)


def stages_of(data: Data) -> int:
    """Return the number of stages M of the split; 1 without stages."""
    from raffed.data.splits import parse_split  # late, because it loads NumPy

    return parse_split(data.split, data.split_args).stage_count


# What is known of a table that other people printed.


@dataclass(frozen=True)
class Published:
    """A table that other people printed.

    Attributes:
        source: Who printed it, and the commit of the code that was read.
        protocol: Which number of a run is printed, and of how many runs.
        needs: Machine and data that the runs need.
        cost: Steps and estimated time of a run.
        defects: What is known to be wrong or unknown about the table, one sentence or two each.
        absent: Printed row → why it is not among the item's rows.
        lacks: What neither raffed nor this repository has and the exact table would need.
        may_differ: Fields of the configuration in which rows of a column differ on purpose, such as
            "local.lr".
        repeats: Name of a source in the csv → number of runs behind each of its numbers. The printed
            deviations of a source that is not here are not used, because their number of runs is unknown.
    """

    source: str
    protocol: str
    needs: str
    cost: str
    defects: tuple[str, ...] = ()
    absent: Mapping[str, str] = field(default_factory=dict)
    lacks: tuple[str, ...] = ()
    may_differ: tuple[str, ...] = ()
    repeats: Mapping[str, int] = field(default_factory=dict)

    def stated(self) -> list[str]:
        """Return lines that say before anything runs what the table needs, costs and leaves out."""
        return [
            f"needs {self.needs}; {self.cost}",
            *(f"not to be had here: {what}" for what in self.lacks),
            *(f"defect of the printed table: {what}" for what in self.defects),
            *(f"row {row} is absent: {why}" for row, why in self.absent.items()),
        ]


# How the number of a cell is read from its runs.


_WHOSE = {
    "downloaded": "the downloaded global model on the participants' local tests",
    "local": "the participants' models after local training on their local tests",
    "personal": "personal models on their local tests",
    "between": "all clients' models between rounds on their local tests",
}
_WHEN = {"last": "last scored round", "best": "best scored round"}

MEASURES = {  # what analysis/reproduction/verdicts.py can compute from runs; a contract test compares
    "accuracy_last": "global model on the test set after the last round, %",
    "accuracy_best": "global model on the test set at its best round, %",
    "accuracy_mean10": "global model on the test set, mean over the last ten evaluated rounds, %",
    "accuracy_clean_mean10": "global model, test images unseen by its server, mean of the last ten rounds, %",
    "accuracy_mean25": "global model on the test set, mean over the last 25 evaluated rounds, %",
    "accuracy_mean_fifth": "global model on the test set, mean over the last fifth of evaluated rounds, %",
    "accuracy_mean": "global model on the test set, mean over evaluated rounds: the higher, the sooner, %",
    "balanced_last": "global model on the test set after the last round, mean of the classes' accuracies, %",
    "balanced_best": "global model on the test set at its best round, mean of the classes' accuracies, %",
    "personal_last": "personal models on their local tests after the last round, mean over participants, %",
    "personal_mean10": "personal models on their local tests, mean over participants and ten rounds, %",
    "between_last": "all clients' models between rounds on their local tests, after the last one, mean, %",
    "between_mean10": "all clients' models between rounds on their local tests, mean over ten last rounds, %",
    "losing_last": "clients whose model after the last round is below the baseline's on the same split, %",
    "gaining_last": "clients whose model after the last round is above the baseline's on the same split, %",
    "personal_best": "personal models on their local tests at their best round, mean over participants, %",
    "between_best": "all clients' models between rounds on their local tests, mean, best surveyed round, %",
    **{
        f"{name}_weighted_{when}": f"{whose}: correct answers of all test samples together, {which}, %"
        for name, whose in _WHOSE.items()
        for when, which in _WHEN.items()
    },
    "training_last": "global model on the training samples of all clients together, last round, %",
    "training_best": "global model on the training samples of all clients together, best round, %",
    "a_loc": "clients' own models after training on the tests of all their stages, mean, last score, %",
    "a_glo": "the global model on the tests of all a client's stages, mean over clients and last visits, %",
    "a_sel": "model trained in the last stage on tests of all stages, mean over participants, last visits, %",
    "a_sel_global": "global model after the last stage on tests of all stages, mean over last visits, %",
    "a_sel_drop": "fall of A_sel from the first to the last stage, mean over participants, points",
    "floats_up": "numbers a client sends per round, millions",
    "seconds_round": "time of a round, median over rounds, seconds",
    "eigenvalue_variance": "variance of the top 50 eigenvalues of the global model's test features (R1)",
    "eigenvalue_variance_class": "variance of the top 50 eigenvalues in batches of one class, mean (R2)",
    "eigenvalue_variance_client": "variance of the top 50 eigenvalues of clients' models, training data (R3)",
    "eigenvalue_variance_raw": "variance of the top 50 eigenvalues of features not standardised (R4)",
    "rounds_to_baseline": "first round whose test accuracy reaches the baseline's best",
    "personal_rounds_to_baseline": "first round whose mean over all clients is the baseline's at its end",
}


SEEDS = {"smoke": 1, "proxy": 3, "full": 3}  # unless the item's search has a number of its own


@dataclass(frozen=True)
class Cell:
    """One number of a table: the run behind it (at full scale, seed 0), and where the paper prints it.

    Attributes:
        printed: Column → value of the paper's csv under analysis/printed; empty if nothing is printed. In a
            table of one's own "value" is the number itself.
        measure: How the number is read, if it differs from the item's other rows.
        setting: Which of several settings this run has; the number is that of the best.
        target: False if docs/papers says that the printed number is not to be reproduced. Ours is then shown
            beside it and not judged.
        witnesses: Where other sources print the same number. They are shown, and ours is not judged by them.
        chosen_as: The row whose best setting this row takes, because its runs are the same ones, read in
            another way. Without it the cell's own measure chooses.
    """

    row: str
    column: str
    config: RunConfig
    printed: Mapping[str, str]
    measure: str = ""
    setting: str = ""
    target: bool = True
    witnesses: tuple[Mapping[str, str], ...] = ()
    chosen_as: str = ""

    @property
    def place(self) -> tuple[str, ...]:
        """Return row, column and, if there are several, setting."""
        return (self.row, self.column, self.setting)[: 3 if self.setting else 2]


@dataclass(frozen=True)
class Average:
    """A column that is the mean of others, row by row.

    At a scale that lacks some of these columns, it is the mean of the rest. `printed` lacks only the method;
    it is empty if nothing is printed.
    """

    column: str
    of: tuple[str, ...]
    printed: Mapping[str, str]


# Factor, row, column, and a measure if it differs from the cell's
ClaimTerm = tuple[float, str, str] | tuple[float, str, str, str]


@dataclass(frozen=True)
class Claim:
    """A statement about an item's cells: Σ factor · value of the cell (row, column) − minus > 0.

    It is judged seed by seed, in pairs. A column may be that of an average.

    Attributes:
        within: If given, the statement is instead that the sum is no farther from 0 than this; with 0 both
            sides are the same numbers.
        given: Terms of a premise, whose sum must be above 0 for the claim to say anything, such as a gain of
            which half is claimed.
        sized: Whether the claim states a number of points of the paper's own runs. Smaller runs are not
            judged by it.
    """

    text: str
    terms: tuple[ClaimTerm, ...]
    given: tuple[ClaimTerm, ...] = ()
    minus: float = 0.0
    within: float | None = None
    sized: bool = False

    def places(self, averages: Mapping[str, Sequence[str]]) -> set[tuple[str, str]]:
        """Return (row, column) of its cells. An average stands for the columns that it is the mean of."""
        return {
            (row, part)
            for _, row, column, *_ in (*self.terms, *self.given)
            for part in averages.get(column, (column,))
        }

    @staticmethod
    def above(text: str, better: str, worse: str, column: str) -> Claim:
        """Claim that one row's value is above another's in a column."""
        return Claim(text, ((1.0, better, column), (-1.0, worse, column)))

    @staticmethod
    def near(text: str, one: str, other: str, column: str, within: float, measure: str = "") -> Claim:
        """Claim that two rows' values differ by at most `within` in a column; with 0 they are equal."""
        asked = (measure,) if measure else ()
        return Claim(text, ((1.0, one, column, *asked), (-1.0, other, column, *asked)), within=within)


@dataclass(frozen=True)
class Item:
    """A table or figure.

    Attributes:
        margin: How far from the printed number ours may lie and mean the same, in the measure's unit: the
            spread over runs that the source prints, √(mean s²) of its numbers that are to be reproduced, or
            1 point where it prints none. It is no wider than half of the largest printed gain over the
            baseline, so that the baseline in every row's place does not agree with all of them.
        picture: A name of PICTURES in analysis/reproduction/item_views.py, drawn beside the table.
        study: A name of `studies()`, for what is not a table of federated runs. There may then be
            no cells and no measure.
        released: The runs that the paper's released code makes for a cell, by setting, if the paper prints
            the best of them.
        source: The files that describe a table of one's own.
        search: How the rows get their settings, if they are tuned. The cells' runs then have the settings
            that all trials share. Such runs are small, and by default each has one process.
    """

    paper: str
    name: str
    title: str
    measure: str = ""
    cells: tuple[Cell, ...] = ()
    averages: tuple[Average, ...] = ()
    margin: float = 1.0
    baseline: str = "FedAvg"
    note: str = ""
    proxy: Callable[[RunConfig], RunConfig | None] | None = None
    study: str = ""
    claims: tuple[Claim, ...] = ()
    picture: str = ""
    released: Callable[[RunConfig], Mapping[str, RunConfig]] | None = None
    source: Sources | None = field(default=None, compare=False)
    search: RowSearch | None = field(default=None, compare=False)
    published: Published | None = field(default=None, compare=False)

    @property
    def key(self) -> str:
        return f"{self.paper}/{self.name}"

    def folder(self, scale: str, out: Path) -> Path:
        """Return the folder of its tables and report."""
        return out / self.paper / self.name / scale

    def seeds(self, scale: str) -> int:
        """Return how many runs a cell has at a scale, if nobody asks for another number."""
        return SEEDS[scale] if self.search is None or scale == "smoke" else self.search.seeds

    def meaning(self, scale: str) -> str:
        """Return what a scale means for this item."""
        if self.search is not None and scale == "full":
            return "every row tuned in the same way, then repeated with fresh seeds"
        return (STUDY_SCALES if self.study and not self.cells else SCALES)[scale]

    def at(self, cell: Cell, scale: str, seed: int = 0) -> RunConfig | None:
        """Return the run of a cell at a scale; None if the scale leaves it out."""
        config: RunConfig | None = cell.config
        if scale == "proxy" and self.proxy is not None:
            config = self.proxy(cell.config)
        elif scale == "smoke":
            config = None if is_authors(cell.config.method) else smoke(cell.config)
        return config if config is None else replace(config, seed=seed)

    def averaged(self, scale: str) -> list[tuple[Average, tuple[str, ...]]]:
        """Return the averages, each with those of its columns that the scale has. Averages without any are
        left out.
        """
        there = {cell.column for cell in self.cells if self.at(cell, scale) is not None}
        parts = [(mean, tuple(column for column in mean.of if column in there)) for mean in self.averages]
        return [(mean, of) for mean, of in parts if of]


STUDY_FILE = "study.json"


def _silent(what: str, share: float) -> None:
    """Ignore reports of progress."""


@dataclass(frozen=True)
class Work:
    """One study to be executed at a scale with a seed, in a folder of its own.

    The same study, scale, seed, device and threads give the same bits.

    Attributes:
        root: The data folder; None means RAFFED_DATA.
        tell: Called with what is being done, and with the share of all work done, in [0, 1].
        device: "cpu" or "cuda".
        threads: Number of torch threads.
    """

    study: str
    scale: str
    seed: int
    folder: Path
    root: str | None = None
    tell: Callable[[str, float], None] = _silent
    device: str = "cpu"
    threads: int = 1


@dataclass(frozen=True)
class StudyInfo:
    """What a study shows, how long it takes, and what it reads.

    It maps each scale to the seconds on two slow cores without a GPU, and to the data sets. The seconds at
    smoke scale, and at proxy scale of MAP's Figs. 5, 6 and 8 and of the leakage, were measured. The others
    are computed from their numbers of steps.
    """

    title: str
    seconds: Mapping[str, float]
    data: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@functools.cache
def _packages() -> dict[str, Mapping[str, StudyInfo]]:
    """Return package → its studies. Each study is a module of its package."""
    return {entry.module: entry.load() for entry in entry_points(group="raffed.studies")}


def studies() -> dict[str, StudyInfo]:
    """Return every study that is installed, by its name. It does not import torch."""
    return {name: info for known in _packages().values() for name, info in known.items()}


def execute_study(work: Work) -> None:
    """Execute a study from its beginning. Earlier contents of its folder are replaced."""
    check_choice("study", work.study, studies())
    import torch

    if torch.device(work.device).type == "cuda":
        deterministic_kernels()
    (package,) = (package for package, known in _packages().items() if work.study in known)
    module, threads = importlib.import_module(f"{package}.{work.study}"), torch.get_num_threads()
    set_threads(work.threads)
    try:
        module.run(work)
    finally:
        set_threads(threads)
