"""What becomes of uploads between the client that made them and the partial sum they are folded into."""

from __future__ import annotations

from collections.abc import Sequence

from raffed.core.boundary import Upload
from raffed.core.errors import NumericsError
from raffed.core.fates import damaged, refused
from raffed.core.fold import Fold
from raffed.runtime.base import Entry
from raffed.runtime.setup import Setup


class Outbox:
    """Hands over the uploads of a host's clients, each according to its fate."""

    def __init__(self, setup: Setup) -> None:
        self._seed, self._damage, self._keep = setup.config.seed, setup.config.faults.corrupt_kind, setup.method.server.each

    def send(self, fold: Fold, stack: Sequence[Entry], uploads: Sequence[Upload], round: int, where: str) -> None:
        """Fold the uploads that count; see to it that a damaged one is refused. `where` opens the message of an error."""
        counted = []
        for entry, upload in zip(stack, uploads, strict=True):
            if entry.fate.outcome == "counted":
                counted.append((entry.client, entry.weight, upload))
            elif entry.fate.outcome == "refused":
                self._refuse(upload, round, entry.client, where)
        if counted:
            clients, weights, sent = zip(*counted, strict=True)
            fold.add_all(clients, weights, sent, where)

    def _refuse(self, upload: Upload, round: int, client: int, where: str) -> None:
        spoilt = damaged(upload, self._damage, self._seed, round, client)
        if spoilt is not upload and not refused(spoilt, self._keep):
            raise NumericsError(f"{where}, client {client}: an upload damaged by {self._damage} was not refused")
