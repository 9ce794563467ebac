"""What clients report after training and evaluation: scores, losses, bytes and times."""

from __future__ import annotations

from typing import NamedTuple

from raffed.core.measures.scores import NO_SCORES, ClientScores, ExtraMeasure, ScoreCounts
from raffed.runtime.seconds import NOT_TIMED, ShareSeconds

__all__ = ["NO_SCORES", "ClientScores", "ExtraMeasure", "Report", "ScoreCounts", "SurveyedClient"]


class Report(NamedTuple):
    """What a client reports about its round, in addition to its upload. These are metrics only.

    Attributes:
        client: Number of the client.
        n: Its number of training samples.
        loss: Mean loss over the samples seen in shared training.
        steps: Number of steps of shared training.
        bytes_up: Bytes that the method sends to the server.
        bytes_down: Bytes that the method sends to the client.
        seconds: Duration of its local round, without scoring, keeping and sending. Clients of a stack have
            equal shares.
        scores: What was measured of its models.
        share: Seconds of all the work that its worker did for this round, the same for all clients of it.
        idle: Names of the user's own terms whose value had no gradient at this client.
    """

    client: int
    n: int
    loss: float
    steps: int
    bytes_up: int
    bytes_down: int
    seconds: float
    scores: ClientScores = NO_SCORES
    share: ShareSeconds = NOT_TIMED
    idle: tuple[str, ...] = ()


class SurveyedClient(NamedTuple):
    """A client that was scored between rounds.

    Its scored models are "global", the server's model with all its layers, and "personal", the client's own
    model (`between_rounds` in core/round.py).
    """

    client: int
    scores: ClientScores
