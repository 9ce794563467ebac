"""Tables, figures and one-file reports from the folders of runs.

This package reads run.json and Parquet files. It needs neither torch nor Ray.

Example:
    >>> from pathlib import Path
    >>> from raffed.analysis import load_runs, summary, to_text, write_report
    >>> print(to_text(summary(load_runs(["runs/"]))))
    >>> write_report(["runs/"], Path("report"))  # report/report.html opens without a network
"""

if __name__ == "analysis":  # Imported by its folder in a checkout: both names are one module.
    import importlib
    import sys

    sys.modules[__name__] = importlib.import_module("raffed.analysis")

from .figures.curves import class_heat_map, curves
from .loading import load_runs
from .metrics.summary import summary, to_html, to_latex, to_markdown, to_text
from .report import write_report
from .runs.load import NoRunsError, Runs

__all__ = [
    "NoRunsError",
    "Runs",
    "class_heat_map",
    "curves",
    "load_runs",
    "summary",
    "to_html",
    "to_latex",
    "to_markdown",
    "to_text",
    "write_report",
]
