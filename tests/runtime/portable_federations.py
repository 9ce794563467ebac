"""Tiny federations whose hashes are compared between kinds of processors.

    python -m tests.runtime.portable_federations portable [NAME ...]

Each runs serially for two rounds, and prints a line of JSON: its name, and the hashes of its weights, client
states and metric rows. `machine` instead of `portable` is for the bits of this processor.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

CNN = {"name": f"{Path(__file__).with_name('small_cnn.py')}:SmallCNN"}
CHAIN = {"name": f"{Path(__file__).with_name('small_cnn.py')}:chain"}  # raffed's kernels compute it
MLP = {"name": "mlp", "args": {"hidden": [256, 512]}}  # large enough for oneDNN's products


def _config(method: str, model: dict[str, Any] = MLP, **more: Any) -> dict[str, Any]:
    local = {"lr": 0.05, "epochs": 1.0, "batch_size": 16, **more.pop("local", {})}
    return {
        "method": method,
        "data": {"dataset": "digits", "split": "dirichlet:3:0.5", "local_test": 0.2, "samples": 150},
        "model": model,
        "local": local,
        "federation": {"rounds": 2},
        "runtime": {"execution": "serial"},
        **more,
    }


PLAIN = {"momentum": 0.0, "weight_decay": 0.0}
FEDERATIONS = {
    "map": _config("map"),
    "scamap": _config("scamap", CNN, local=PLAIN),
    "gldp": _config("gldp", CNN, args={"body_epochs": 1.0, "head_epochs": 2.0}),
    "fedmr": _config("fedmr", CNN),
    "scaffold": _config("scaffold", local=PLAIN),
    "creff": _config("creff", args={"match_steps": 3, "retrain_epochs": 3}),
    "fedproto": _config("fedproto", CNN),
    "fedavg-adam": _config(
        "fedavg", {**CNN, "args": {"norm": True}}, local={"optimizer": "adam", "lr": 0.001}
    ),
    "fedadam": _config("fedadam"),
    "mpfedcon": _config("mpfedcon"),
    "feduv": _config("feduv", CNN),
    "fedetf": _config("fedetf"),
    "map-stacked": _config("map", numerics={"cohort": 3}),
    "scamap-compiled": _config("scamap", CHAIN, local=PLAIN, numerics={"convolutions": "compiled"}),
    "fedmr-compiled-stacked": _config("fedmr", CHAIN, numerics={"convolutions": "compiled", "cohort": 3}),
}


def hashes(values: dict[str, Any], bits: str) -> dict[str, str]:
    """The hashes at the end of a run."""
    import raffed

    numerics = {**values.get("numerics", {}), "bits": bits}
    return raffed.run(raffed.RunConfig.from_dict({**values, "numerics": numerics})).hashes


def main() -> None:
    bits, *names = sys.argv[1:]
    if bits == "portable":
        import raffed

        raffed.portable()
    for name in names or FEDERATIONS:
        print(json.dumps([name, hashes(FEDERATIONS[name], bits)]), flush=True)


if __name__ == "__main__":
    main()
