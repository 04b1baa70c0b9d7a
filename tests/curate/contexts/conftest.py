"""The command line in this process, as the tests of the commands have it."""

from __future__ import annotations

from tests.cli.conftest import run

__all__ = ["run"]
