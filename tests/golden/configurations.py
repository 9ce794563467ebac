"""Twenty runs that together pass through most of raffed's code, as plain data that every version can read.

Used by `compare.py`, which runs them under two versions of raffed. Nothing of raffed is imported here, so
that the file works with a wheel of any version.
"""

from __future__ import annotations

from typing import Any

Values = dict[str, Any]


def _config(method: str, execution: str = "serial", **more: Any) -> Values:
    base: Values = {
        "method": method,
        "data": {"dataset": "digits", "split": "p4c3", "local_test": 0.2},
        "model": {"name": "mlp", "args": {"hidden": [16]}},
        "local": {"lr": 0.05, "epochs": 1.0, "batch_size": 16},
        "federation": {"rounds": 3},
        "runtime": {"execution": execution, "checkpoint_every": 2},
    }
    if execution == "ray":
        base["runtime"]["actors"] = 2
    for section, values in more.items():
        base[section] = {**base.get(section, {}), **values}
    return base


CONFIGURATIONS: dict[str, Values] = {
    "fedavg": _config("fedavg"),
    "fedavg-ray": _config("fedavg", "ray"),
    "fedavg-stacked": _config("fedavg", numerics={"cohort": 4}),
    "fedmr-dropout": _config(
        "fedmr",
        model={"name": "wrn28", "args": {"widen": 1}},
        local={"lr": 0.05, "epochs": 0.2},
        federation={"rounds": 2},
    ),
    "fedmr-stacked": _config("fedmr", numerics={"cohort": 2}),
    "map-batchnorm": _config("map", model={"name": "resnet8", "args": {}}, local={"lr": 0.05, "epochs": 0.3}),
    "map-ray": _config("map", "ray"),
    "scamap": _config("scamap", federation={"rounds": 3, "participation": 0.5}),
    "gldp-stages": _config(
        "gldp",
        data={"split": "stages:6:3:2:if4", "local_test": None},
        federation={"rounds": 4},
        args={"body_epochs": 1.0, "head_epochs": 1.0},
    ),
    "scaffold": _config("scaffold", local={"momentum": 0.0}),
    "creff": _config("creff", data={"split": "dirichlet:6:0.5"}),
    "fedproto-ray": _config("fedproto", "ray"),
    "apfl-stacked": _config("apfl", numerics={"cohort": 2}),
    "perfedavg-stacked": _config("perfedavg", numerics={"cohort": 4}, local={"momentum": 0.0}),
    "feddyn": _config("feddyn", federation={"rounds": 3, "survey": 1}),
    "faults": _config("fedavg", faults={"drop": 0.2, "late": 0.1, "straggle": 0.5, "corrupt": 0.1}),
    "privacy-noise": _config("fedavg", privacy={"clip": 1.0, "noise_at": "client"}),
    "privacy-masks-ray": _config("fedmr", "ray", privacy={"masks": True}),
    "bf16": _config("fedprox", numerics={"precision": "bf16"}, data={"split": "iid:4", "local_test": None}),
    "mpfedcon-validation": _config(
        "mpfedcon", data={"validation": 0.2}, federation={"rounds": 2, "measures": "memory"}
    ),
}
