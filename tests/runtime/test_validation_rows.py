"""What a run with a validation part records, serial and on Ray."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow.compute as pc
import pytest

import raffed
from raffed.results import read_metrics, rows_sha256
from tests.runtime.conftest import on, small


@pytest.fixture(scope="module")
def validated(
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[Path, list[raffed.runs.federation.RoundEvent]]:
    folder, events = tmp_path_factory.mktemp("validated") / "run", []
    config = small("map", rounds=3)
    raffed.run(replace(config, data=replace(config.data, validation=0.2)), folder, watch=events.append)
    return folder, events


def test_each_evaluated_round_has_five_participants_their_mean_and_the_global_model_on_the_validation_part(
    validated: tuple[Path, list[raffed.runs.federation.RoundEvent]],
) -> None:
    folder, events = validated
    rows = read_metrics(folder).to_pandas()
    val = rows[rows["split"] == "val"]
    assert set(val["round"]) == {1, 2, 3}
    for number, event in zip((1, 2, 3), events, strict=True):
        mine = val[(val["round"] == number) & (val["metric"] == "accuracy")]
        clients = mine[mine["client"].notna()]
        assert set(clients["model"]) == {"personal"}
        assert len(clients) == 5
        (mean,) = mine[mine["client"].isna() & (mine["model"] == "personal")]["value"]
        assert mean == pytest.approx(clients["value"].mean(), abs=1e-12)
        assert event.val_personal == mean
        (overall,) = mine[mine["client"].isna() & (mine["model"] == "global")]["value"]
        assert event.val == overall


def test_the_global_model_is_scored_on_every_client_s_validation_part(
    validated: tuple[Path, list[raffed.runs.federation.RoundEvent]],
) -> None:
    folder, _ = validated
    from raffed.data.partition_file import Partition

    partition = Partition.load(folder / "partition.npz")
    rows = read_metrics(folder).to_pandas()
    counts = rows[(rows["split"] == "val") & (rows["model"] == "global")]["n"]
    assert set(counts) == {sum(len(own) for own in partition.val)}
    trained = rows[(rows["model"] == "local") & (rows["split"] == "train")]
    assert all(
        n == len(partition.train[int(client)])
        for client, n in zip(trained["client"], trained["n"], strict=True)
    )


@pytest.mark.slow
def test_ray_gives_the_serial_rows_of_the_validation_part(
    validated: tuple[Path, list[raffed.runs.federation.RoundEvent]], ray_here: None, tmp_path: Path
) -> None:
    config = small("map", rounds=3)
    config = replace(config, data=replace(config.data, validation=0.2))
    raffed.run(on(config, execution="ray", actors=2), tmp_path / "run")
    ours, reference = (read_metrics(folder) for folder in (tmp_path / "run", validated[0]))
    assert rows_sha256(ours) == rows_sha256(reference)
    assert pc.sum(pc.equal(ours["split"].cast("string"), "val")).as_py() == 3 * (5 + 1 + 2)
