"""The command line: made from the table of verbs; run files."""

from __future__ import annotations

import sys


def main() -> None:
    """Run ``heldout``; a user's error is one line and exit code 2."""
    from heldout.cli.app import invoke

    sys.exit(invoke(sys.argv[1:]))
