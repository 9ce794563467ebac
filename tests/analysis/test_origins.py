"""Runs of one configuration whose own code, data or revision differ are other experiments."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from raffed.analysis.loading import load_runs
from raffed.analysis.metrics.summary import summary
from raffed.analysis.report import write_report
from raffed.analysis.runs.comparable import comparability, notices
from raffed.analysis.runs.groups import groups
from raffed.reproductions.pages.pack_records import main as pack

from tests.params import one_in

WriteRun = Callable[..., Path]
A, B, C = "a1" * 32, "b2" * 32, "c3" * 32
OWN = "./own.py:own"


def record(role: str = "method", reference: str = OWN, **files: str) -> dict[str, Any]:
    return {"role": role, "reference": reference, "package": "", "files": files}


def used(folder: Path) -> dict[str, tuple[str, ...]]:
    return {group.label: group.used for group in groups(load_runs(folder))}


def remarks(folder: Path) -> list[tuple[str, str]]:
    runs = load_runs(folder)
    found: list[tuple[str, str]] = notices(runs, groups(runs))
    return found


def test_seeds_of_equal_code_are_one_row_without_a_mark(tmp_path: Path, write_run: WriteRun) -> None:
    for seed in range(2):
        write_run(f"s{seed}", [0.5], method=OWN, seed=seed, code=[record(own=A)])
    assert used(tmp_path) == {OWN: ("s0", "s1")}
    assert remarks(tmp_path) == []


@pytest.mark.parametrize("role", one_in(3, ["method", "split", "schedule", "model", "metric own.py:m"]))
def test_seeds_of_other_code_are_a_row_of_their_own_and_it_is_said(
    tmp_path: Path, write_run: WriteRun, role: str
) -> None:
    for name, seed, digest in (("a0", 0, A), ("a1", 1, A), ("b0", 0, B), ("b2", 2, B)):
        write_run(name, [0.5], method=OWN, seed=seed, code=[record(role, own=digest)])
    one, other = f"{OWN} code={A[:8]}", f"{OWN} code={B[:8]}"
    assert used(tmp_path) == {one: ("a0", "a1"), other: ("b0", "b2")}
    told = f"its own code differs (own {B[:8]}… / {A[:8]}…); the second value is that of {one}"
    assert (other, told) in remarks(tmp_path)
    page = write_report([tmp_path], tmp_path / "report").read_text(encoding="utf-8")
    assert "its own code differs" in page


def test_a_run_that_went_on_with_changed_code_is_a_row_of_its_own(
    tmp_path: Path, write_run: WriteRun
) -> None:
    whole = [{"from": 1, "to": 4}]
    mixed = [{"from": 1, "to": 2}, {"from": 3, "to": 4, "accepted": {"own": [A, B]}}]
    anew = [{"from": 1, "to": 4, "accepted": {"own": [A, B]}}]
    for name, seed, segments, digest in (
        ("a0", 0, whole, A),
        ("b1", 1, whole, B),
        ("ab2", 2, mixed, B),
        ("b3", 3, anew, B),  # it was continued before its first round, so no round is of the old code
    ):
        write_run(name, [0.5] * 4, method=OWN, seed=seed, segments=segments, code=[record(own=digest)])
    both = f"{OWN} code={A[:8]} then {B[:8]} from round 3"
    assert used(tmp_path) == {
        f"{OWN} code={A[:8]}": ("a0",),
        f"{OWN} code={B[:8]}": ("b1", "b3"),
        both: ("ab2",),
    }
    said = f"its runs were continued from round 3 on with changed code (own {A[:8]}… / {B[:8]}…)"
    assert (both, said) in remarks(tmp_path)


def test_seeds_of_other_data_are_a_row_that_is_not_comparable(tmp_path: Path, write_run: WriteRun) -> None:
    for name, seed, digest in (("a0", 0, A), ("a1", 1, A), ("b0", 0, B)):
        write_run(name, [0.5], seed=seed, data_sha256=digest)
    write_run("c1", [0.5], seed=1)
    assert used(tmp_path) == {
        f"fedavg data={A[:8]}": ("a0", "a1"),
        f"fedavg data={B[:8]}": ("b0",),
        "fedavg data=not recorded": ("c1",),
    }
    runs = load_runs(tmp_path)
    against = {label: one.against for label, one in comparability(runs, groups(runs)).items()}
    assert against[f"fedavg data={B[:8]}"].startswith(f"not comparable: data_sha256 differs ({B} / {A})")


def test_another_revision_of_a_method_is_another_experiment(tmp_path: Path, write_run: WriteRun) -> None:
    revisions: list[dict[str, Any]] = [{}, {"method_revision": 1}, {"method_revision": 2}]
    for seed, about in enumerate(revisions):
        write_run(f"s{seed}", [0.5], seed=seed, **about)
    assert used(tmp_path) == {"fedavg revision=1": ("s0", "s1"), "fedavg revision=2": ("s2",)}
    told = "the method's revision differs (2 / 1); the second value is that of fedavg revision=1"
    assert remarks(tmp_path) == [("fedavg revision=2", told)]


def test_several_versions_of_raffed_are_one_row_of_which_it_is_said(
    tmp_path: Path, write_run: WriteRun
) -> None:
    for seed, version in ((0, "0.1.0"), (1, "0.1.0"), (2, "0.2.0")):
        write_run(f"s{seed}", [0.5], seed=seed, versions={"raffed": version}, commit=f"{seed}" * 40)
    assert used(tmp_path) == {"fedavg": ("s0", "s1", "s2")}
    told = "its seeds were computed by several versions of raffed: 0.1.0 (seeds 0, 1), 0.2.0 (seed 2)"
    assert remarks(tmp_path) == [("fedavg", told)]


def test_a_run_that_another_version_resumed_is_of_both(tmp_path: Path, write_run: WriteRun) -> None:
    parts = [
        {"from": 1, "to": 1, "versions": {"raffed": "0.1.0"}},
        {"from": 2, "to": 2, "versions": {"raffed": "0.2.0"}},
        {"from": 3, "to": 2, "versions": {"raffed": "0.3.0"}},  # it computed no round
    ]
    write_run("s7", [0.5] * 2, seed=7, segments=parts)
    told = "its seeds were computed by several versions of raffed: 0.1.0 (seed 7), 0.2.0 (seed 7)"
    assert remarks(tmp_path) == [("fedavg", told)]


@pytest.mark.parametrize("role", ["model", "loss", "selection", "schedule"])
def test_methods_with_other_own_code_of_the_setting_are_not_compared(
    tmp_path: Path, write_run: WriteRun, role: str
) -> None:
    for method, digest in (("fedavg", A), ("fedprox", B)):
        for seed in range(2):
            write_run(f"{method}{seed}", [0.5], method=method, seed=seed, code=[record(role, net=digest)])
    (cell,) = (one for one in summary(load_runs(tmp_path))["comparable"] if one.startswith("not"))
    assert f"differs ({B[:8]} / {A[:8]})" in cell or f"differs ({A[:8]} / {B[:8]})" in cell


def test_a_file_with_a_method_and_the_network_that_differs_is_noted_only(
    tmp_path: Path, write_run: WriteRun
) -> None:
    """Whoever adds a method to the file of the network changes the hash of both."""
    write_run("f", [0.5], code=[record("model", "./own.py:Net", own=A)])
    write_run("o", [0.6], method=OWN, code=[record(own=B), record("model", "./own.py:Net", own=B)])
    runs = load_runs(tmp_path)
    assert not any(one.against for one in comparability(runs, groups(runs)).values())
    ((_, told),) = notices(runs, groups(runs))
    assert "it is not known whether the network differs" in told


def test_the_code_of_two_methods_and_of_metrics_is_no_obstacle(tmp_path: Path, write_run: WriteRun) -> None:
    measured = record("metric m", "./own.py:m", m=C)
    write_run("a", [0.5], method="./a.py:a", code=[record(reference="./a.py:a", a=A), measured])
    write_run(
        "b",
        [0.5],
        method="./b.py:b",
        code=[record(reference="./b.py:b", b=B), {**measured, "files": {"m": A}}],
    )
    runs = load_runs(tmp_path)
    assert all(one[:2] == ("", ()) for one in comparability(runs, groups(runs)).values())


def test_packed_records_keep_code_and_data(tmp_path: Path, write_run: WriteRun) -> None:
    for name, seed, digest in (("a0", 0, A), ("b1", 1, B)):
        write_run(f"runs/{name}", [0.5], method=OWN, seed=seed, code=[record(own=digest)], data_sha256=digest)
    assert pack([str(tmp_path / "runs"), "--out", str(tmp_path / "packed")]) == 0
    assert used(tmp_path / "packed") == used(tmp_path / "runs")
    assert len(used(tmp_path / "packed")) == 2
