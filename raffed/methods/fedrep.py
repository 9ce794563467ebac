"""FedRep (Collins et al. 2021) and FedPer (Arivazhagan et al. 2019): a shared body under private heads."""

from __future__ import annotations

from typing import Annotated, Literal

from raffed import Method, ParameterSplit, Pass
from raffed.config.validation import Doc, Range, checked
from raffed.core.parts import Part
from raffed.core.server import mean_of
from raffed.errors import UsageError
from raffed.methods.registry import Variant

Kept = Literal["head", "top"]
PrivatePart = Annotated[
    Kept, Doc("Private part: the output layer (head), or also the projection before it (top).")
]
PRIVATE: dict[str, tuple[Part, Part]] = {"head": ("head", "body"), "top": ("top", "base")}


@checked
def fedper(private: PrivatePart = "head") -> Method:
    """FedPer: a shared body under a private head, trained together; the body is averaged.

    Equation:
        w_k = (body, head_k); only the body travels.

    Source:
        Arivazhagan et al. 2019. Row FedPer of MpFedcon's Table 1. The private part "top" is MpFedcon's
        comparison.
    """
    return Method("FedPer", split=ParameterSplit(personal=PRIVATE[private][0]))


def alternating(head_epochs: float, body_epochs: float, private: str = "head") -> tuple[Pass, ...]:
    """First the head (or top) on a frozen body (BatchNorm in evaluation mode), then the body under it; 0
    leaves one out.
    """
    if not head_epochs and not body_epochs:
        raise UsageError("head_epochs = 0 and body_epochs = 0: nothing would be trained")
    head, body = Pass(PRIVATE[private][0], head_epochs), Pass(PRIVATE[private][1], body_epochs)
    return tuple(pass_ for pass_ in (head, body) if pass_.epochs)


@checked
def fedrep(
    head_epochs: Annotated[float, Range(0.0, 1e4), Doc("Epochs of the head on a frozen body.")] = 10.0,
    body_epochs: Annotated[float, Range(0.0, 1e4), Doc("Epochs of the body under the trained head.")] = 1.0,
    private: PrivatePart = "head",
    preset: Variant = "original",
) -> Method:
    """FedRep: a shared body under a private head, trained one after the other.

    Equation:
        First head_k for `head_epochs` of the client's data, then the body for `body_epochs`; only the body
        travels.

    Source:
        Collins et al. 2021. The defaults are the authors' script for CIFAR-10 with two classes a client
        (body_epochs 5 otherwise). In a budget of E epochs MAP's comparison has body_epochs max(1, E // 3) and
        the rest for the head. Row FedRep of MAP's Table II, MpFedcon's and GLDP's Tables 1 to 3.

    The preset "authors" is what MAP's released code runs under this name: head and body together for the
    run's epochs, which is FedPer, with uniform means.
    """
    passes = (Pass(),) if preset == "authors" else alternating(head_epochs, body_epochs, private)
    return Method(
        "FedRep", split=ParameterSplit(personal=PRIVATE[private][0]), passes=passes, mean=mean_of(preset)
    )
