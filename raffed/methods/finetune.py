"""FedAvg + fine-tuning: the global model adapted on the client's data, scored and discarded."""

from __future__ import annotations

from typing import Literal

from raffed.core.context import Context
from raffed.core.ingredients import Personal
from raffed.core.method import Method
from raffed.core.params import State
from raffed.core.parts import Budget, Part
from raffed.errors import check_choice, check_range

Scope = Literal["head", "top", "all"]
SCOPES: dict[str, Part] = {"head": "head", "top": "top", "all": "all"}


class FineTuned(Personal):
    """A copy of the downloaded w^t, trained for `epochs` by plain cross-entropy; keeps nothing.

    Only in the last round unless every_round (before it, the downloaded model itself is scored).
    """

    epochs: float
    scope: Part
    every_round: bool

    between = "private"

    def start(self, k: Context) -> State:
        return k.start

    def budget(self, k: Context) -> Budget | None:
        last = k.round >= k.spec.rounds - 1  # T itself: between rounds, after the last
        return (
            Budget(epochs=self.epochs, part=self.scope, shared_batches=True)
            if last or self.every_round
            else None
        )

    def model(self, k: Context) -> State:
        assert k.private is not None
        return k.private


def finetune(epochs: float = 10.0, scope: Scope = "head", every_round: bool = False) -> Method:
    """FedAvg+FT: 10 epochs on the head, the body frozen, as in FedRep's protocol. Row FedAvg+FT of MpFedcon's
    Table 1.

        In a round's rows the participants of the last round fine-tune what they downloaded for it; with
        federation.survey every client fine-tunes w^T, as the paper's figure has it. scope "top" moves the
        projection as well (MpFedcon's networks), "all" everything. MAP's "Finetune" is FedAvg's own
        personalization score.
    """
    check_range("epochs", epochs, 0.0, 1e4)
    check_choice("scope", scope, SCOPES)
    return Method("FedAvg+FT", personal=FineTuned(epochs, SCOPES[scope], every_round))
