"""The columns of the files RUN/metrics/part-*.parquet, and the rows that a run writes into them.

The files are in long form: one row is one measurement. SCHEMA describes the columns. The tables below list
the rows, and readers may rely on them. In the column `client`, `-` stands for null: the row belongs to the
server or is a mean over clients. `i` stands for the number of a client. Accuracies are fractions in [0, 1].

Every round:

    client  model     split       metric               value; n
    ------  --------  ----------  -------------------  -----------------------------------------------------
    -       global    train       loss                 mean training loss; n: samples that all participants
                                                       trained on. bytes_up and bytes_down: what all
                                                       participants together sent and received. seconds: wall
                                                       time of the round
    i       local     train       loss                 training loss of each participant; n, bytes_up and
                                                       bytes_down are its own. seconds: wall time of its local
                                                       round without scoring, keeping its state and sending

Every evaluated round:

    client  model     split       metric               value; n
    ------  --------  ----------  -------------------  -----------------------------------------------------
    -       global    test        accuracy, loss,      the aggregated model on the test set; n: test samples
                                  macro_f1
    -       global    test        accuracy             one row for each class c, with c in the column `class`.
                                                       Balanced accuracy is the mean of those that are numbers
    i       global    local_test  accuracy             each participant: the downloaded model, before training
    i       local     local_test  accuracy             each participant: its model after training
    i       personal  local_test  accuracy,            each participant: its personalised model.
                                  accuracy_observed    accuracy_observed: the answer is restricted to the
                                                       classes of the client's training data
    -       global,   local_test  accuracy,            unweighted means over the participants of what each has
            local,                accuracy_observed,   by itself; n: participants
            personal              macro_f1

Evaluated rounds of some methods and settings:

    client  model     split       metric               when, and value; n
    ------  --------  ----------  -------------------  -----------------------------------------------------
    i, -    personal  local_test  accuracy_private     MAP's second stage: the privately trained model, before
                                                       the personal model inherits it; -: unweighted mean
    -       global    test        accuracy_clean       methods whose server sees test images: the accuracy on
                                                       the other test images; n: their number
    -       global    test        accuracy_broadcast   FedDyn and FedDC, whose scored model is the mean of the
                                                       round's local models: the weights that are sent out
    i       personal  local_test  accuracy_stageJ      data in stages: the test part of stage J, J from 0
                                                       up to the present stage. `accuracy` is measured on the
                                                       test parts of all these stages together
    i, -    personal  val         accuracy             with a validation part (schema 2): each participant
                                                       on its own part; -: unweighted mean
    -       global    val         accuracy, loss       with a validation part: the aggregated model on the
                                                       validation parts of all clients together

Surveyed rounds, in which every client is scored after aggregation:

    client  model     split       metric               value; n
    ------  --------  ----------  -------------------  -----------------------------------------------------
    i, -    global    local_test  accuracy_between     the server's model; -: unweighted mean over all clients
    i, -    global    local_test  accuracy_oracle      replaces the row above if clients keep layers: the
                                                       server's model, completed by the mean of the
                                                       participants' layers. Nobody in a real federation
                                                       could form this model
    i, -    personal  local_test  accuracy_between     the server's model with what the client keeps
    -       personal  local_test  never_selected       clients that have taken part in no round so far;
                                                       n: all clients

After the last round, with measures = spectrum (core/measures/feature_spectrum.py):

    client  model     split       metric               value; n
    ------  --------  ----------  -------------------  -----------------------------------------------------
    -       global    test        eigenvalue_variance  mean over full batches of 128 of the test set;
                                                       n: batches
    -       global    test        eigenvalue_variance_class
                                                       as above, with batches of one class, mean over classes
    -       global    test        eigenvalue_variance_raw
                                                       as above, with features that are not standardised
    i, -    local     train       eigenvalue_variance  each participant's trained model on its training data;
                                                       n: batches; NaN without a full one. -: mean; n: clients

After the last round, with measures = memory (core/measures/client_memory.py):

    client  model     split       metric               value; n
    ------  --------  ----------  -------------------  -----------------------------------------------------
    -       local     train       floats_model,        how many numbers a client holds
                                  floats_training,
                                  floats_kept

Every round, with faults (config/faults.py) or with noise (experiments/privacy_accountant.py):

    client  model     split       metric               value; n
    ------  --------  ----------  -------------------  -----------------------------------------------------
    -       global    train       dropped, late,       how many participants this happened to; n: clients
                                  refused, straggling  drawn. A straggler may also be late or refused
    -       global    train       epsilon              ε of (ε, δ) so far, for the client that took part in
                                                       most rounds; n: that number of rounds
    -       global    train       epsilon_poisson      noise at the server only: ε for Poisson sampling kept
                                                       secret, as papers usually report it; n: rounds

SCHEMA_VERSION is raised for a new column, unit or meaning. Parts of a later version are refused with an error
that names the file.
"""

