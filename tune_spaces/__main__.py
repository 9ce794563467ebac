"""`python -m tune_spaces METHOD [options]`: `raffed tune --method METHOD [options]`, as the entry point
of a job.
"""

from __future__ import annotations

import sys

from raffed.cli import main

if __name__ == "__main__":
    method, *options = sys.argv[1:] or ["--help"]
    main(["tune", method] if method.startswith("-") else ["tune", "--method", method, *options])
