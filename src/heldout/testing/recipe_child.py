"""One build in a process of its own, in a changed world, perhaps killed at a chosen moment.

Run as ``python -m heldout.testing.recipe_child REQUEST.json``. The world is changed for it: the
clock runs ahead, the global random generators start elsewhere. Moments are counted in writes:
creating, renaming, linking or removing something below the build's folder. The process sends itself
SIGKILL just before the write that the request names.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import types
from pathlib import Path
from typing import Any

_WRITES = frozenset(
    {"os.rename", "os.mkdir", "os.link", "os.symlink", "os.remove", "os.rmdir", "shutil.copyfile"}
)
_TO_WRITE = os.O_WRONLY | os.O_RDWR | os.O_CREAT


class Moments:
    """An audit hook: counts writes below ``root``, and ends the process before number ``kill``."""

    def __init__(self, root: Path, kill: int | None) -> None:
        self.root, self.kill, self.count = root.resolve(), kill, 0

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Called by the interpreter with every audited event."""
        if event == "open":
            flags = arguments[2]
            if not isinstance(flags, int) or not flags & _TO_WRITE:
                return
        elif event not in _WRITES:
            return
        paths = [one for one in arguments[:2] if isinstance(one, str | bytes | os.PathLike)]
        if any(Path(os.fsdecode(p)).absolute().is_relative_to(self.root) for p in paths):
            self.count += 1
            if self.count == self.kill:
                os.kill(os.getpid(), signal.SIGKILL)


def _ahead(clock: Any, step: Any) -> Any:
    return lambda *given, **named: clock(*given, **named) + step


def shift_time(seconds: float) -> None:
    """Let ``time.time`` and ``time.time_ns`` run ahead, for all that is imported later."""
    import time

    for name, factor in (("time", 1), ("time_ns", 1_000_000_000)):
        setattr(time, name, _ahead(getattr(time, name), int(seconds * factor)))


def shift_dates(seconds: float, package: str) -> None:
    """Let ``datetime`` run ahead as the modules of ``package`` see it, and no others.

    Compiled modules rely on the real classes, so these stay where they are; a module's own names
    for them are replaced.
    """
    import datetime

    changed: dict[Any, Any] = {}
    for kind, clocks in (
        (datetime.date, ["today"]),
        (datetime.datetime, ["now", "today", "utcnow"]),
    ):
        step = datetime.timedelta(seconds=seconds)
        ahead = {name: staticmethod(_ahead(getattr(kind, name), step)) for name in clocks}
        changed[kind] = type(kind.__name__, (kind,), ahead)
    module = changed[datetime] = types.ModuleType("datetime")
    vars(module).update(vars(datetime))
    vars(module).update({kind.__name__: made for kind, made in changed.items()})
    for name, loaded in list(sys.modules.items()):
        if name == package or name.startswith(f"{package}."):
            for key, value in list(vars(loaded).items()):
                if isinstance(value, type | types.ModuleType) and value in changed:
                    setattr(loaded, key, changed[value])


def main(request: dict[str, Any]) -> None:
    """Do the build that ``request`` describes, and write how many moments it had."""
    import numpy as np

    if request["clock_shift"]:
        shift_time(request["clock_shift"])
    random.seed(request["global_seed"])
    np.random.seed(request["global_seed"])

    from heldout.testing.recipe_conformance import Subject

    given = request["subject"]
    scratch = Path(given["scratch"])
    subject = Subject(**given | {"scratch": scratch})
    # What is imported by name is loaded before dates are shifted and writes are counted.
    parameters, sources = subject.parameters, subject.sources()
    if request["clock_shift"]:
        shift_dates(request["clock_shift"], subject.recipe_path.partition(":")[0])
    moments = Moments(scratch / request["label"], request["kill"])
    sys.addaudithook(moments)
    subject.build(request["label"], parameters=parameters, sources=sources)
    # Read before this very file is opened for writing.
    count = moments.count
    Path(request["report"]).write_text(json.dumps({"schema_version": 1, "moments": count}))


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text()))
