"""The metrics of calibration and of fairness over clients, which runs have if they ask for them."""

from __future__ import annotations

from raffed.results.metric import FRACTION, Level
from raffed.results.metric_table import declare

CALIBRATED = "after the last round, with measures = calibration"
FAIR = "after the last round, with measures = fairness"

CALIBRATION = declare(
    "calibration_error",
    "global test",
    FRACTION,
    "global",
    "lower",
    CALIBRATED,
    "samples",
    "expected calibration error of the aggregated model on the test set, in 15 bins of confidence",
)
_WHOSE = {
    "global": "the downloaded model",
    "personal": "the personalised models",
}
WORST_DECILE = {
    model: declare(
        "accuracy_worst_decile",
        f"{model} local_test",
        FRACTION,
        "global",
        "higher",
        FAIR,
        "participants with a test part",
        f"{whose}: mean accuracy of the tenth of the last round's participants with the lowest, each on "
        "its own test part",
    )
    for model, whose in _WHOSE.items()
}
SPREAD = {
    model: declare(
        "accuracy_spread",
        f"{model} local_test",
        FRACTION,
        "global",
        "lower",
        FAIR,
        "participants with a test part",
        f"{whose}: standard deviation of the accuracy over participants, each on its own test part",
    )
    for model, whose in _WHOSE.items()
}
_EACH: tuple[Level, ...] = ("client", "mean")
_NEW = {
    "global": "the server's model on each client that never trained",
    "personal": "the model that the method gives a new client, on each client that never trained",
}
UNSEEN = {
    model: declare(
        "accuracy_unseen",
        f"{model} local_test",
        FRACTION,
        _EACH,
        "higher",
        "after the last round and in surveyed ones, with unseen_clients above 0",
        "samples; of the mean: clients",
        f"{whose}, on its own test part",
    )
    for model, whose in _NEW.items()
}
