"""The metrics that are not scores: training loss, participation, faults, privacy, features and memory."""

from __future__ import annotations

from raffed.results.metric import (
    CLIENTS,
    EPSILON,
    NUMBERS,
    OBJECTIVE,
    RATIO,
    ROUNDS,
    SECONDS,
    VARIANCE,
)
from raffed.results.metric_table import declare
from raffed.results.score_metrics import SURVEYED

EVERY = "every round"
SPECTRUM = "after the last round, with measures = spectrum"
MEMORY = "after the last round, with measures = memory"
FAULTS = "every round, with faults"
CLOCK = "every round, with a virtual clock"
NOISE = "every round, with noise and the extra `privacy`"

TRAINING_LOSS = declare(
    "loss",
    "global train",
    OBJECTIVE,
    "global",
    "lower",
    EVERY,
    "samples that all participants trained on",
    "mean training loss. bytes_up and bytes_down: what all participants together sent and received. seconds: "
    "wall time of the round",
)
CLIENT_LOSS = declare(
    "loss",
    "local train",
    OBJECTIVE,
    "client",
    "lower",
    EVERY,
    "samples",
    "training loss of each participant, with its own bytes. seconds: wall time of its local round without "
    "scoring, keeping its state and sending",
)

VIRTUAL_SECONDS = declare(
    "virtual_seconds",
    "global train",
    SECONDS,
    "global",
    "lower",
    CLOCK,
    "participants whose uploads the model is made of",
    "time on the virtual clock at which the server has made the model of this round",
)
STALENESS = declare(
    "staleness",
    "global train",
    ROUNDS,
    "global",
    "lower",
    CLOCK + " whose server does not wait",
    "uploads",
    "mean number of steps that the server has made since the clients of these uploads began",
)

NEVER_SELECTED = declare(
    "never_selected",
    "personal local_test",
    CLIENTS,
    "global",
    "lower",
    SURVEYED,
    "all clients",
    "clients that have taken part in no round so far",
)

# After the last round

SPECTRUM_BATCHES = declare(
    "eigenvalue_variance",
    "global test",
    VARIANCE,
    "global",
    "neither",
    SPECTRUM,
    "batches",
    "variance of the top eigenvalues of the features, mean over full batches of 128 test samples",
)
SPECTRUM_CLASSES = declare(
    "eigenvalue_variance_class",
    "global test",
    VARIANCE,
    "global",
    "neither",
    SPECTRUM,
    "batches",
    "as eigenvalue_variance, with batches of one class, mean over classes",
)
SPECTRUM_RAW = declare(
    "eigenvalue_variance_raw",
    "global test",
    VARIANCE,
    "global",
    "neither",
    SPECTRUM,
    "batches",
    "as eigenvalue_variance, with features that are not standardised",
)
SPECTRUM_CLIENTS = declare(
    "eigenvalue_variance",
    "local train",
    VARIANCE,
    ("client", "mean"),
    "neither",
    SPECTRUM,
    "batches; of the mean: clients",
    "each participant's trained model on its training data. NaN without a full batch",
)
FLOATS_MODEL = declare(
    "floats_model",
    "local train",
    NUMBERS,
    "global",
    "lower",
    MEMORY,
    "none",
    "numbers in a client's model: weights and BatchNorm's statistics",
)
FLOATS_TRAINING = declare(
    "floats_training",
    "local train",
    NUMBERS,
    "global",
    "lower",
    MEMORY,
    "none",
    "numbers that a client holds during training",
)
FLOATS_KEPT = declare(
    "floats_kept",
    "local train",
    NUMBERS,
    "global",
    "lower",
    MEMORY,
    "none",
    "numbers that a client keeps from one round to the next",
)

# How strong the terms of a method are

TERM_STRENGTH = {
    model: declare(
        "term_strength",
        f"{model} train",
        RATIO,
        ("client", "mean"),
        "neither",
        "evaluated rounds, with measures = term_strength, of methods with terms",
        "batches; of the median: clients",
        f"norm of the gradient of all terms, relative to that of the cross-entropy, in the shared layers "
        f"below the head, at {where}. The common row is the median over participants. term_strength_NAME is "
        "that of one term",
        named=True,
    )
    for model, where in {
        "global": "the model with which a participant's training starts",
        "local": "the one with which it ends",
    }.items()
}

# With faults or with noise

DROPPED, LATE, REFUSED, STRAGGLING = (
    declare(name, "global train", CLIENTS, "global", "lower", FAULTS, "clients drawn", meaning)
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
    CLIENTS,
    "global",
    "lower",
    "every round, with an attack",
    "clients that trained",
    "participants that attack",
)
EPSILON_SPENT = declare(
    "epsilon",
    "global train",
    EPSILON,
    "global",
    "lower",
    NOISE,
    "rounds of that client",
    "ε of (ε, δ) so far, for the client that took part in most rounds",
)
EPSILON_POISSON = declare(
    "epsilon_poisson",
    "global train",
    EPSILON,
    "global",
    "lower",
    f"{NOISE}, at the server only",
    "rounds",
    "ε for Poisson sampling kept secret, as papers usually report it",
)
