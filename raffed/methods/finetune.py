"""FedAvg + fine-tuning: the global model adapted on the client's data, scored and discarded."""

from __future__ import annotations

from typing import Annotated, Literal

from raffed import Budget, Context, Method, Personal, State
from raffed.config.validation import Doc, Range, checked
from raffed.core.parts import Part

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

    @property
    def acts_last(self) -> bool:
        return not self.every_round

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


@checked
def finetune(
    epochs: Annotated[float, Range(0.0, 1e4), Doc("Epochs of the fine-tuning.")] = 10.0,
    scope: Annotated[
        Scope,
        Doc("What is fine-tuned: the output layer (head), also the projection before it (top), or all."),
    ] = "head",
    every_round: Annotated[bool, Doc("Whether to fine-tune in every round, not only the last.")] = False,
) -> Method:
    """FedAvg+FT: the global model is fine-tuned on the client's data, scored and discarded.

    Equation:
        FedAvg; then `epochs` of CE on a copy of w^t, whose other layers are frozen.

    In a round's rows the participants of the last round fine-tune what they downloaded for it. With
    federation.survey every client fine-tunes w^T, as the paper's figure has it.

    Source:
        Collins et al. 2021, FedRep's protocol: 10 epochs on the head, the body frozen. Row FedAvg+FT of
        MpFedcon's Table 1, whose networks have a projection. MAP's "Finetune" is FedAvg's own personalization
        score.
    """
    return Method("FedAvg+FT", personal=FineTuned(epochs, SCOPES[scope], every_round))
