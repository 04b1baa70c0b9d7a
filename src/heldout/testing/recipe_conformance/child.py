"""One build in a process of its own, in a changed world, perhaps killed at a chosen moment.

Run as ``python -m heldout.testing.recipe_conformance.child REQUEST.json``. The world is changed for
it: the clock runs ahead, the global random generators start elsewhere. Moments
are counted in writes: creating, renaming, linking or removing something below the build's folder.
The process sends itself SIGKILL just before the write that it was told of.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

_WRITES = frozenset(
    {"os.rename", "os.mkdir", "os.link", "os.symlink", "os.remove", "os.rmdir", "shutil.copyfile"}
)
_TO_WRITE = os.O_WRONLY | os.O_RDWR | os.O_CREAT


class Moments:
    """An audit hook: counts writes below ``root``, and ends the process before number ``kill``."""

    def __init__(self, root: str, kill: int | None) -> None:
        self.root = Path(root).resolve()
        self.kill = kill
        self.count = 0

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Told of every audited event by the interpreter."""
        if event == "open":
            flags = arguments[2]
            if not isinstance(flags, int) or not flags & _TO_WRITE:
                return
        elif event not in _WRITES:
            return
        if not any(self._inside(argument) for argument in arguments[:2]):
            return
        self.count += 1
        if self.count == self.kill:
            os.kill(os.getpid(), signal.SIGKILL)

    def _inside(self, argument: Any) -> bool:
        if not isinstance(argument, str | bytes | os.PathLike):
            return False
        return Path(os.fsdecode(argument)).absolute().is_relative_to(self.root)


def shift_time(seconds: float) -> None:
    """Let ``time.time`` and ``time.time_ns`` run ahead, for all that is imported later."""
    import time

    for name, factor in (("time", 1), ("time_ns", 1_000_000_000)):
        setattr(time, name, _ahead(getattr(time, name), int(seconds * factor)))


def _ahead(clock: Callable[[], Any], step: int) -> Callable[[], Any]:
    return lambda: clock() + step


def shift_dates(seconds: float, package: str) -> None:
    """Let ``datetime`` run ahead as the modules of ``package`` see it, and no others.

    Compiled modules rely on the real classes, so these stay where they are; a module's own names
    for them are replaced.
    """
    import datetime

    ahead = datetime.timedelta(seconds=seconds)

    class Date(datetime.date):
        @classmethod
        def today(cls) -> Any:
            return datetime.date.today() + ahead

    class DateTime(datetime.datetime):
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return datetime.datetime.now(tz) + ahead

        @classmethod
        def today(cls) -> Any:
            return datetime.datetime.now() + ahead

        @classmethod
        def utcnow(cls) -> Any:
            return datetime.datetime.now(datetime.UTC).replace(tzinfo=None) + ahead

    module = types.ModuleType("datetime")
    module.__dict__.update(datetime.__dict__)
    module.__dict__.update(date=Date, datetime=DateTime)
    changed = {datetime.date: Date, datetime.datetime: DateTime, datetime: module}
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

    from heldout.core.plugins import load_object
    from heldout.curate.build import run_recipe
    from heldout.curate.parameters import from_dict
    from heldout.curate.registry import load_recipe

    recipe = load_recipe(request["recipe"])
    sources = load_object(request["sources"])()
    if request["clock_shift"]:
        shift_dates(request["clock_shift"], request["recipe"].partition(":")[0])
    moments = Moments(request["root"], request["kill"])
    sys.addaudithook(moments)
    run_recipe(
        recipe,
        sources,
        folder=Path(request["folder"]),
        runs=Path(request["runs"]),
        parameters=from_dict(recipe.parameters, request["parameters"]),
        seed=request["seed"],
        name=request["name"],
    )
    # Read before this very file is opened for writing.
    count = moments.count
    Path(request["report"]).write_text(json.dumps({"schema_version": 1, "moments": count}))


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text()))
