"""Check that a run was ended, and its best model chosen, by the recorded validation scores alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from raffed.config.run import RunConfig
from raffed.config.stop_rule import ValidationCurve, read_rule
from raffed.core.method import Method
from raffed.core.params import State
from raffed.errors import RaffedError
from raffed.results.run_contents import RunContents
from raffed.results.writer import read_metrics
from raffed.runs.best_model import BEST, values_in
from raffed.runs.certificate import VerificationCheck
from raffed.runs.hashes import weights_sha256
from raffed.runtime.record_codec import load_server

NOT_ENDED = "not ended"


def check_validation(
    path: Path, about: RunContents, config: RunConfig, recorded: list[str], method: Method
) -> Iterator[VerificationCheck]:
    """Compare the end of a finished run and its best model with what its validation scores give.

    Args:
        path: The run's folder.
        about: What its run.json holds.
        config: The run's configuration.
        recorded: The hash of the weights after every recorded round.
        method: The run's method.
    """
    if about["state"] != "finished" or not config.data.validation:
        return
    try:
        rows = read_metrics(path)
    except RaffedError:  # reported by the check of the rows
        return
    if (rule := read_rule(config.federation.stop_when)) is not None:
        curve, found = ValidationCurve(rule.measure), NOT_ENDED
        for round, value in sorted(values_in(rows, rule.measure)):
            curve.values[round] = value
            own = config.federation.forked_at < round < config.federation.rounds
            if own and rule.reason(curve, round):  # the rounds before a fork were not under its rule
                found = f"round {round}"
                break
        said = f"round {about['rounds_done']}" if "ended_early" in about else NOT_ENDED
        yield VerificationCheck("end by federation.stop_when", said, found)
    if (best := about.get("best")) is not None:
        chosen = ValidationCurve(best["measure"], values_in(rows, best["measure"])).best()
        yield VerificationCheck("best round", str(best["round"]), str(chosen[0] if chosen else "none"))
        there = 0 < best["round"] <= len(recorded)
        weights = recorded[best["round"] - 1] if there else "no such round"
        yield VerificationCheck(f"{BEST}, weights", weights, _weights(path / BEST, method))


def _weights(path: Path, method: Method) -> str:
    try:
        server = load_server(path, method)
    except RaffedError:
        return "unreadable"
    return weights_sha256(State(server.w, server.b))


__all__ = ["check_validation"]
