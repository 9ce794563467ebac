"""A change of a method's bits raises its revision: its earlier runs are not continued with other results."""

from __future__ import annotations

import subprocess
import sys

import pytest

from raffed.config.portable import flags_of
from raffed.methods import METHODS
from tests.golden.bits import FILE, complaints, parsed, stored, versions

portable = pytest.mark.skipif(
    "avx2" not in flags_of() or FILE.read_text(encoding="utf-8").splitlines()[0] != versions(),
    reason="bits.txt is of x86-64 with AVX2, and of the torch and NumPy that its first line names",
)


def computed(which: str) -> dict[tuple[str, int, str], str]:
    """Lines of a process of its own, since portable bits are set before torch is loaded."""
    command = [sys.executable, "-m", "tests.golden.bits", which]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return dict(map(parsed, done.stdout.splitlines()))


@portable
def test_the_usual_bits_of_every_method_are_those_of_its_revision() -> None:
    """With default arguments and with every preset."""
    now = computed("usual")
    assert {name for name, _, _ in now} == set(METHODS)
    assert complaints(stored(), now) == []


@portable
@pytest.mark.slow
def test_the_bits_of_every_choice_and_flag_are_those_of_the_method_s_revision() -> None:
    now = computed("all")
    assert complaints(stored(), now) == []
    assert now.keys() == stored().keys()


def test_other_bits_need_another_revision_and_another_revision_needs_a_line() -> None:
    before = {("map", 1, ""): "a", ("map", 1, "preset=authors"): "b"}
    assert complaints(before, before) == []
    (changed,) = complaints(before, {**before, ("map", 1, ""): "c"})
    assert changed.startswith("map : other bits than revision 1 had; raise it")
    (missing,) = complaints(before, {("map", 2, ""): "c"})
    assert missing.startswith("map : bits.txt has no line for revision 2")


def test_two_lines_of_the_file_differ_where_the_arguments_mean_something_else() -> None:
    """The preset of FedProto and the first model of FedALA are among those that are told apart."""
    found = stored()
    for name, argument in (("fedproto", "preset=authors"), ("fedala", "first_model=initial")):
        usual, other = (
            bits for (method, _, key), bits in found.items() if method == name and key in ("", argument)
        )
        assert usual != other
