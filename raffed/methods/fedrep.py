"""FedRep (Collins et al. 2021) and FedPer (Arivazhagan et al. 2019): a shared body under private heads."""

from __future__ import annotations

from typing import Literal

from raffed.core.method import Method
from raffed.core.parts import ParameterSplit, Part, Pass
from raffed.core.server import mean_of
from raffed.errors import Preset, UsageError, by_authors, check_choice, check_range

Kept = Literal["head", "top"]
PRIVATE: dict[str, tuple[Part, Part]] = {"head": ("head", "body"), "top": ("top", "base")}


def fedper(private: Kept = "head") -> Method:
    """FedPer: body and private head are trained together, the body is averaged. Row FedPer of MpFedcon's
    Table 1.

        private: "head" is the output layer, "top" the projection before it as well, as in MpFedcon's
        comparison.
    """
    check_choice("private", private, PRIVATE)
    return Method("FedPer", split=ParameterSplit(personal=PRIVATE[private][0]))


def alternating(head_epochs: float, body_epochs: float, private: str = "head") -> tuple[Pass, ...]:
    """First the head (or top) on a frozen body (BatchNorm in evaluation mode), then the body under it; 0
    leaves one out.
    """
    check_range("head_epochs", head_epochs, 0.0, 1e4)
    check_range("body_epochs", body_epochs, 0.0, 1e4)
    if not head_epochs and not body_epochs:
        raise UsageError("head_epochs = 0 and body_epochs = 0: nothing would be trained")
    head, body = Pass(PRIVATE[private][0], head_epochs), Pass(PRIVATE[private][1], body_epochs)
    return tuple(one for one in (head, body) if one.epochs)


def fedrep(
    head_epochs: float = 10.0, body_epochs: float = 1.0, private: Kept = "head", preset: Preset = "original"
) -> Method:
    """FedRep; epochs over the client's data. Row FedRep of MAP's Table II, MpFedcon's and GLDP's Tables 1 to
    3.

        Defaults: the authors' script for CIFAR-10 with two classes a client (body_epochs 5 otherwise). In a
        budget of E epochs MAP's comparison has body_epochs max(1, E // 3) and the rest for the head. preset
        "authors" is what MAP's released code runs under this name: head and body together for the run's
        epochs, which is FedPer, with uniform means. private as FedPer.
    """
    check_choice("private", private, PRIVATE)
    passes = (Pass(),) if by_authors(preset) else alternating(head_epochs, body_epochs, private)
    return Method(
        "FedRep", split=ParameterSplit(personal=PRIVATE[private][0]), passes=passes, mean=mean_of(preset)
    )