from __future__ import annotations

from typing import NamedTuple

import pyarrow as pa

# What each version added:
# 2: the split val
# 3: accuracy_observed, macro_f1, accuracy_stageJ, accuracy_between, accuracy_oracle, eigenvalue_variance and
#    its two variants, floats_model, floats_training, floats_kept
# 4: dropped, late, refused, straggling, epsilon, epsilon_poisson
# 5: accuracy_private, accuracy_clean, accuracy_broadcast, never_selected
SCHEMA_VERSION = 5

MODELS = ("global", "personal", "local")
SPLITS = ("test", "local_test", "train", "val")

_WORD = pa.dictionary(pa.int32(), pa.string())


def _field(name: str, kind: pa.DataType, meaning: str, *, nullable: bool = False) -> pa.Field:
    return pa.field(name, kind, nullable=nullable, metadata={"meaning": meaning})


SCHEMA: pa.Schema = pa.schema(
    [
        _field("run_id", _WORD, "the run's name, as in run.json"),
        _field("method", _WORD, "key of the method in METHODS"),
        _field("dataset", _WORD, "name of the data set"),
        _field("partition", _WORD, "the split as typed, e.g. dirichlet:100:0.5"),
        _field("seed", pa.int64(), "the run's seed"),
        _field("round", pa.int32(), "communication round, counted from 1; 0 is before any training"),
        _field(
            "client", pa.int32(), "client index; null is the server, or a mean over clients", nullable=True
        ),
        _field(
            "stage",
            pa.int32(),
            "stage of a continual split, counted from 0; null without stages",
            nullable=True,
        ),
        _field("class", pa.int32(), "class index; null is all classes together", nullable=True),
        _field("model", _WORD, "global, personal or local: whose weights were measured"),
        _field(
            "split", _WORD, "test (the server's), local_test (the client's), val or train: on which samples"
        ),
        _field(
            "metric",
            _WORD,
            "accuracy: a fraction in [0, 1]; loss: nats, mean over samples; others by their name",
        ),
        _field("value", pa.float64(), "the measurement, in the metric's unit; NaN if it was not a number"),
        _field("n", pa.int64(), "samples (for means over clients: clients) behind the value", nullable=True),
        _field(
            "bytes_up",
            pa.int64(),
            "bytes the method sends from clients to the server this round",
            nullable=True,
        ),
        _field(
            "bytes_down",
            pa.int64(),
            "bytes the method sends from server to clients this round",
            nullable=True,
        ),
        _field(
            "seconds", pa.float64(), "wall time in s; the one column two equal runs differ in", nullable=True
        ),
    ]
)


class Row(NamedTuple):
    """One measurement in the units of SCHEMA. The writer adds run_id, method, dataset, partition and seed.

    >>> Row(round=3, model="global", split="test", metric="accuracy", value=0.9, n=1000)  # doctest: +ELLIPSIS
    Row(round=3, model='global', split='test', metric='accuracy', value=0.9, client=None, ..., n=1000, ...)
    """

    round: int
    model: str
    split: str
    metric: str
    value: float
    client: int | None = None
    stage: int | None = None
    class_: int | None = None
    n: int | None = None
    bytes_up: int | None = None
    bytes_down: int | None = None
    seconds: float | None = None
