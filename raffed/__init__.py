"""raffed: federated learning where clients miss classes.

    import raffed
    result = raffed.run(raffed.RunConfig(method="map"), out="runs/map")
    result.accuracy, result.personalization, result.to_pandas()
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

# analysis/ and tune_spaces/ stand beside this folder in a checkout and inside it in a wheel, where their names would collide
# with others'. Either way they are raffed.analysis and raffed.tune_spaces.
_checkout = Path(__file__).resolve().parents[1]
if (_checkout / "pyproject.toml").is_file() and (_checkout / "tune_spaces").is_dir():
    __path__.append(str(_checkout))

if TYPE_CHECKING:
    from raffed.core.config import Data, Federation, Model, Numerics, RunConfig, Runtime
    from raffed.core.faults import Faults
    from raffed.core.local import Local
    from raffed.core.privacy import Privacy
    from raffed.experiments.run import RunResult, resume, run

__all__ = [
    "Data", "Faults", "Federation", "Local", "Model", "Numerics", "Privacy", "RunConfig", "RunResult", "Runtime", "__version__",
    "resume", "run",
]  # fmt: skip

_HOMES = {
    "Local": "raffed.core.local",
    "Faults": "raffed.core.faults",
    "Privacy": "raffed.core.privacy",
    **dict.fromkeys(("Data", "Federation", "Model", "Numerics", "RunConfig", "Runtime"), "raffed.core.config"),
    **dict.fromkeys(("RunResult", "resume", "run"), "raffed.experiments.run"),
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used, so that `raffed --help` loads nothing heavy."""
    if name not in _HOMES:
        raise AttributeError(f"module 'raffed' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_HOMES[name]), name)
