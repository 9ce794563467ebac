"""What becomes of uploads between the client that made them and the partial sum they are folded into."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from raffed.core import seeds
from raffed.core.boundary import Broadcast, Upload
from raffed.core.errors import NumericsError, UsageError
from raffed.core.fates import damaged, refused
from raffed.core.fold import Fold
from raffed.core.guard import Mask, clipped, noisy
from raffed.runtime.base import Entry, Share
from raffed.runtime.setup import Setup


class Outbox:
    """Hands over the uploads of a host's clients: clipped, noisy and masked as the run says, each according to its fate."""

    def __init__(self, setup: Setup) -> None:
        self._seed, self._damage, self._keep = setup.config.seed, setup.config.faults.corrupt_kind, setup.method.server.each
        self._privacy = setup.config.privacy

    def send(self, fold: Fold, made: Sequence[tuple[Entry, Upload]], broadcast: Broadcast, where: str) -> None:
        """Fold the uploads that count; see to it that a damaged one is refused. `where` opens the message of an error."""
        counted = []
        for entry, plain in made:
            upload = self._guarded(plain, broadcast, entry.client, where)
            if entry.fate.outcome == "counted":
                counted.append((entry.client, entry.weight, upload))
            elif entry.fate.outcome == "refused":
                self._refuse(upload, broadcast.round, entry.client, where)
        if counted:
            clients, weights, sent = zip(*counted, strict=True)
            fold.add_all(clients, weights, sent, where)

    def hide(self, fold: Fold, share: Share, round: int) -> None:
        """Once everything is folded: the masks of the share's clients over every sum, if the run has masks."""
        if share.peers:
            for entry in itertools.chain.from_iterable(share.stacks):
                if entry.fate.outcome == "counted":
                    fold.hide(Mask(self._seed, round, entry.client, share.peers))

    def _guarded(self, upload: Upload, broadcast: Broadcast, client: int, where: str) -> Upload:
        privacy = self._privacy
        if privacy.clip is None:
            return upload
        extra = [*upload.slots, *(["BatchNorm statistics"] if len(upload.b) else []), *(["uploads one by one"] * self._keep)]
        if extra:
            raise UsageError(
                f"privacy.clip: {where}: the server gets {', '.join(extra)} besides the sum of the weights, which clipping and "
                "noise do not cover; use a method that sends weights alone, and a network without BatchNorm"
            )
        w = clipped(upload.w, broadcast.w, privacy.clip)
        if privacy.noise_at == "client":
            stream = seeds.generator(self._seed, "privacy", broadcast.round, client)
            w = noisy(w, privacy.noise * privacy.clip, stream)
        return upload if w is upload.w else upload.but(w=w)

    def _refuse(self, upload: Upload, round: int, client: int, where: str) -> None:
        spoilt = damaged(upload, self._damage, self._seed, round, client)
        if spoilt is not upload and not refused(spoilt, self._keep):
            raise NumericsError(f"{where}, client {client}: an upload damaged by {self._damage} was not refused")
