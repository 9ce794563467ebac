"""`numerics.convolutions`: refused where it would have no effect, and part of a run's identity."""

from __future__ import annotations

import pytest

import raffed
from raffed.errors import UsageError


@pytest.mark.parametrize(
    ("section", "field", "value"), [("numerics", "precision", "bf16"), ("runtime", "gpu_fraction", 1.0)]
)
def test_compiled_convolutions_are_refused_where_the_kernel_does_not_compute(
    section: str, field: str, value: str | float
) -> None:
    given = {"numerics": {"convolutions": "compiled"}}
    given[section] = {**given.get(section, {}), field: value}  # type: ignore[dict-item]
    with pytest.raises(UsageError, match=rf"has no effect with {section}.{field} = .*convolutions = 'torch'"):
        raffed.RunConfig.from_dict(given)


def test_compiled_convolutions_may_have_portable_bits() -> None:
    given = {"numerics": {"convolutions": "compiled", "bits": "portable"}, "runtime": {"execution": "serial"}}
    config = raffed.RunConfig.from_dict(given)
    assert (config.numerics.convolutions, config.numerics.bits) == ("compiled", "portable")


def test_torchs_convolutions_leave_an_identity_as_it_was_and_compiled_ones_do_not() -> None:
    plain, torchs, own = (
        raffed.RunConfig.from_dict({"numerics": numerics})
        for numerics in (
            {"cohort": 2},
            {"cohort": 2, "convolutions": "torch"},
            {"cohort": 2, "convolutions": "compiled"},
        )
    )
    assert plain.identity() == torchs.identity() != own.identity()
