"""Tables, figures and one-file reports from the folders of runs: reads Parquet and run.json, nothing of raffed's.

>>> from analysis import load_runs, summary, to_text, write_report
>>> print(to_text(summary(load_runs(["runs/"]))))
>>> write_report(["runs/"], Path("report"))  # report/report.html opens without a network
"""

from .figures import class_heat_map, curves
from .load import NoRunsError, Runs, load_runs
from .report import write_report
from .tables import summary, to_html, to_latex, to_markdown, to_text

__all__ = [
    "NoRunsError", "Runs", "class_heat_map", "curves", "load_runs", "summary", "to_html", "to_latex", "to_markdown",
    "to_text", "write_report",
]  # fmt: skip
