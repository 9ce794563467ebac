"""`raffed leakage`: the study of leakage on a method and a network of one's own, from the command line."""

from __future__ import annotations

from pathlib import Path

from tests.cli.conftest import Cli
from tests.own.conftest import lab

__all__ = ["lab"]
QUICK = ("--model", "lenet_dlg", "--images", 1, "--iterations", 1, "--restarts", 1)


def test_the_upload_of_an_own_method_is_attacked(cli: Cli, lab: Path) -> None:
    done = cli("leakage", "--method", "./prox.py:myprox", "--set", "mu=0.5", *QUICK, "--json")
    assert (done.code, done.err) == (0, "")
    [event] = done.events
    assert (event["event"], event["method"]) == ("leakage", "./prox.py:myprox")
    assert event["mse"] >= 0
    shown = cli("leakage", "--method", "fedavg", *QUICK)
    assert shown.code == 0
    assert "mse" in shown.out
