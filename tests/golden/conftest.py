"""The command line, for the tests that open folders of older versions with it."""

from tests.cli.conftest import cli

__all__ = ["cli"]
