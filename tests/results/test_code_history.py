"""run.json says which own code computed which rounds, also where a run went on with changed code."""

from __future__ import annotations

from raffed.results.origin import all_files, changed_files, code_before, code_stages, files_by_role

A, B, C = "a" * 64, "b" * 64, "c" * 64


def record(role: str, **files: str) -> dict[str, object]:
    return {"role": role, "files": files}


def segment(first: int, last: int, **accepted: list[str]) -> dict[str, object]:
    return {"from": first, "to": last, **({"accepted": accepted} if accepted else {})}


def test_a_run_without_own_code_has_one_stage_without_files() -> None:
    assert code_stages({}) == [(1, {})]
    assert code_stages({"segments": [segment(1, 3), segment(4, 5)]}) == [(1, {})]


def test_each_accepted_change_is_a_stage_with_the_files_of_its_rounds() -> None:
    about = {
        "code": [record("method", own=C)],
        "segments": [segment(1, 2), segment(3, 4, own=[A, B]), segment(5, 5), segment(6, 9, own=[B, C])],
    }
    assert code_stages(about) == [(1, {"own": A}), (3, {"own": B}), (6, {"own": C})]


def test_code_that_computed_no_round_is_in_no_stage() -> None:
    changed_at_once = {"code": [record("method", own=B)], "segments": [segment(1, 4, own=[A, B])]}
    assert code_stages(changed_at_once) == [(1, {"own": B})]
    begun = {"code": [record("method", own=B)], "segments": [segment(1, 4), segment(5, 4, own=[A, B])]}
    assert code_stages(begun) == [(1, {"own": A})]


def test_a_file_that_came_or_went_is_no_file_before_or_after() -> None:
    assert changed_files({"old": A}, {"new": B}) == {"new": ["no file", B], "old": [A, "no file"]}
    assert code_before({"new": B}, changed_files({"old": A}, {"new": B})) == {"old": A}


def test_different_files_of_one_name_are_told_apart_by_their_roles() -> None:
    records = [record("method", own=A, both=C), record("model", own=B, both=C)]
    assert files_by_role(records) == {
        "method": {"own": A, "both": C},
        "model": {"model: own": B, "both": C},
    }
    assert all_files(records) == {"own": A, "both": C, "model: own": B}
