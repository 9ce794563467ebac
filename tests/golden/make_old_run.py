"""Make one small run folder of an older raffed, for tests/golden/old_runs.

Run it in a worktree of an older commit (README.md beside it says which), with that worktree first on the
import path:

    cd WORKTREE; PYTHONPATH=. python make_old_run.py OUT METHOD [SECTION.FIELD=VALUE ...] [finish]

The run has three rounds of three clients and a network of 160 weights. It is stopped after two rounds, unless
`finish` is given.
"""

import ast
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import raffed
from raffed import Data, Federation, Local, Model, RunConfig, Runtime


def main(out: str, method: str, *settings: str) -> None:
    """Run the configuration, changed by `settings`, into the new folder `out`."""
    changes = [one.partition("=") for one in settings if one != "finish"]

    def of(section: str) -> dict[str, Any]:
        pairs = {name: ast.literal_eval(value) for name, _, value in changes}
        return {k.partition(".")[2]: v for k, v in pairs.items() if k.partition(".")[0] == section}

    config = RunConfig(
        method=method,
        args=of("args"),
        data=Data(dataset="digits", split="p3c4", local_test=0.25, **of("data")),
        model=Model("mlp", {"hidden": [2]}),
        local=Local(epochs=1, batch_size=64, lr=0.05),
        federation=Federation(rounds=3, participation=0.67, **of("federation")),
        runtime=Runtime(execution="serial"),
    )
    if of("faults"):
        config = replace(config, faults=raffed.Faults(**of("faults")))
    done: list[object] = []
    stops = "finish" not in settings
    raffed.run(config, out=Path(out), watch=done.append, stop=lambda: stops and len(done) >= 2)


if __name__ == "__main__":
    main(*sys.argv[1:])
