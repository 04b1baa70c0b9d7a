"""The command: all verbs registered, errors turned into one line and an exit code."""

from __future__ import annotations

import errno
import os
import re
import sys
import warnings
from collections.abc import Sequence
from typing import Annotated

import typer

from heldout import __version__
from heldout.cli import (
    build,
)
from heldout.core.errors import EXIT_DONE, EXIT_FAULT, EXIT_USER, UserError

app = typer.Typer(
    name="heldout",
    help="Builds new test sets for image classifiers, and shows where and why a classifier breaks on them.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


_PLACES = frozenset({errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EISDIR})
_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT})
_TEMPORARY = re.compile(r"\.tmp-[0-9a-f]{32}-(?:old-)?")

INTERRUPTED = 130
"""What the parser makes of Ctrl-C instead of passing it on."""


def _version(show: bool) -> None:
    if show:
        typer.echo(f"heldout {__version__}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


app.add_typer(build.app, name="build")


def invoke(arguments: Sequence[str]) -> int:
    """Run the command with these arguments and return its exit code."""
    # Damaged images make Pillow talk; what is wrong with them is recorded as their failure.
    warnings.filterwarnings("ignore", module="PIL")
    try:
        code = app(list(arguments), standalone_mode=False)
        sys.stdout.flush()
        if code == INTERRUPTED:
            raise KeyboardInterrupt
    except UserError as error:
        sys.stderr.write(f"error: {error.line}\n")
        return EXIT_USER
    except typer.Exit as stop:
        return int(stop.exit_code)
    except (typer.Abort, KeyboardInterrupt):
        sys.stderr.write("stopped; the same command again goes on from here\n")
        return EXIT_FAULT
    except BrokenPipeError:
        # The reader (head, less) went away: that is its right. Nothing may be flushed to it again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_DONE
    except OSError as error:
        line = _place_line(error)
        if line is None:
            raise
        sys.stderr.write(f"error: {line}\n")
        return EXIT_USER
    except Exception as error:
        show = getattr(error, "show", None)  # the parser's own usage errors
        if show is None:
            raise
        show()
        return EXIT_USER
    return int(code or EXIT_DONE)


def _place_line(error: OSError) -> str | None:
    """What the user can fix about a place on disk, on one line; None for any other error."""
    if error.errno in _ROOM:
        fix = "make room, or use another --workspace; the same command again goes on from here"
    elif error.errno in _PLACES and error.filename is not None:
        fix = "check the path and its permissions"
    else:
        return None
    # Files are written beside where they go and then renamed: the user knows the second name.
    told = error.filename if error.filename2 is None else error.filename2
    where = "" if told is None else f"{_TEMPORARY.sub('', os.fsdecode(told))}: "
    return f"{where}{error.strerror}: {fix}"
