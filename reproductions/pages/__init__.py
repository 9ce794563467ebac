"""The commands that pack records of runs, and write pages and findings from them."""

from __future__ import annotations

import sys
from collections.abc import Callable

from raffed.results.text import visible


def exit_code(work: Callable[[], object]) -> int:
    """Do the work of a command. Return 0, or 2 after one line on stderr if it cannot be done."""
    try:
        work()
    except (ValueError, OSError) as error:  # damaged records are a ValueError
        print(visible(str(error)), file=sys.stderr)
        return 2
    return 0
