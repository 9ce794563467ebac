"""Choose the function that draws a study, and collect what it shows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

from ..table import TextTable
from .study import Painted, Study, StudyCheck, values_table

Painter = Callable[[Study], Painted]


@cache
def painters() -> dict[str, Painter]:
    """Map each study to its painter.

    The painters are imported on first use, because they import this package.
    """
    from .fedmr import averaged_classifiers
    from .leakage import leakage
    from .map import features_2d, proxy_statistics, targeted_classes
    from .map_two_clients import two_client_demo
    from .mpfedcon import features_tsne, solo_drift

    known = (
        averaged_classifiers,
        features_2d,
        features_tsne,
        leakage,
        proxy_statistics,
        solo_drift,
        targeted_classes,
        two_client_demo,
    )
    return {painter.__name__: painter for painter in known}


def painted(study: Study) -> Painted:
    """Return what is shown of a study. A study without a painter is shown as a table of its numbers."""
    painter = painters().get(study.about["name"])
    return Painted([], [], {"Values": values_table(study)}) if painter is None else painter(study)


def check_table(studies: Sequence[Study]) -> TextTable | None:
    """Return a table of claims with measured values and verdicts over all seeds; None without claims.

    Smoke runs decide no claim about trained models, so only mathematical claims are left of them.
    """
    smoke = bool(studies) and studies[0].about["scale"] == "smoke"
    found: dict[str, list[StudyCheck]] = {}
    for study in studies:
        for check in (one for one in painted(study).checks if one.exact or not smoke):
            found.setdefault(check.claim, []).append(check)
    if not found:
        return None
    lines = [
        [claim, "; ".join(one.measured for one in checks), _holds(checks)] for claim, checks in found.items()
    ]
    words = frozenset({"Claim", "Measured", "Holds"})
    return TextTable(["Claim", "Measured", "Holds"], lines, words)


def _holds(checks: Sequence[StudyCheck]) -> str:
    good = sum(one.holds for one in checks)
    if len(checks) == 1:
        return "yes" if good else "no"
    return f"{good} of {len(checks)} seeds"
