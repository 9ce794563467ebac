"""FedRep (Collins et al. 2021) and FedPer (Arivazhagan et al. 2019): a shared body under private heads."""

from __future__ import annotations

from raffed.core.errors import UsageError, check_choice, check_range
from raffed.core.method import Method, Pass, Split

PRIVATE_HEAD = Split(personal="head")
PRESETS = ("original", "authors")


def fedper() -> Method:
    """FedPer: body and private head are trained together, the body is averaged. Row FedPer of MpFedcon's Tables 1 and 2."""
    return Method("FedPer", split=PRIVATE_HEAD)


def alternating(head_epochs: float, body_epochs: float) -> tuple[Pass, ...]:
    """First the head on a frozen body (BatchNorm in evaluation mode), then the body under the frozen head; 0 leaves one out."""
    check_range("head_epochs", head_epochs, 0.0, 1e4)
    check_range("body_epochs", body_epochs, 0.0, 1e4)
    if not head_epochs and not body_epochs:
        raise UsageError("head_epochs = 0 and body_epochs = 0: nothing would be trained")
    head, body = Pass("head", head_epochs), Pass("body", body_epochs)
    return tuple(one for one in (head, body) if one.epochs)


def fedrep(head_epochs: float = 10.0, body_epochs: float = 1.0, preset: str = "original") -> Method:
    """FedRep; epochs over the client's data. Row FedRep of MAP's Table II, MpFedcon's Table 1 and GLDP's Table 2.

    Defaults: the authors' script for CIFAR-10 with two classes a client (body_epochs 5 otherwise). In a budget of E epochs
    MAP's comparison has body_epochs max(1, E // 3) and the rest for the head. preset "authors" is what MAP's released code
    runs under this name: head and body together for the run's epochs, which is FedPer.
    """
    passes = alternating(head_epochs, body_epochs)
    check_choice("preset", preset, PRESETS)
    return Method("FedRep", split=PRIVATE_HEAD, passes=passes if preset == "original" else (Pass(),))
