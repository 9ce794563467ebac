"""What a report shows of each study: its figures, tables and checks.

A painter takes a study of one seed (`raffed.analysis.studies.Study`) and returns a `Painted`. The report
finds `PAINTERS` by the entry point `raffed.painters`.
"""

from __future__ import annotations

from .fedmr import averaged_classifiers
from .leakage import leakage
from .map import features_2d, proxy_statistics, targeted_classes
from .map_two_clients import two_client_demo
from .mpfedcon import features_tsne, solo_drift

PAINTERS = {
    painter.__name__: painter
    for painter in (
        averaged_classifiers,
        features_2d,
        features_tsne,
        leakage,
        proxy_statistics,
        solo_drift,
        targeted_classes,
        two_client_demo,
    )
}

__all__ = ["PAINTERS"]
