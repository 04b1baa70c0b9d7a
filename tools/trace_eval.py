"""What one ``heldout eval`` loads: modules of ours; test sets, label spaces, plans and runs.

    PYTHONPATH=src python tools/trace_eval.py PHOTOS [--model lite0] [--classes imagenet-1k]

PHOTOS is a folder with one folder of images per class. The command runs in this process, threads
included: once with nothing stored, then with everything stored. Ends with exit code 1 if anything was
loaded twice in one command, or more than 120 modules were.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

MOST_MODULES = 120


def watched() -> Mapping[CodeType, tuple[str, Callable[[Mapping[str, Any]], str]]]:
    """The functions that load something: what it is, and which one from their arguments."""
    from heldout.data.labels.label_space import LabelSpace
    from heldout.data.testset import testset
    from heldout.models.predictions.run_models import plan_predictions
    from heldout.models.predictions.store import PredictionStore

    return {
        testset.load.__code__: ("test set", lambda given: Path(given["folder"]).name),
        LabelSpace.read.__func__.__code__: (  # type: ignore[attr-defined]
            "label space",
            lambda given: str(given.get("path", given.get("name_or_path"))),
        ),
        plan_predictions.__code__: ("plan", lambda given: given["testset"].name),
        PredictionStore.read.__code__: (
            "run",
            lambda given: f"{given['run'].folder.name}{'' if given['values'] else ' (no logits)'}",
        ),
    }


def trace(arguments: list[str]) -> tuple[int, Counter[tuple[str, str]]]:
    """Run one command; its exit code, and how often each thing was loaded."""
    from heldout.cli.app import invoke

    codes = watched()
    found: Counter[tuple[str, str]] = Counter()

    def see(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code in codes:
            what, which = codes[frame.f_code]
            found[what, which(frame.f_locals)] += 1

    threading.setprofile(see)
    sys.setprofile(see)
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            code = invoke(arguments)
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]
    return code, found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("photos", type=Path)
    parser.add_argument("--model", default="lite0")
    parser.add_argument("--classes", default="imagenet-1k")
    asked = parser.parse_args()
    photos = asked.photos.resolve()
    worst = 0
    with tempfile.TemporaryDirectory() as place:
        os.chdir(place)
        os.environ["HELDOUT_WORKSPACE"] = place
        # In a process of its own, so that only eval's modules are counted below.
        child = os.spawnv(
            os.P_WAIT,
            sys.executable,
            [sys.executable, "-m", "heldout", "import", "testset", str(photos), "--classes",
             asked.classes, "--name", "photos"],
        )  # fmt: skip
        if child:
            return child
        for state in ("nothing stored", "everything stored"):
            code, found = trace(["eval", "-m", asked.model, "-t", "photos"])
            print(f"{state}: exit code {code}")
            for (what, which), times in sorted(found.items()):
                print(f"  {what:12} {times} × {which}")
            worst = max([worst, *found.values()])
    modules = sorted(name for name in sys.modules if name.partition(".")[0] == "heldout")
    print(f"{len(modules)} modules of heldout loaded")
    return int(worst > 1 or len(modules) > MOST_MODULES)


if __name__ == "__main__":
    sys.exit(main())
