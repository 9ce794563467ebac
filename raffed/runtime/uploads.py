"""What happens to uploads between the client that made them and the partial sum to which they are added."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from raffed.core import seeds
from raffed.core.aggregation.exact_sums import Mask, UploadAccumulator
from raffed.core.aggregation.robust_means import add_noise, clip_update
from raffed.core.messages import Broadcast, Upload
from raffed.errors import NumericsError, UsageError
from raffed.federation.attacks import attacked, attackers
from raffed.federation.faults import damaged, is_refused
from raffed.runtime.api import ActorShare, ParticipantOrder
from raffed.runtime.setup import Setup


class UploadPipeline:
    """Adds up the uploads of a worker's clients.

    Attacks, clipping, noise, masks and faults are those of the run. A clipped or masked upload of an attacker
    is what it sends, clipped or masked.
    """

    def __init__(self, setup: Setup) -> None:
        self._seed, self._damage, self._keep = (
            setup.config.seed,
            setup.config.faults.corrupt_kind,
            setup.method.keeps_uploads,
        )
        self._unmoved = setup.method.unmoved
        self._privacy, self._plan = setup.config.privacy, setup.config.faults
        self._attackers = attackers(self._plan, self._seed, setup.partition.num_clients)

    def send(
        self,
        accumulator: UploadAccumulator,
        made: Sequence[tuple[ParticipantOrder, Upload]],
        broadcast: Broadcast,
        where: str,
    ) -> None:
        """Add up the uploads that count, and check that damaged ones are refused.

        Args:
            accumulator: The partial sum.
            made: Clients with their uploads.
            broadcast: What the server sent.
            where: Beginning of an error message.
        """
        counted = []
        for entry, plain in made:
            upload = self._guarded(self._sent(plain, broadcast, entry.client), broadcast, entry.client, where)
            if entry.fault.outcome == "counted":
                counted.append((entry.client, entry.weight, upload))
            elif entry.fault.outcome == "refused":
                self._refuse(upload, broadcast.round, entry.client, where)
        if counted:
            clients, weights, sent = zip(*counted, strict=True)
            accumulator.add_all(clients, weights, sent, where)

    def add_mask(self, accumulator: UploadAccumulator, share: ActorShare, round: int) -> None:
        """Add the masks of these clients to every sum, after all uploads were added, if the run has masks."""
        if share.peers:
            for entry in itertools.chain.from_iterable(share.stacks):
                if entry.fault.outcome == "counted":
                    accumulator.add_mask(Mask(self._seed, round, entry.client, share.peers))

    def _sent(self, upload: Upload, broadcast: Broadcast, client: int) -> Upload:
        """Return what a client sends. An attacker sends something else than it has trained."""
        if client not in self._attackers:
            return upload
        start = self._unmoved(broadcast.w)
        return attacked(upload, start, self._plan, self._seed, broadcast.round, client)

    def _guarded(self, upload: Upload, broadcast: Broadcast, client: int, where: str) -> Upload:
        privacy = self._privacy
        if privacy.clip is None:
            return upload
        extra = [
            *upload.slots,
            *(["BatchNorm statistics"] if len(upload.b) else []),
            *(["a report about class counts"] if upload.report is not None else []),
            *(["uploads one by one"] * self._keep),
        ]
        if extra:
            raise UsageError(
                f"privacy.clip: {where}: the server also gets {', '.join(extra)}, not only the sum of "
                "the weights, which clipping and noise do not cover; use a method that sends weights "
                "alone, and a network without BatchNorm"
            )
        w = clip_update(upload.w, self._unmoved(broadcast.w), privacy.clip)
        if privacy.noise_at == "client":
            stream = seeds.generator(self._seed, "privacy", broadcast.round, client)
            w = add_noise(w, privacy.noise * privacy.clip, stream)
        return upload if w is upload.w else upload.replace(w=w)

    def _refuse(self, upload: Upload, round: int, client: int, where: str) -> None:
        spoilt = damaged(upload, self._damage, self._seed, round, client)
        if spoilt is not upload and not is_refused(spoilt, self._keep):
            raise NumericsError(
                f"{where}, client {client}: an upload damaged by {self._damage} was not refused"
            )
