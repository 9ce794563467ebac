"""A user's folder, and the command line in this process."""

from tests.cli.conftest import cli
from tests.own.conftest import lab

__all__ = ["cli", "lab"]
