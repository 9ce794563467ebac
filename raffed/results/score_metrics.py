"""The metrics that are derived from counted answers (`ScoreCounts`): accuracies, F1 and cross-entropy."""

from __future__ import annotations

from raffed.results.metric import FRACTION, NATS, Level
from raffed.results.metric_table import declare

EVALUATED = "every evaluated round"
VALIDATED = "evaluated rounds, with a validation part"
SURVEYED = "surveyed rounds, in which every client is scored after aggregation"

_SAMPLES, _CLIENTS = "samples", "samples; of the mean: clients"
_EACH: tuple[Level, ...] = ("client", "mean")

# Every evaluated round

TEST_ACCURACY = declare(
    "accuracy",
    "global test",
    FRACTION,
    ("global", "class"),
    "higher",
    EVALUATED,
    _SAMPLES,
    "the aggregated model on the test set, and one row for each class. Balanced accuracy is the mean of "
    "those that are numbers",
)
TEST_LOSS = declare(
    "loss",
    "global test",
    NATS,
    "global",
    "lower",
    EVALUATED,
    _SAMPLES,
    "cross-entropy of the aggregated model on the test set, mean over samples",
)
TEST_F1 = declare(
    "macro_f1",
    "global test",
    FRACTION,
    "global",
    "higher",
    EVALUATED,
    _SAMPLES,
    "macro-F1 of the aggregated model on the test set",
)
_OWN = {
    "global": "the downloaded model, before training",
    "local": "the participant's model after training",
    "personal": "the participant's personalised model",
}
DOWNLOADED_ACCURACY, LOCAL_ACCURACY, PERSONAL_ACCURACY = (
    declare(
        "accuracy",
        f"{model} local_test",
        FRACTION,
        _EACH,
        "higher",
        EVALUATED,
        _CLIENTS,
        f"{whose}, on the participant's own test part",
    )
    for model, whose in _OWN.items()
)
DOWNLOADED_OBSERVED, LOCAL_OBSERVED, PERSONAL_OBSERVED = (
    declare(
        "accuracy_observed",
        f"{model} local_test",
        FRACTION,
        _EACH if model == "personal" else "mean",
        "higher",
        EVALUATED,
        _CLIENTS,
        f"{whose}, if only classes of the client's training data may be the answer",
    )
    for model, whose in _OWN.items()
)
DOWNLOADED_F1, LOCAL_F1, PERSONAL_F1 = (
    declare(
        "macro_f1",
        f"{model} local_test",
        FRACTION,
        "mean",
        "higher",
        EVALUATED,
        "clients",
        f"macro-F1 of {whose}",
    )
    for model, whose in _OWN.items()
)

# Evaluated rounds of some methods and settings

PRIVATE_ACCURACY = declare(
    "accuracy_private",
    "personal local_test",
    FRACTION,
    _EACH,
    "higher",
    "evaluated rounds of methods with a private second stage, such as MAP",
    _CLIENTS,
    "the privately trained model, before the personal model inherits it",
)
CLEAN_ACCURACY = declare(
    "accuracy_clean",
    "global test",
    FRACTION,
    "global",
    "higher",
    "evaluated rounds of methods whose server sees test images, such as FedDF",
    "the other test images",
    "accuracy on the test images that the server has not seen",
)
BROADCAST_ACCURACY = declare(
    "accuracy_broadcast",
    "global test",
    FRACTION,
    "global",
    "higher",
    "evaluated rounds of FedDyn and FedDC",
    _SAMPLES,
    "the weights that are sent out, where the scored model is the mean of the round's local models",
)
ATTACK_SUCCESS = declare(
    "attack_success",
    "global test",
    FRACTION,
    "global",
    "lower",
    "evaluated rounds of runs with a backdoor",
    _SAMPLES,
    "fraction of the test images of other classes that the aggregated model takes for the backdoor's target "
    "once they have its patch",
)
STAGE_ACCURACY = declare(
    "accuracy_stage",
    "personal local_test",
    FRACTION,
    "client",
    "higher",
    "evaluated rounds, with data in stages",
    _SAMPLES,
    "the test part of one stage, from 0 up to the present stage; `accuracy` is measured on these parts "
    "together",
    numbered=True,
)
TRAINING_ACCURACY = declare(
    "accuracy",
    "global train",
    FRACTION,
    "global",
    "higher",
    "evaluated rounds, with measures = training",
    _SAMPLES,
    "the aggregated model on the training samples of all clients together, prepared as for tests",
)
VALIDATION_ACCURACY = declare(
    "accuracy",
    "global val",
    FRACTION,
    "global",
    "higher",
    VALIDATED,
    _SAMPLES,
    "the aggregated model on the validation parts of all clients together",
)
VALIDATION_LOSS = declare(
    "loss",
    "global val",
    NATS,
    "global",
    "lower",
    VALIDATED,
    _SAMPLES,
    "cross-entropy of the aggregated model on the validation parts of all clients together",
)
PERSONAL_VALIDATION = declare(
    "accuracy",
    "personal val",
    FRACTION,
    _EACH,
    "higher",
    VALIDATED,
    _CLIENTS,
    "each participant's personalised model on its own validation part",
)

# Surveyed rounds

GLOBAL_BETWEEN = declare(
    "accuracy_between",
    "global local_test",
    FRACTION,
    _EACH,
    "higher",
    SURVEYED,
    _CLIENTS,
    "the server's model on each client's own test part",
)
ORACLE_BETWEEN = declare(
    "accuracy_oracle",
    "global local_test",
    FRACTION,
    _EACH,
    "higher",
    f"{SURVEYED}, if clients keep layers",
    _CLIENTS,
    "the server's model, completed by the mean of the participants' layers. Nobody in a real federation "
    "could form this model",
)
PERSONAL_BETWEEN = declare(
    "accuracy_between",
    "personal local_test",
    FRACTION,
    _EACH,
    "higher",
    SURVEYED,
    _CLIENTS,
    "the server's model with what the client keeps",
)
