"""A user's folder, and the command line in this process."""

from tests.cli.conftest import cli
from tests.references.conftest import lab

__all__ = ["cli", "lab"]
