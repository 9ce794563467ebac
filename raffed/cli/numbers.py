"""Write numbers for people: shares, counts and durations."""

from __future__ import annotations

import math
from typing import Any


def percent(share: float) -> str:
    """Write 0.9123 as "91.2 %", and NaN as a dash."""
    return "–" if math.isnan(share) else f"{100 * share:.1f} %"


def counted(number: int, what: str) -> str:
    """Write "1 round" or "2 rounds"."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def duration(seconds: float) -> str:
    """Write 3725 seconds as "1:02:05"."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def plain(value: Any) -> Any:
    """Return a value for JSON, with null in place of NaN and infinity."""
    if isinstance(value, dict):
        return {key: plain(one) for key, one in value.items()}
    if isinstance(value, list):
        return [plain(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
