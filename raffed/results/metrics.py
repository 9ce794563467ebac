"""METRICS, the table of everything that a run can measure. Each metric is declared once, as a constant.

Rows are made from them (`Metric.row`), the writer refuses rows that METRICS does not know, `raffed metrics`
prints it, and analysis reads rows by it.
"""

from __future__ import annotations

from collections.abc import Iterable

from raffed.results.metric import Direction, Level, Metric, MetricTable, Unit

FRACTION = Unit("fraction", 0.0, 1.0)
NATS = Unit("nats", 0.0)
OBJECTIVE = Unit("nats, with the method's own terms")  # a term can be negative, such as FedDyn's
CLIENTS = Unit("clients", 0.0)
NUMBERS = Unit("numbers", 0.0)
VARIANCE = Unit("variance", 0.0)
EPSILON = Unit("ε", 0.0)
SECONDS = Unit("seconds", 0.0)
ROUNDS = Unit("rounds", 0.0)
RATIO = Unit("ratio", 0.0)
METRICS = MetricTable()


def metric_lines(metrics: Iterable[Metric] = METRICS) -> list[tuple[str, ...]]:
    """Return metrics as lines of a table: name, model, split, rows, unit, better, when and meaning."""
    return [
        (
            metric.title,
            metric.model,
            metric.split,
            ", ".join(metric.levels),
            metric.unit.name,
            metric.better,
            metric.when,
            f"{metric.meaning} (n: {metric.n})",
        )
        for metric in metrics
    ]


def declare(
    name: str,
    where: str,
    when: str,
    meaning: str,
    *,
    unit: Unit = FRACTION,
    levels: Level | tuple[Level, ...] = "global",
    better: Direction = "higher",
    n: str = "samples",
    numbered: bool = False,
    named: bool = False,
) -> Metric:
    """Register one of raffed's own metrics, and return it. `where` is its model and its split."""
    model, split = where.split()
    several: tuple[Level, ...] = (levels,) if isinstance(levels, str) else levels
    return METRICS.register(
        Metric(name, model, split, unit, several, better, when, meaning, n, numbered=numbered, named=named)
    )


def per_client(name: str, where: str, when: str, meaning: str) -> Metric:
    """Register a metric that has a row for each client, and one for the mean over clients."""
    return declare(name, where, when, meaning, levels=_EACH, n=_CLIENTS)


SURVEYED = "surveyed rounds, in which every client is scored after aggregation"
_CLIENTS = "samples; of the mean: clients"
_EACH: tuple[Level, ...] = ("client", "mean")

# Calibration and fairness over clients, which runs have if they ask for them

CALIBRATED = "after the last round, with measures = calibration"
FAIR = "after the last round, with measures = fairness"

CALIBRATION = declare(
    "calibration_error",
    "global test",
    CALIBRATED,
    "expected calibration error of the aggregated model on the test set, in 15 bins of confidence",
    better="lower",
)
_WHOSE = {
    "global": "the downloaded model",
    "personal": "the personalised models",
}
WORST_DECILE = {
    model: declare(
        "accuracy_worst_decile",
        f"{model} local_test",
        FAIR,
        f"{whose}: mean accuracy of the tenth of the last round's participants with the lowest, each on "
        "its own test part",
        n="participants with a test part",
    )
    for model, whose in _WHOSE.items()
}
SPREAD = {
    model: declare(
        "accuracy_spread",
        f"{model} local_test",
        FAIR,
        f"{whose}: standard deviation of the accuracy over participants, each on its own test part",
        better="lower",
        n="participants with a test part",
    )
    for model, whose in _WHOSE.items()
}
_NEW = {
    "global": "the server's model on each client that never trained",
    "personal": "the model that the method gives a new client, on each client that never trained",
}
UNSEEN = {
    model: per_client(
        "accuracy_unseen",
        f"{model} local_test",
        "after the last round and in surveyed ones, with unseen_clients above 0",
        f"{whose}, on its own test part",
    )
    for model, whose in _NEW.items()
}

# Every evaluated round, derived from counted answers (`ScoreCounts`)

EVALUATED = "every evaluated round"
VALIDATED = "evaluated rounds, with a validation part"


