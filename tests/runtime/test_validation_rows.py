"""What a run with a validation part records, serial and on Ray."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import raffed
from raffed.data.partition_file import Partition
from raffed.results.writer import read_metrics
from raffed.runs.events import RoundEvent
from tests.runtime.conftest import small

CONFIG = replace(small("map", rounds=3), data=raffed.Data(local_test=0.2, validation=0.2))


def test_each_round_has_its_participants_their_mean_and_the_global_model_on_every_validation_part(
    tmp_path: Path,
) -> None:
    events: list[RoundEvent] = []
    raffed.run(CONFIG, tmp_path / "run", watch=events.append)
    rows, partition = (
        read_metrics(tmp_path / "run").to_pandas(),
        Partition.load(tmp_path / "run/partition.npz"),
    )
    val = rows[(rows["split"] == "val") & (rows["metric"] == "accuracy")]
    assert set(val["round"]) == {1, 2, 3}
    for number, event in zip((1, 2, 3), events, strict=True):
        mine = val[val["round"] == number]
        clients = mine[mine["client"].notna()]
        assert (set(clients["model"]), len(clients)) == ({"personal"}, 5)
        (mean,) = mine[mine["client"].isna() & (mine["model"] == "personal")]["value"]
        assert event.val_personal == mean == pytest.approx(clients["value"].mean(), abs=1e-12)
        (overall,) = mine[mine["client"].isna() & (mine["model"] == "global")]["value"]
        assert event.val == overall
    assert set(val[val["model"] == "global"]["n"]) == {sum(len(own) for own in partition.val)}
    trained = rows[(rows["model"] == "local") & (rows["split"] == "train")]
    assert trained["n"].tolist() == [len(partition.train[int(client)]) for client in trained["client"]]
