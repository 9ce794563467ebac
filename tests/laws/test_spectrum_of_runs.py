"""Table 7's four readings, from a run's final weights to its rows (docs/papers/fedmr.md §E3), worked out
again with NumPy.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

import raffed
from raffed import Federation, Local
from raffed.core import seeds
from raffed.core.measures import scores
from raffed.core.params import State
from raffed.data import transforms
from raffed.runtime.record_files import load_server
from raffed.runtime.setup import Setup, prepare_run
from raffed.runtime.setup_model import make_network
from tests.tiny import digits

Array = npt.NDArray[np.float64]
RUN = replace(
    digits("iid:1", 64, local=Local(0.1, 0.9, batch_size=64, epochs=3)),
    federation=Federation(1, measures="spectrum"),
    seed=3,
)


def variance(z: Array, top: int, standardised: bool = True) -> float:
    """(1/B) Σ_{i ≤ top} (λ_i − λ̄)² of M = ẐᵀẐ/(B − 1), [D, D], of z [B, D]; a dead feature is a column
    of zeros.
    """
    centred = z - z.mean(0)
    if standardised:
        deviation = centred.std(0, ddof=1)
        centred = centred / np.where(deviation > 0, deviation, 1.0)
    values = np.linalg.eigvalsh(centred.T @ centred / (len(z) - 1))[-top:]
    return float(((values - values.mean()) ** 2).sum() / len(z))


def mean_variance(z: Array, top: int, batch: int, standardised: bool = True) -> tuple[float, int]:
    """Over the full batches of z in its order, and how many they are."""
    found = [variance(z[i : i + batch], top, standardised) for i in range(0, len(z) - batch + 1, batch)]
    return (float(np.mean(found)), len(found)) if found else (np.nan, 0)


def features(setup: Setup, folder: Path, part: str) -> tuple[Array, npt.NDArray[np.int64]]:
    """z [n, 64] of the final weights on the test set or the training pool, and the labels."""
    server = load_server(folder / "final.safetensors", setup.method)
    data, own = setup.dataset, setup.partition.train[0]
    images, labels = (data.x_test, data.y_test) if part == "test" else (data.x[own], data.y[own])
    x = transforms.prepare_images(images, setup.data.transform, setup.dataset.max_value)
    z = make_network(setup.network, setup.data).apply(State(server.w, server.b), x)[1]
    return z.double().numpy(), labels


@pytest.mark.parametrize(("batch", "top"), [(128, 50), (16, 10)])
def test_all_readings_are_of_the_final_weights(
    batch: int, top: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One client, so that its trained model is the server's. Digits has 355 test images, 34 to 36 a class: in
    batches of 128 there is none of one class, in batches of 16 there are two.
    """
    monkeypatch.setattr(scores, "BATCH", batch)
    monkeypatch.setattr(scores, "TOP", top)
    rows = raffed.run(RUN, out=tmp_path / "run").to_pandas()
    rows = rows[rows["metric"].str.startswith("eigenvalue_variance")]
    rows = rows[(rows["model"] == "global") | (rows["client"] == 0)]  # without the mean over the one client
    found = {(row.model, row.metric): (row.value, row.n) for row in rows.itertuples()}
    setup = prepare_run(RUN)
    z, y = features(setup, tmp_path / "run", "test")
    order = seeds.rng(3, "spectrum").permutation(len(z))
    z, y = z[order], y[order]
    classes = [mean_variance(z[y == label], top, batch) for label in range(10)]
    own, _ = features(setup, tmp_path / "run", "train")
    own = own[seeds.rng(3, "spectrum", client=0).permutation(len(own))]
    of_class = float(np.mean([mean for mean, _ in classes]))  # NaN where there is no batch
    wanted = {
        ("global", "eigenvalue_variance"): mean_variance(z, top, batch),
        ("global", "eigenvalue_variance_class"): (of_class, sum(count for _, count in classes)),
        ("global", "eigenvalue_variance_raw"): mean_variance(z, top, batch, standardised=False),
        ("local", "eigenvalue_variance"): mean_variance(own, top, batch),
    }
    assert {key: count for key, (_, count) in found.items()} == {
        key: count for key, (_, count) in wanted.items()
    }
    for key, (value, _) in wanted.items():
        assert found[key][0] == pytest.approx(value, rel=1e-6, nan_ok=True), key
