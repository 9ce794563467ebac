"""The pytest plugin: each check of the contract is a test of its own.

A test with the marker `raffed` is repeated for each check of the named objects and receives the check as the
fixture `raffed_check`:

    import pytest

    @pytest.mark.raffed("mylab.methods:myprox", "mylab.models:SmallNet")
    def test_the_contract_holds(raffed_check):
        raffed_check()

Installing raffed makes pytest load this file, so it imports nothing else of raffed's before it is needed.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

FIXTURE = "raffed_check"
MARKER = "raffed"


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marker, so that --strict-markers accepts it."""
    config.addinivalue_line(
        "markers", f"{MARKER}(*references): repeat the test for each check of these methods, networks, …"
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Repeat a marked test for each check of each object. An object's checks run once, when it is collected.

    Raises:
        UsageError: A reference names nothing that can be checked; pytest reports it as an error of the file.
    """
    if FIXTURE not in metafunc.fixturenames:
        return
    marks = metafunc.definition.iter_markers(MARKER)
    references = [str(reference) for mark in marks for reference in mark.args]
    cases = [pytest.param(case, id=name) for text in references for name, case in _cases(text)]
    metafunc.parametrize(FIXTURE, cases)


def _cases(reference: str) -> list[tuple[str, Callable[[], None]]]:
    from raffed.testing.recognise import check

    def case(state: str, text: str) -> Callable[[], None]:
        def outcome() -> None:
            __tracebackhide__ = True
            if state == "does not apply":
                pytest.skip(text)
            if state == "fails":
                pytest.fail(text, pytrace=False)

        return outcome

    return [
        (
            f"{reference}-{finding.name}",
            case(finding.state, f"{finding.why} (the rule: {finding.sentence})"),
        )
        for finding in check(reference)
    ]
