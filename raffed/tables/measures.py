"""How the number of a cell is read from its runs."""

from __future__ import annotations

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
    "accuracy_clean_mean10": (
        "global model on the test images that its server has not seen, mean over the last ten evaluated "
        "rounds, %"
    ),
    "accuracy_mean25": "global model on the test set, mean over the last 25 evaluated rounds, %",
    "accuracy_mean_fifth": (
        "global model on the test set, mean over the last fifth of the evaluated rounds, %"
    ),
    "accuracy_mean": (
        "global model on the test set, mean over all evaluated rounds: the higher, the sooner, %"
    ),
    "balanced_last": (
        "global model after the last round, mean over classes of the accuracy on each class of the test set, "
        "%"
    ),
    "balanced_best": (
        "global model at its best round, mean over classes of the accuracy on each class of the test set, %"
    ),
    "personal_last": (
        "personal models on their local tests after the last round, mean over its participants, %"
    ),
    "personal_mean10": (
        "personal models on their local tests, mean over participants and the last ten evaluated rounds, %"
    ),
    "between_last": (
        "all clients' models between rounds, after the last one, on their local tests, mean over all "
        "clients, %"
    ),
    "between_mean10": (
        "all clients' models between rounds on their local tests, mean over all clients and the last ten "
        "rounds, %"
    ),
    "losing_last": (
        "clients whose model between rounds, after the last one, is below the baseline's, of all on the same "
        "split, %"
    ),
    "gaining_last": (
        "clients whose model between rounds, after the last one, is above the baseline's, of all on that "
        "split, %"
    ),
    "personal_best": (
        "personal models on their local tests at their best round, mean over its participants, %"
    ),
    "between_best": (
        "all clients' models between rounds on their local tests, mean over all clients, best surveyed "
        "round, %"
    ),
    **{
        f"{name}_weighted_{when}": f"{whose}: correct answers of all test samples together, {which}, %"
        for name, whose in _WHOSE.items()
        for when, which in _WHEN.items()
    },
    "training_last": "global model on the training samples of all clients together, last round, %",
    "training_best": "global model on the training samples of all clients together, best round, %",
    "a_loc": (
        "clients' own models after local training on the tests of all their stages, mean over all clients, "
        "last score, %"
    ),
    "a_glo": (
        "the global model on the tests of all a client's stages, mean over all clients and the last visits, %"
    ),
    "a_sel": (
        "the model just trained in the last stage on the tests of all stages, mean over participants and "
        "last visits, %"
    ),
    "a_sel_global": (
        "the global model after the last stage on the tests of all stages, mean over all clients and last "
        "visits, %"
    ),
    "a_sel_drop": (
        "fall of A_sel from the first to the last stage, mean over participants and last visits, points"
    ),
    "floats_up": "numbers a client sends per round, millions",
    "seconds_round": "time of a round, median over rounds, seconds",
    "eigenvalue_variance": (
        "variance of the top 50 eigenvalues of the global model's features, batches of the test set (R1)"
    ),
    "eigenvalue_variance_class": (
        "variance of the top 50 eigenvalues in batches of one class, mean over classes (R2)"
    ),
    "eigenvalue_variance_client": (
        "variance of the top 50 eigenvalues of the clients' models on their training data (R3)"
    ),
    "eigenvalue_variance_raw": (
        "variance of the top 50 eigenvalues of features that are not standardised (R4)"
    ),
    "rounds_to_baseline": "first round whose test accuracy reaches the baseline's best",
    "personal_rounds_to_baseline": (
        "first round whose mean accuracy over all clients reaches the baseline's over its last ten"
    ),
}

__all__ = ["MEASURES"]