TEST_ACCURACY = declare(
    "accuracy",
    "global test",
    EVALUATED,
    "the aggregated model on the test set, and one row for each class. Balanced accuracy is the mean of "
    "those that are numbers",
    levels=("global", "class"),
)
TEST_LOSS = declare(
    "loss",
    "global test",
    EVALUATED,
    "cross-entropy of the aggregated model on the test set, mean over samples",
    unit=NATS,
    better="lower",
)
TEST_F1 = declare("macro_f1", "global test", EVALUATED, "macro-F1 of the aggregated model on the test set")
_OWN = {
    "global": "the downloaded model, before training",
    "local": "the participant's model after training",
    "personal": "the participant's personalised model",
}
ACCURACY = {
    model: per_client(
        "accuracy",
        f"{model} local_test",
        EVALUATED,
        f"{whose}, on the participant's own test part",
    )
    for model, whose in _OWN.items()
}
DOWNLOADED_ACCURACY, LOCAL_ACCURACY, PERSONAL_ACCURACY = ACCURACY.values()
OBSERVED = {
    model: declare(
        "accuracy_observed",
        f"{model} local_test",
        EVALUATED,
        f"{whose}, if only classes of the client's training data may be the answer",
        levels=_EACH if model == "personal" else "mean",
        n=_CLIENTS,
    )
    for model, whose in _OWN.items()
}
PERSONAL_OBSERVED = OBSERVED["personal"]
F1 = {
    model: declare(
        "macro_f1", f"{model} local_test", EVALUATED, f"macro-F1 of {whose}", levels="mean", n="clients"
    )
    for model, whose in _OWN.items()
}
PERSONAL_F1 = F1["personal"]

# Evaluated rounds of some methods and settings

PRIVATE_ACCURACY = per_client(
    "accuracy_private",
    "personal local_test",
    "evaluated rounds of methods with a private second stage, such as MAP",
    "the privately trained model, before the personal model inherits it",
)
CLEAN_ACCURACY = declare(
    "accuracy_clean",
    "global test",
    "evaluated rounds of methods whose server sees test images, such as FedDF",
    "accuracy on the test images that the server has not seen",
    n="the other test images",
)
BROADCAST_ACCURACY = declare(
    "accuracy_broadcast",
    "global test",
    "evaluated rounds of FedDyn and FedDC",
    "the weights that are sent out, where the scored model is the mean of the round's local models",
)
ATTACK_SUCCESS = declare(
    "attack_success",
    "global test",
    "evaluated rounds of runs with a backdoor",
    "fraction of the test images of other classes that the aggregated model takes for the backdoor's target "
    "once they have its patch",
    better="lower",
)
STAGE_ACCURACY = declare(
    "accuracy_stage",
    "personal local_test",
    "evaluated rounds, with data in stages",
    "the test part of one stage, from 0 up to the present stage; `accuracy` is measured on these parts "
    "together",
    levels="client",
    numbered=True,
)
TRAINING_ACCURACY = declare(
    "accuracy",
    "global train",
    "evaluated rounds, with measures = training",
    "the aggregated model on the training samples of all clients together, prepared as for tests",
)
VALIDATION_ACCURACY = declare(
    "accuracy",
    "global val",
    VALIDATED,
    "the aggregated model on the validation parts of all clients together",
)
VALIDATION_LOSS = declare(
    "loss",
    "global val",
    VALIDATED,
    "cross-entropy of the aggregated model on the validation parts of all clients together",
    unit=NATS,
    better="lower",
)
PERSONAL_VALIDATION = per_client(
    "accuracy",
    "personal val",
    VALIDATED,
    "each participant's personalised model on its own validation part",
)

# Surveyed rounds

GLOBAL_BETWEEN = per_client(
    "accuracy_between",
    "global local_test",
    SURVEYED,
    "the server's model on each client's own test part",
)
ORACLE_BETWEEN = per_client(
    "accuracy_oracle",
    "global local_test",
    f"{SURVEYED}, if clients keep layers",
    "the server's model, completed by the mean of the participants' layers. Nobody in a real federation "
    "could form this model",
)
PERSONAL_BETWEEN = per_client(
    "accuracy_between",
    "personal local_test",
    SURVEYED,
    "the server's model with what the client keeps",
)

# Not scores: training loss, participation, faults, privacy, features and memory

EVERY = "every round"
SPECTRUM = "after the last round, with measures = spectrum"
MEMORY = "after the last round, with measures = memory"
FAULTS = "every round, with faults"
CLOCK = "every round, with a virtual clock"
NOISE = "every round, with noise and the extra `privacy`"

