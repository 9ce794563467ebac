"""The file of weights from which a run starts (`model.init`)."""

from __future__ import annotations

from pathlib import Path

from raffed.budget import check_file
from raffed.errors import UsageError


def weights_bytes(file: str, advice: str) -> bytes:
    """Return the contents of the file.

    Args:
        file: Its name, as in the configuration.
        advice: What to do if it cannot be read.

    Raises:
        UsageError: It cannot be read. A named pipe or a device is refused, because reading may never end.
    """
    try:
        check_file(Path(file))
        return Path(file).read_bytes()
    except (OSError, ValueError) as error:  # ValueError: the name holds a zero byte, or check_file's
        why = (error.strerror if isinstance(error, OSError) else None) or error
        raise UsageError(f"model.init = {file!r}: {why}; {advice}") from error
