"""100,000 votes of a crowd: fetched, checked, kept and added to the judgements, as whole commands.

The crowd is simulated and answers while it is asked, so its own work is in the first time too. Then
nothing is new; then the judgements are lost and come back from what is kept. There is no peer: what
ImageNetV2 did with its answers was to pickle them.

    python benchmarks/crowd.py [--grids 208] [--rounds 3] [--write]
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from heldout import verbs
from heldout.core.workspace import Workspace
from heldout.data.labels import LabelSpace
from heldout.data.testset import Card, image_table, make_pool, make_testset, save, truth_table
from machine import describe, write_result

PEOPLE = 10
CLASSES = ("cat", "dog", "owl", "fox")
SIMILAR = '{"cat": ["dog"], "dog": ["owl"], "owl": ["fox"], "fox": ["cat"]}'


def prepare(workspace: Workspace, grids: int) -> None:
    space = LabelSpace.from_ids("pets", CLASSES)
    for name, count in (("pool", 42 * grids), ("val", 80)):
        ids = [f"{name}-{n:06}" for n in range(count)]
        tables = {
            "images": image_table({"image_id": ids}),
            "truths": {"original": truth_table(ids, [CLASSES[n % 4] for n in range(count)])},
            "label_space": space,
        }
        if name == "pool":
            save(make_pool(name, **tables), workspace.pools / name)
        else:
            card = Card(name=name, label_space=space.name)
            save(make_testset(card, **tables), workspace.testsets / name)
    (workspace.root / "similar.json").write_text(SIMILAR)
    verbs.crowd_grids(
        "pool",
        controls="val",
        similar=workspace.root / "similar.json",
        out=workspace.root / "grids.json",
        workspace=workspace,
    )


def command(line: str, folder: Path) -> tuple[float, float]:
    """Seconds of a whole command in a process of its own: by the clock, and of the processor."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(
        [sys.executable, "-m", "heldout", *line.split()],
        cwd=folder,
        check=True,
        capture_output=True,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    worked = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return time.perf_counter() - began, worked


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--grids", type=int, default=208)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    times: dict[str, list[tuple[float, float]]] = {}
    for _ in range(given.rounds):
        with tempfile.TemporaryDirectory() as name:
            workspace = Workspace(Path(name))
            prepare(workspace, given.grids)
            for what, line in (
                ("publish", "crowd publish simulated grids.json pool --controls val"),
                ("answers", "crowd answers simulated"),
                ("answers, nothing new", "crowd answers simulated"),
                ("answers --stored into a new table", "crowd answers simulated --stored"),
                ("votes", "crowd votes pool val"),
            ):
                if "new table" in what:
                    for path in workspace.root.glob("judgements.db*"):
                        path.unlink()
                times.setdefault(what, []).append(command(line, workspace.root))
    rows = []
    for what, measured in times.items():
        clock, worked = zip(*measured, strict=True)
        rows.append(f"| {what} | {min(clock):.1f} | {max(clock):.1f} | {min(worked):.1f} |")
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    votes = given.grids * PEOPLE * 48
    text = HEAD.format(describe(), given.rounds, votes, given.grids, PEOPLE, "\n".join(rows), peak)
    if given.write:
        write_result("crowd", text)
    else:
        print(text)


HEAD = """# Votes of a crowd

`python benchmarks/crowd.py --write`: {}. {} rounds.

{:,} votes of a simulated crowd ({:,} grids of 48 images, {} answers each), whole commands with the
start of Python, in seconds. The first `answers` has the simulation in it.

| command | fastest | slowest | least processor time |
|---|---:|---:|---:|
{}

The largest process had {:,.0f} MB.
"""


if __name__ == "__main__":
    main()