TRAINING_LOSS = declare(
    "loss",
    "global train",
    EVERY,
    "mean training loss. bytes_up and bytes_down: what all participants together sent and received. seconds: "
    "wall time of the round",
    unit=OBJECTIVE,
    better="lower",
    n="samples that all participants trained on",
)
CLIENT_LOSS = declare(
    "loss",
    "local train",
    EVERY,
    "training loss of each participant, with its own bytes. seconds: wall time of its local round without "
    "scoring, keeping its state and sending",
    unit=OBJECTIVE,
    levels="client",
    better="lower",
)

VIRTUAL_SECONDS = declare(
    "virtual_seconds",
    "global train",
    CLOCK,
    "time on the virtual clock at which the server has made the model of this round",
    unit=SECONDS,
    better="lower",
    n="participants whose uploads the model is made of",
)
STALENESS = declare(
    "staleness",
    "global train",
    CLOCK + " whose server does not wait",
    "mean number of steps that the server has made since the clients of these uploads began",
    unit=ROUNDS,
    better="lower",
    n="uploads",
)

NEVER_SELECTED = declare(
    "never_selected",
    "personal local_test",
    SURVEYED,
    "clients that have taken part in no round so far",
    unit=CLIENTS,
    better="lower",
    n="all clients",
)

# After the last round

SPECTRUM_BATCHES, SPECTRUM_CLASSES, SPECTRUM_RAW = (
    declare(name, "global test", SPECTRUM, meaning, unit=VARIANCE, better="neither", n="batches")
    for name, meaning in {
        "eigenvalue_variance": (
            "variance of the top eigenvalues of the features, mean over full batches of 128 test samples"
        ),
        "eigenvalue_variance_class": "as eigenvalue_variance, with batches of one class, mean over classes",
        "eigenvalue_variance_raw": "as eigenvalue_variance, with features that are not standardised",
    }.items()
)
SPECTRUM_CLIENTS = declare(
    "eigenvalue_variance",
    "local train",
    SPECTRUM,
    "each participant's trained model on its training data. NaN without a full batch",
    unit=VARIANCE,
    levels=_EACH,
    better="neither",
    n="batches; of the mean: clients",
)
FLOATS_MODEL, FLOATS_TRAINING, FLOATS_KEPT = (
    declare(name, "local train", MEMORY, meaning, unit=NUMBERS, better="lower", n="none")
    for name, meaning in {
        "floats_model": "numbers in a client's model: weights and BatchNorm's statistics",
        "floats_training": "numbers that a client holds during training",
        "floats_kept": "numbers that a client keeps from one round to the next",
    }.items()
)

# How strong the terms of a method are

TERM_STRENGTH = {
    model: declare(
        "term_strength",
        f"{model} train",
        "evaluated rounds, with measures = term_strength, of methods with terms",
        f"norm of the gradient of all terms, relative to that of the cross-entropy, in the shared layers "
        f"below the head, at {where}. The common row is the median over participants. term_strength_NAME is "
        "that of one term",
        unit=RATIO,
        levels=_EACH,
        better="neither",
        n="batches; of the median: clients",
        named=True,
    )
    for model, where in {
        "global": "the model with which a participant's training starts",
        "local": "the one with which it ends",
    }.items()
}

# With faults or with noise

DROPPED, LATE, REFUSED, STRAGGLING = (
    declare(name, "global train", FAULTS, meaning, unit=CLIENTS, better="lower", n="clients drawn")
    for name, meaning in {
        "dropped": "participants that did nothing",
        "late": "participants whose upload came too late",
        "refused": "participants whose upload was refused",
        "straggling": "participants that made fewer steps; they may also be late or refused",
    }.items()
)
ATTACKING = declare(
    "attacking",
    "global train",
    "every round, with an attack",
    "participants that attack",
    unit=CLIENTS,
    better="lower",
    n="clients that trained",
)
EPSILON_SPENT = declare(
    "epsilon",
    "global train",
    NOISE,
    "ε of (ε, δ) so far, for the client that took part in most rounds",
    unit=EPSILON,
    better="lower",
    n="rounds of that client",
)
EPSILON_POISSON = declare(
    "epsilon_poisson",
    "global train",
    f"{NOISE}, at the server only",
    "ε for Poisson sampling kept secret, as papers usually report it",
    unit=EPSILON,
    better="lower",
    n="rounds",
)
