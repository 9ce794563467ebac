"""The faults by which suites of tests are compared can be made in the code as it stands."""

from __future__ import annotations

from collections import Counter

import pytest

from benchmarks.mutations import QUICK, ROOT, Mutation, mutations, sources

LEAST = {"kernel": 5, "aggregation": 5, "methods": 5, "runs": 5, "search": 5}


def test_there_are_forty_mutations_and_at_least_five_a_room() -> None:
    every = mutations()
    rooms = Counter(one.room for one in every)
    assert len({one.name for one in every}) == len(every) == 40
    assert all(rooms[room] >= least for room, least in LEAST.items())
    assert set(rooms) == {*LEAST, "data", "federation", "analysis"}


def test_every_old_text_stands_once_in_the_code_and_the_changed_file_compiles() -> None:
    found = sources(ROOT)
    for one in mutations():
        path, text = one.made_in(found)
        assert text != found[path]
        compile(text, str(path), "exec")


def test_the_files_that_probably_find_a_mutation_are_there() -> None:
    hints = {hint for mutation in mutations() for hint in mutation.hints}
    assert [hint for hint in sorted(hints) if not list((ROOT / "tests").rglob(f"{hint}.py"))] == []


@pytest.mark.parametrize("text", ["nothing of the kind", "import math\nimport math"])
def test_an_old_text_that_does_not_stand_once_is_refused(text: str) -> None:
    one = Mutation("a fault", "kernel", "", "import math", "import cmath", ())
    with pytest.raises(ValueError, match=r"a fault: its old text stands [02] times"):
        one.made_in({ROOT / "some.py": text})


def test_it_takes_the_tests_that_ci_takes() -> None:
    assert f'make test QUICK="{QUICK[1]}"' in (ROOT / ".ci" / "run").read_text(encoding="utf-8")
