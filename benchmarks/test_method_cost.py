"""What a method costs: bytes in closed form, and a page that says what the record says."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import method_cost
from benchmarks.cost_record import PAGE, Record, Row, page, ratios, read
from benchmarks.workloads import Workload, workload

P = 64 * 64 + 64 + 64 * 10 + 10  # weights of W3's network


@pytest.fixture
def w3(monkeypatch: pytest.MonkeyPatch) -> Workload:
    """Without the benchmark's own network: other tests walk through the list of models."""
    monkeypatch.setattr("benchmarks.workloads.register", lambda: None)
    return workload("W3")


def test_scaffold_sends_twice_the_weights_and_keeps_them_once(w3: Workload) -> None:
    """Karimireddy et al. 2020: w and Δc up, w and c down, c_i at home. FedAvg sends w and n, and keeps
    nothing.
    """
    base = method_cost.contestant("fedavg", w3)
    base.round()
    found = method_cost.measure("scaffold", base, w3, turns=1)
    assert (found["up"], found["down"], found["kept"]) == (8 * P, 8 * P, 4 * P)
    assert len(found["ratios"]) == len(found["seconds"]) == 1
    assert (base.reports()[0].bytes_up, method_cost.kept_bytes(base.states)) == (4 * P + 4, 0)
    base.close()


def test_a_method_that_cannot_be_measured_says_why(w3: Workload) -> None:
    base = method_cost.contestant("fedavg", w3)
    found = method_cost.measure("fednew", base, w3, turns=1)
    assert found["ratios"] == []
    assert "no method 'fednew'" in found["note"] or "fednew" in found["note"]
    base.close()


def row(*pairs: tuple[float, float], note: str = "") -> Row:
    """A method's row from (seconds of FedAvg, seconds of the method)."""
    return {
        "ratios": [own / floor for floor, own in pairs],
        "seconds": [own for _, own in pairs],
        "kept": 4000,
        "up": 8000,
        "down": 6500,
        "note": note,
    }


RECORD: Record = {
    "workload": "a workload",
    "quick": False,
    "machine": {"cores": "2 cores"},
    "load": [0.9, 1.2],
    "rows": {
        "fedavg": row((2.0, 2.0), (1.0, 1.0), (4.0, 4.0)),
        "scaffold": row((2.0, 9.0), (1.0, 4.0), (4.0, 16.0)),
        "fedprox": row(note="it needs BatchNorm"),
    },
}


def test_the_page_has_medians_of_ratios_and_names_what_is_dear() -> None:
    lines = page(RECORD).splitlines()
    assert "| `scaffold` | 9.000 | 4.00 | 4.00 to 4.50 | 4.0 | 8.0 | 6.5 |" in lines
    assert "| `fedprox` | – | – | it needs BatchNorm | – | – | – |" in lines
    assert "Above 3 times FedAvg: `scaffold`." in lines
    assert any(line.startswith("Not measured: `apfl`") for line in lines)
    assert "load 0.9 to 1.2" in " ".join(page(RECORD).split())


def test_a_method_that_does_not_train_in_the_workload_is_measured_beside_a_fedavg_that_is_changed_as_it_is(
    w3: Workload,
) -> None:
    """FedETF's head has no bias."""
    found = method_cost.measure_elsewhere("fedetf", w3, turns=1)
    assert len(found["ratios"]) == 1
    assert found["note"] == ""
    said = page({**RECORD, "rows": {"fedetf": found}})
    assert (
        "Measured beside a FedAvg with head_bias = false, because they do not train otherwise: `fedetf`."
        in said
    )
    assert method_cost.changed(w3, method_cost.SLOWER).config.local.lr == 0.01


def test_a_page_counts_its_turns() -> None:
    assert "median over 3 turns of" in " ".join(page(RECORD).split())
    assert "| spread |" in page(RECORD)


def test_a_page_of_one_turn_has_no_column_of_spreads() -> None:
    rows = {"fedavg": row((2.0, 2.0)), "fedprox": row(note="it needs BatchNorm")}
    lines = page({**RECORD, "rows": rows}).splitlines()
    assert "| method | s a round | ratio | client keeps, kB | up, kB | down, kB |" in lines
    assert "|---|--:|--:|--:|--:|--:|" in lines
    assert "| `fedavg` | 2.000 | 1.00 | 4.0 | 8.0 | 6.5 |" in lines
    assert "| `fedprox` | – | it needs BatchNorm | – | – | – |" in lines
    assert "One turn has no spread." in " ".join(" ".join(lines).split())


def test_a_rehearsal_says_so_and_its_times_go_nowhere(tmp_path: Path) -> None:
    import json

    quick: Record = {**RECORD, "quick": True}
    assert "This is a rehearsal" in page(quick)
    assert "This is a rehearsal" not in page(RECORD)
    for record, known in ((quick, {}), (RECORD, {"fedavg": 1.0, "scaffold": 4.0})):
        (tmp_path / "cost.json").write_text(json.dumps(record))
        assert ratios(tmp_path / "cost.json") == known


def test_the_page_in_the_repository_is_that_of_its_record() -> None:
    assert page(read()) == PAGE.read_text(encoding="utf-8")
