"""The tests of the benchmarks share what all tests share."""

from tests.conftest import no_waiting_for_the_disk, nothing_read_or_said_before, pytest_runtest_setup

__all__ = ["no_waiting_for_the_disk", "nothing_read_or_said_before", "pytest_runtest_setup"]
