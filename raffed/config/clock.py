"""A virtual clock: how long clients take, and when the server makes its next model. It imports no torch.

Nothing here measures time. The clock says how long a federation would take whose clients have given speeds.
"""

from __future__ import annotations

import csv
import hashlib
import io
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from raffed.budget import file_bytes
from raffed.config.names import keep
from raffed.config.validation import Doc, Range, check_fields
from raffed.errors import UsageError

ADVICE = "give a CSV file in UTF-8 with the columns client and factor"


@dataclass(frozen=True)
class Clock:
    """How long clients take, and whether the server waits for all of them.

    A client's training takes `seconds` times its own factor for every local step, or for its whole training
    with `work = round`. Sources: Xie, Koyejo and Gupta 2019 (FedAsync); Nguyen et al. 2022 (FedBuff).

    Raises:
        UsageError: A value is outside its range, or the trace cannot be read.
    """

    speeds: Annotated[
        Literal["", "constant", "lognormal", "trace"],
        Doc(
            "Factors of the clients; without it: no virtual clock. constant: all 1. lognormal: exp(spread · "
            "z) with z from N(0, 1), drawn once for each client. trace: those of a file."
        ),
    ] = ""
    seconds: Annotated[
        float,
        Range(0.0, 1e9, open_low=True),
        Doc("Virtual seconds of a local step (or of a training) of a client with factor 1."),
    ] = 1.0
    work: Annotated[
        Literal["step", "round"],
        Doc("Whether the time of a client grows with its number of local steps, or is that of a training."),
    ] = "step"
    spread: Annotated[float, Range(0.0, 10.0), Doc("σ of lognormal factors.")] = 0.5
    jitter: Annotated[
        float,
        Range(0.0, 10.0),
        Doc("σ of a further lognormal factor, drawn for every training of a client; 0: none."),
    ] = 0.0
    trace: Annotated[
        str, Doc("CSV file with the columns client and factor, a line for every client; for speeds = trace.")
    ] = ""
    trace_sha256: Annotated[
        str, Doc("SHA-256 of that file. It is filled in when the configuration is made.")
    ] = ""
    server: Annotated[
        Literal["waits", "fedbuff", "fedasync"],
        Doc(
            "When the server makes its next model. waits: when all participants of a round are done. "
            "fedbuff: when `buffer` uploads have arrived, from their updates. fedasync: after every upload, "
            "which is mixed into its model. A round is one step of the server."
        ),
    ] = "waits"
    buffer: Annotated[
        int,
        Range(0),
        Doc("K, number of uploads of a step of FedBuff; 0: as many as clients train at a time."),
    ] = 0
    mixing: Annotated[
        float,
        Range(0.0, 100.0, open_low=True),
        Doc("α of FedAsync, at most 1, or the server's rate η of FedBuff; 0.6 is usual for FedAsync."),
    ] = 1.0
    staleness: Annotated[
        Literal["polynomial", "hinge", "constant"],
        Doc(
            "s(τ), by which the weight of an upload is multiplied whose client began τ steps of the server "
            "ago. polynomial: (1 + τ)^−a. hinge: 1 up to τ = b, then 1 / (a(τ − b) + 1). constant: 1."
        ),
    ] = "polynomial"
    staleness_a: Annotated[float, Range(0.0, 1e6), Doc("a of s(τ).")] = 0.5
    staleness_b: Annotated[int, Range(0), Doc("b of s(τ), for hinge.")] = 4

    def __post_init__(self) -> None:
        check_fields("clock", self)
        if self.trace and not self.trace_sha256:
            found = hashlib.sha256(file_bytes("clock.trace", self.trace, ADVICE)).hexdigest()
            keep(self, trace_sha256=found, trace=str(Path(self.trace).absolute()))

    def check_together(self) -> None:
        """Raise a UsageError if two fields contradict each other, or if one has no effect."""
        usual = {one: field.default for one, field in type(self).__dataclass_fields__.items()}
        given = [name for name, value in usual.items() if getattr(self, name) != value]
        if not self.speeds and given:
            raise UsageError(
                f"clock.{given[0]} has no effect without clock.speeds; give --speeds too, such as constant"
            )
        if bool(self.trace) != (self.speeds == "trace"):
            raise UsageError(
                f"clock.trace = {self.trace!r} with clock.speeds = {self.speeds!r}: a trace needs both "
                "--speeds trace and --trace FILE"
            )
        if self.buffer and self.server != "fedbuff":
            raise UsageError(f"clock.buffer = {self.buffer} is for clock.server = 'fedbuff'; leave it out")
        if self.server == "fedasync" and self.mixing > 1.0:
            raise UsageError(f"clock.mixing = {self.mixing} must be at most 1 with clock.server = 'fedasync'")

    @property
    def asynchronous(self) -> bool:
        """Whether the server makes its next model before all clients are done."""
        return self.server != "waits"

    def discount(self, staleness: int) -> float:
        """Return s(τ).

        Args:
            staleness: τ, the steps of the server since the client began.
        """
        if self.staleness == "constant":
            return 1.0
        if self.staleness == "polynomial":
            return float((1.0 + staleness) ** -self.staleness_a)
        beyond = max(0, staleness - self.staleness_b)
        return 1.0 / (self.staleness_a * beyond + 1.0)

    def traced(self, clients: int) -> list[float]:
        """Return the factors in the trace, one for each client.

        Args:
            clients: Number of clients N.

        Raises:
            UsageError: The file has changed, or does not have one positive factor for each client.
        """
        raw = file_bytes("clock.trace", self.trace, ADVICE)
        if hashlib.sha256(raw).hexdigest() != self.trace_sha256:
            raise UsageError(f"{self.trace} has changed since the run was made; put it back")
        found: dict[int, float] = {}
        for number, row in self._rows(raw):
            try:
                client, factor = int(row["client"]), float(row["factor"])
            except (KeyError, TypeError, ValueError) as error:
                raise UsageError(
                    f"{self.trace}, line {number}: a line needs a whole number `client` and a number `factor`"
                ) from error
            if not 0.0 < factor < math.inf or client in found:
                why = (
                    "is there twice" if client in found else f"has the factor {factor}, which must be above 0"
                )
                raise UsageError(f"{self.trace}, line {number}: client {client} {why}")
            found[client] = factor
        missing = [client for client in range(clients) if client not in found]
        if missing:
            raise UsageError(f"{self.trace} has no line for client {missing[0]} of {clients} clients")
        return [found[client] for client in range(clients)]

    def _rows(self, raw: bytes) -> list[tuple[int, dict[str, str]]]:
        """Return the rows of the trace below its header, with their lines. Line ends may be of any kind."""
        try:
            reader = csv.DictReader(io.StringIO(raw.decode("utf-8-sig"), newline=None))
            return [(reader.line_num, row) for row in reader]
        except (UnicodeDecodeError, csv.Error) as error:
            raise UsageError(f"{self.trace} cannot be read as a table ({error}); {ADVICE}") from error
