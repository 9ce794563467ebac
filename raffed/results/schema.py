"""The columns of RUN/metrics/part-*.parquet: long form, one row a measurement.

Which rows a run writes (a reader may rely on these; `client` null means the server):

    every round          client null, model global, split train, metric loss: the mean training loss, with n =
                         samples trained on by all participants, bytes_up and bytes_down = what all
                         participants together sent and received this round, seconds = wall time of the round
    every participant    client i, model local, split train, metric loss, with that client's n, bytes and
                         seconds: wall time of its local round, without scoring, keeping and sending
    evaluated rounds     client null, model global, split test: metrics accuracy, loss and macro_f1 (class
                         null), and one accuracy row for each class c (class c), n = test samples behind the
                         value; balanced accuracy is the mean of those that are numbers
    their participants   client i, split local_test, metric accuracy, three times: model global (before: the
                         downloaded model), model local (after training), model personal (the personalised
                         model); for the personal model accuracy_observed too: the answer is one of the
                         classes in the client's training data
    and the means        client null, split local_test, metrics accuracy, accuracy_observed and macro_f1 (of
                         each client by itself), models global, local, personal: unweighted means over the
                         participants, n = their number
    with MAP's stage 2   client i and, with client null, the unweighted mean: model personal, split
                         local_test, metric accuracy_private: the privately trained model, before the personal
                         one inherits it
    public images        evaluated rounds of a method whose server sees test images: client null, model
                         global, split test, metric accuracy_clean: on the other test images, n of them
    extrapolating        evaluated rounds of FedDyn and FedDC, whose scored model is the mean of the round's
                         local ones: client
    servers              null, model global, split test, metric accuracy_broadcast: of the weights that are
                         sent out
    in stages            client i, model personal, split local_test, metric accuracy_stageJ: on the test part
                         of stage J alone, J = 0 up to the present one; local_test is that of all these stages
                         together
    with validation      split val, metric accuracy: model personal for each participant on its own validation
                         part and, with client null, their unweighted mean; model global, client null, metrics
                         accuracy and loss: the aggregated model on the validation parts of all clients
                         together  (since schema 2)
    surveyed rounds      every client i and, with client null, the unweighted mean over all: split local_test,
                         metric accuracy_between: after aggregation, model global (the server's) and model
                         personal (the server's with what the client keeps). Where clients keep layers, model
                         global has metric accuracy_oracle: its layers completed by the participants' mean,
                         which nobody in the federation could form. Client null, model personal, metric
                         never_selected: how many of all n clients have taken part in no round so far
    measures = spectrum  after the last round, metric eigenvalue_variance (core/measures/feature_spectrum.py):
                         client null, model global, split test, mean over full batches of 128 of the test set
                         (n of them), and there also eigenvalue_variance_class (batches of one class, mean
                         over classes) and eigenvalue_variance_raw (features not standardised); model local,
                         split train: of each participant's trained model on its training data (n batches; NaN
                         without one) and, with client null, their mean (n clients)
    with faults          every round, client null, model global, split train, metrics dropped, late, refused
                         and straggling: of the n clients drawn, how many (config/faults.py; a straggler may
                         be late or refused besides)
    with noise           every round, client null, model global, split train, metric epsilon: of (ε, δ) so
                         far, for the client that took part in most rounds (n of them); for noise at the
                         server epsilon_poisson: ε by secret Poisson sampling over n rounds, as usually
                         reported (experiments/privacy_accountant.py)
    measures = memory    after the last round, client null, model local, split train, metrics floats_model,
                         floats_training and floats_kept: numbers that a client holds
                         (core/measures/client_memory.py)

A new column, unit or meaning raises SCHEMA_VERSION; parts of a later version are refused by name.
"""

from __future__ import annotations

from typing import NamedTuple

import pyarrow as pa

# 2: split val; 3: metrics accuracy_observed, macro_f1, accuracy_stageJ, accuracy_between, accuracy_oracle;
# eigenvalue_variance and its readings, floats_model, floats_training, floats_kept; 4: dropped, late, refused,
# straggling, epsilon, epsilon_poisson; 5: accuracy_private, accuracy_clean, accuracy_broadcast,
# never_selected
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
    """One measurement; the writer adds run_id, method, dataset, partition and seed. Units as in SCHEMA.

    >>> Row(round=3, model="global", split="test", metric="accuracy", value=0.91, n=1000)  # doctest:
                                                                                           +ELLIPSIS
    Row(round=3, model='global', split='test', metric='accuracy', value=0.91, client=None, ..., n=1000, ...)
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
