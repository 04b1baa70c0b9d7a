"""One build in a process of its own, in a changed world, perhaps killed at a chosen moment.

Run as ``python -m heldout.testing.recipe_child REQUEST.json``. The global random
generators start where the request says. Moments are counted in writes:
creating, renaming, linking or removing something below the build's folder. The process sends itself
SIGKILL just before the write that the request names.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
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


def main(request: dict[str, Any]) -> None:
    """Do the build that ``request`` describes, and write how many moments it had."""
    import numpy as np

    random.seed(request["global_seed"])
    np.random.seed(request["global_seed"])

    from heldout.testing.recipe_conformance import Subject

    given = request["subject"]
    scratch = Path(given["scratch"])
    subject = Subject(**given | {"scratch": scratch})
    # What is imported by name is loaded before writes are counted.
    parameters, sources = subject.parameters, subject.sources()
    moments = Moments(scratch / request["label"], request["kill"])
    sys.addaudithook(moments)
    subject.build(request["label"], parameters=parameters, sources=sources)
    # Read before this very file is opened for writing.
    count = moments.count
    Path(request["report"]).write_text(json.dumps({"schema_version": 1, "moments": count}))


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text()))
