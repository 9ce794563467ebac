"""The contract of every method, and laws of this one."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from raffed.methods.fedavg import fedavg
from raffed.testing import tiny_federation
from raffed.testing.federation import same_bits

from anchorlab.methods import fedanchor


@pytest.mark.raffed("anchorlab.methods:fedanchor")
def test_the_contract_holds(raffed_check: Callable[[], None]) -> None:
    raffed_check()


def test_without_an_anchor_the_weights_are_those_of_fedavg_bit_for_bit() -> None:
    ours, theirs = (tiny_federation(method).run(3) for method in (fedanchor(mu=0.0), fedavg()))
    assert same_bits(ours.server.w, theirs.server.w)


def test_a_client_keeps_the_weights_that_it_sent() -> None:
    tiny = tiny_federation(fedanchor()).run(1, [0, 1])
    for client in (0, 1):
        kept = tiny.client_states[client].slots["term-Anchor"]
        assert same_bits(kept, tiny.last[client].upload.w)
