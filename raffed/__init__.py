"""raffed: a simulator of federated learning for clients that miss some of the classes.

A run is described by a `RunConfig`, executed by `run`, and read through a `RunResult`.

Example:
    import raffed

    result = raffed.run(raffed.RunConfig(method="map"), out="runs/map")
    result.accuracy, result.personalization, result.to_pandas()
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from raffed import _checkout

__version__ = "0.1.0"

_checkout.install()

if TYPE_CHECKING:
    from raffed.commands.comparing import compare
    from raffed.commands.reporting import report
    from raffed.commands.reproducing import reproduce
    from raffed.commands.tuning import tune
    from raffed.commands.verifying import verify
    from raffed.config.faults import Faults
    from raffed.config.privacy import Privacy
    from raffed.config.run import Data, Federation, Model, Numerics, RunConfig, Runtime
    from raffed.config.training import Local
    from raffed.experiments.iterating import iterate
    from raffed.experiments.result import RunResult
    from raffed.experiments.run import resume, run

__all__ = [
    "Data",
    "Faults",
    "Federation",
    "Local",
    "Model",
    "Numerics",
    "Privacy",
    "RunConfig",
    "RunResult",
    "Runtime",
    "__version__",
    "compare",
    "iterate",
    "report",
    "reproduce",
    "resume",
    "run",
    "tune",
    "verify",
]

_HOMES = {
    "Local": "raffed.config.training",
    "Faults": "raffed.config.faults",
    "Privacy": "raffed.config.privacy",
    **dict.fromkeys(("Data", "Federation", "Model", "Numerics", "RunConfig", "Runtime"), "raffed.config.run"),
    "RunResult": "raffed.experiments.result",
    "iterate": "raffed.experiments.iterating",
    "compare": "raffed.commands.comparing",
    "report": "raffed.commands.reporting",
    "reproduce": "raffed.commands.reproducing",
    "tune": "raffed.commands.tuning",
    "verify": "raffed.commands.verifying",
    **dict.fromkeys(("resume", "run"), "raffed.experiments.run"),
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used, so that `raffed --help` does not load torch or Ray.

    Args:
        name: A name in `__all__`.

    Returns:
        The class or function of that name.

    Raises:
        AttributeError: The package has no public name like this.
    """
    if name not in _HOMES:
        raise AttributeError(f"module 'raffed' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_HOMES[name]), name)
