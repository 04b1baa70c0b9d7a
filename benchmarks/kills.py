"""Jobs that are killed, and jobs that work at once: what is left must be whole, and nothing lost.

kills   A job is started and killed with SIGKILL two times, either just before a write that is drawn
        (the interpreter's audit events count them) or after a time that is drawn. Then it runs to
        its end. Its files must be those of a run that nobody disturbed, and no temporary file may be
        left, or be left by ``heldout prune --delete``.
pairs   Two or four processes load everything, wait for one another, and start at one moment.
        Neither may end in a traceback, and what is stored is looked at.

    python benchmarks/kills.py [--kills 100] [--rounds 20] [--only NAME ...] [--write]
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import importlib.util
import json
import os
import random
import re
import shlex
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from heldout.cli.app import invoke
from heldout.core.workspace import Workspace
from heldout.curate.pool_images import folder_pool
from heldout.data.judgements.store import JudgementStore
from heldout.data.testset import save
from heldout.data.testset.verify import verify
from heldout.front import VERBS
from heldout.testing.flickr import FlickrServer, photo
from heldout.testing.recipe_child import Moments
from machine import describe, write_result

ROOT = Path(__file__).resolve().parents[1]
PREDICT = "predict -m ash.py:predict -m bay.py:predict -t colours"
JOBS = {
    "import testset": "import testset photos --classes space.json --name other",
    "import testset --replace": "import testset val-2.json --name val --replace",
    "import truth": "import truth multilabel.csv -t val --name a",
    "import predictions": "import predictions theirs.npy -t colours --name theirs",
    "import judgements": "import judgements one.csv",
    "fetch": "fetch shots",
    "collect": "collect table tagged.jsonl --tag tag=object --name tagged",
    "collect flickr": "collect flickr --classes space.json --per-class 20 --endpoint $FLICKR --name found",
    "predict": PREDICT,
    "eval": "eval -m ash.py:predict -m bay.py:predict -t colours --replicates 20 -o eval.html "
    "--save eval.json",
    "score": "score -t val --replicates 20 --save score.json",
    "report": "report saved.json -o report.html --figures figures",
    "annotate": "annotate photos -e encoder.py:colours --classes space.json --top 2 --name near",
    "dedupe": "dedupe photos --reference photos/sketch/ --compare-by l2 --compare-by hash --up-to l2=1e9 "
    "--memory 0.002 --name clean -o found.html",
    "crowd grids": "crowd grids colours --controls none --grid candidates=6 -o more-grids.json",
    "crowd publish": "crowd publish local grids.json colours --assignments 2",
    "crowd answers": "crowd answers simulated",
    "build replicate": "build replicate colours --sampler random --per-class 2 --name drawn",
    "cutout": "cutout masks cut --masks masks -o freed --gate max_border=1",
    "build compose": "build compose mine.toml",
    "build compose (4 workers)": "build compose mine.toml --workers 4",
    "build contexts": "build contexts --source table tagged.jsonl --subject cat --minimum 10 "
    "--more-than 3 --name tables",
    "build domains": "build domains rows.parquet --similarity-column similarity --domain continent "
    "--class-cap 40 --name capped",
    "contexts split": "contexts split folders seen -o laid-out --images photos --folders copy "
    "--allow-licence",
    "active run": "active run own --features vectors.npz -d folder:1 -s random,margin+error "
    "--initial 8 --budget 4 --rounds 2 --seeds 2 --replicates 30 --save learning.json",
    "export folders": "export testset colours -o out --format folders --allow-licence",
    "export webdataset": "export testset colours -o web --format webdataset --allow-licence",
    "export table": "export testset colours -o listed.parquet --format table",
    "export judgements": "export judgements -o all.csv",
    "prune": "prune -m oak --delete",
}
"""What is killed: every kind of job that writes."""


@dataclass(frozen=True)
class Pair:
    """Commands that start at one moment, and what must hold when they have ended.

    ``codes``  the exit codes that may come out, sorted
    ``check``  gives what is wrong, if something is
    """

    commands: tuple[str, ...]
    check: Callable[[Path], str]
    codes: Sequence[tuple[int, ...]]
    before: str = ""


def _truths(folder: Path) -> str:
    card = json.loads((folder / "testsets/val/card.json").read_text())
    files = {path.stem for path in (folder / "testsets/val/truth").iterdir()}
    if set(card["truths"]) != {"original", "a", "b"} or files != set(card["truths"]):
        return f"truths {sorted(card['truths'])}, files {sorted(files)}"
    return ""


def _votes(folder: Path, wanted: int) -> str:

    with JudgementStore(Workspace(folder).judgements) as store:
        found = list(store.stream())
    said = {(each.key, each.when) for each in found}
    if len(said) < len(found) or len(found) != wanted:
        return f"{len(found)} judgements on {len(said)} questions, {wanted} expected"
    return ""


def _whole(*names: str) -> Callable[[Path], str]:
    def check(folder: Path) -> str:

        for name in names:
            problems = verify(folder / name).findings
            if problems:
                return f"{name}: {problems[0]}"
        return ""

    return check


def _one_run(folder: Path) -> str:
    found = sorted(path.name for path in folder.glob("predictions/*/theirs@*"))
    return "" if len(found) == 1 else f"runs {found}"


def _nothing(folder: Path) -> str:
    return ""


COMPOSE = "build compose mine.toml"
PAIRS = {
    "import truth a, import truth b": Pair(
        (
            "import truth multilabel.csv -t val --name a",
            "import truth real/real.json -t val --name b",
        ),
        _truths,
        [(0, 0)],
    ),
    "import truth, import testset --replace": Pair(
        ("import truth multilabel.csv -t val --name a", JOBS["import testset --replace"]),
        _whole("testsets/val"),
        [(0, 0), (0, 2)],
    ),
    "import testset, four times the same": Pair(
        (JOBS["import testset"],) * 4, _whole("testsets/other"), [(0, 0, 0, 0)]
    ),
    "import testset --replace, two different": Pair(
        (
            "import testset photos --classes space.json --name other --replace",
            "import testset table.csv --classes table --name other --replace",
        ),
        _whole("testsets/other"),
        [(0, 0)],
    ),
    "import testset, two different": Pair(
        (JOBS["import testset"], "import testset table.csv --classes table --name other"),
        _whole("testsets/other"),
        [(0, 2)],
    ),
    "import judgements, contradictory": Pair(
        ("import judgements one.csv", "import judgements two.csv"),
        lambda folder: _votes(folder, 40),
        [(0, 2)],
    ),
    "import judgements, the same": Pair(
        ("import judgements one.csv", "import judgements one.csv"),
        lambda folder: _votes(folder, 40),
        [(0, 0)],
    ),
    "import judgements, two contradictory queues": Pair(
        ("import judgements ann.csv", "import judgements other-ann.csv"),
        lambda folder: _votes(folder, _said(folder / "ann.csv")),
        [(0, 2)],
    ),
    "import predictions, two files of one name": Pair(
        (
            "import predictions theirs.npy -t colours --name theirs",
            "import predictions others.npy -t colours --name theirs",
        ),
        _one_run,
        [(0, 2)],
    ),
    "import predictions --replace, two files": Pair(
        (
            "import predictions theirs.npy -t colours --name theirs --replace",
            "import predictions others.npy -t colours --name theirs --replace",
        ),
        _one_run,
        [(0, 0)],
    ),
    "build compose, four times the same": Pair(
        (COMPOSE,) * 4, _whole("testsets/mine"), [(0, 0, 0, 0)]
    ),
    "build compose, one request into two folders": Pair(
        (f"{COMPOSE} -o testsets/one", f"{COMPOSE} -o testsets/two"),
        _whole("testsets/one", "testsets/two"),
        [(0, 0)],
    ),
    "predict, the same": Pair((PREDICT, PREDICT), _nothing, [(0, 0)]),
    "predict, the same with more kept than before": Pair(
        (PREDICT, PREDICT), _nothing, [(0, 0)], before=f"{PREDICT} --keep topk"
    ),
    "predict, prune --delete": Pair((PREDICT, "prune --delete"), _nothing, [(0, 0)]),
    "export testset, the same": Pair((JOBS["export folders"],) * 2, _nothing, [(0, 0)]),
    "contexts split, the same": Pair((JOBS["contexts split"],) * 2, _nothing, [(0, 0)]),
    "cutout, the same": Pair((JOBS["cutout"],) * 2, _nothing, [(0, 0)]),
    "collect flickr, the same": Pair(
        (JOBS["collect flickr"],) * 2, _whole("pools/found"), [(0, 0)]
    ),
    "crowd publish, the same": Pair((JOBS["crowd publish"],) * 2, _nothing, [(0, 0)]),
    "crowd answers, the same": Pair(
        (JOBS["crowd answers"],) * 2, lambda folder: _votes(folder, _asked(folder) * 4), [(0, 0)]
    ),
    "collect, the same": Pair((JOBS["collect"],) * 2, _whole("pools/tagged"), [(0, 0)]),
    "annotate, the same": Pair((JOBS["annotate"],) * 2, _whole("pools/near"), [(0, 0)]),
    "build contexts, the same": Pair(
        (JOBS["build contexts"],) * 2, _whole("testsets/tables"), [(0, 0)]
    ),
    "active run, the same": Pair((JOBS["active run"],) * 2, _nothing, [(0, 0)]),
    "score, import testset --replace": Pair(
        ("score -t val --replicates 20", JOBS["import testset --replace"]),
        _whole("testsets/val"),
        [(0, 0), (0, 2)],
    ),
}
"""What works at once."""


def _said(path: Path) -> int:
    """Judgements of a filled queue: one of each answer, one more of each category."""
    with path.open(newline="") as handle:
        rows = [row for row in csv.DictReader(handle) if row["answer"]]
    return sum(1 + bool(row["category"]) for row in rows)


def _asked(folder: Path) -> int:
    """Images in all grids."""
    return sum(len(grid["images_all"]) for grid in json.loads((folder / "grids.json").read_text()))


# --------------------------------------------------------------------------- a world to work in


def prepare(folder: Path) -> None:
    """A workspace with something of every kind, and the inputs of all jobs."""
    spec = importlib.util.spec_from_file_location("data", ROOT / "tests/golden/data.py")
    if spec is None or spec.loader is None:
        raise RuntimeError("tests/golden/data.py is not there")
    data = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(data)

    folder.mkdir(parents=True)
    for name in ("lists", "compose", "contexts", "domains", "images"):
        shutil.copytree(ROOT / "tests/golden/inputs" / name, folder, dirs_exist_ok=True)
    for make in (data.lists, data.domains, data.contexts, data.compose):
        make(folder)
    (folder / "photos").rename(folder / "cut")
    data.images(folder)
    np.save(folder / "others.npy", np.load(folder / "theirs.npy")[:, ::-1].copy())
    for line in (
        "import testset photos --classes space.json --folder-column domain --name colours",
        "import testset photos --classes folders --name own",
        "import testset val.json",
        "import predictions top -t val",
        "build contexts --source table seen.jsonl --minimum 5 --more-than 1 --name seen",
        "cutout masks cut --masks masks -o cutouts --gate max_border=1",
        "predict -m bay.py:predict -t own",
        "predict -m cox.py:predict -t colours",
        "score -t colours --replicates 20 --save saved.json",
        "mistakes queue -o q.csv -t colours",
        "crowd grids colours --controls none --grid candidates=5 -o grids.json",
        "crowd publish simulated grids.json colours --assignments 4 --crowd-size 6",
    ):
        code, _, err = run(line, folder)
        if code:
            raise RuntimeError(f"{line}: {err}")
    save(folder_pool(folder / "photos", name="shots"), folder / "pools/shots")
    data.fill(str(folder / "q.csv"), str(folder / "ann.csv"), "ann")
    text = (folder / "ann.csv").read_text()
    swapped = (
        text.replace(",wrong,", ",@,").replace(",correct,", ",wrong,").replace("Major", "Minor")
    )
    (folder / "other-ann.csv").write_text(swapped.replace(",@,", ",wrong,"))
    for name, answer in (("one", "selected"), ("two", "not-selected")):
        data.rows_csv(
            folder / f"{name}.csv",
            [
                {
                    "question": "vote",
                    "subject": json.dumps({"class_id": "c", "image_id": f"i{place}"}),
                    "answer": answer,
                    "who": "w",
                }
                for place in range(40)
            ],
        )


def run(line: str, folder: Path) -> tuple[int, str, str]:
    """A command in a process of its own, not disturbed."""
    child = Child(line, folder)
    child.go()
    return child.ended()


class Child:
    """A command in a process of its own, which waits for :meth:`go`.

    A fork of this process, which has loaded everything: a start would take longer than most jobs.

    ``kill``  it kills itself before this write below the folder; None: it counts them
    """

    def __init__(self, line: str, folder: Path, *, kill: int | None = None) -> None:
        self._said = [Path(tempfile.mkstemp()[1]) for _ in range(2)]
        waits, self._go = os.pipe()
        self.pid = os.fork()
        if not self.pid:
            code = 1
            try:
                for number, path in enumerate(self._said, 1):
                    os.dup2(os.open(path, os.O_WRONLY), number)
                os.close(self._go)
                os.setsid()
                os.chdir(folder)
                os.read(waits, 1)
                code = work(line, kill)
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code)
        os.close(waits)

    def go(self) -> None:
        """Let it begin."""
        os.write(self._go, b"1")

    def ended(self) -> tuple[int, str, str]:
        """Wait for its end; exit code, output and errors."""
        _, status = os.waitpid(self.pid, 0)
        os.close(self._go)
        out, err = (path.read_text() for path in self._said)
        for path in self._said:
            path.unlink()
        return os.waitstatus_to_exitcode(status), out, err


def work(line: str, kill: int | None) -> int:
    """What a :class:`Child` does; the last line of its output is the number of writes."""
    moments = Moments(Path.cwd(), kill)
    sys.addaudithook(moments)
    code = invoke(shlex.split(os.path.expandvars(line)))
    print(f"writes {moments.count}")
    return code


# --------------------------------------------------------------------------- kills


_MINUTE = re.compile(rb"\d{4}-\d\d-\d\d \d\d:\d\d UTC")


def state(folder: Path) -> dict[str, str]:
    """What a job has made: every file by its hash.

    Left out are the ledger of file times, the minute when a report was made, and the database's own
    files; of the database the judgements count.
    """
    found = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_symlink():
            found[name] = str(path.readlink())
        elif path.is_file() and not (
            name.startswith(("ledger/", "judgements.db", "__pycache__"))
            or path.name.startswith("crowd.db")
        ):
            text = (
                _MINUTE.sub(b"", path.read_bytes()) if path.suffix == ".html" else path.read_bytes()
            )
            found[name] = hashlib.sha256(text).hexdigest()
    if (folder / "judgements.db").is_file():
        with JudgementStore(folder / "judgements.db") as store:
            said = "\n".join(each.judgement_id for each in store.stream())
            found["judgements"] = hashlib.sha256(said.encode()).hexdigest()
    return found


def left(folder: Path) -> list[str]:
    """Temporary files and folders that are there."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob(".tmp-*"))


@dataclass
class Kills:
    """What killing one job gave: kills, and runs to the end with leftovers before or after, or wrong."""

    killed: int = 0
    littered: int = 0
    left: int = 0
    wrong: int = 0
    said: tuple[str, ...] = ()


def kill_job(line: str, world: Path, place: Path, draw: random.Random, wanted: int) -> Kills:
    """Kill a job ``wanted`` times, two of them before each run to the end."""
    found = Kills()
    folder = place / "work"
    shutil.copytree(world, folder, symlinks=True)
    began = time.monotonic()
    code, out, err = run(line, folder)
    seconds = time.monotonic() - began
    writes = int(out.rpartition("writes ")[2] or 0)
    if code:
        raise RuntimeError(f"{line}: {err}")
    reference = state(folder)
    shutil.rmtree(folder)
    while found.killed < wanted:
        shutil.copytree(world, folder, symlinks=True)
        for _ in range(min(2, wanted - found.killed)):
            late = draw.random() < 0.3
            job = Child(line, folder, kill=None if late else draw.randint(1, writes))
            job.go()
            if late:
                time.sleep(draw.uniform(0, seconds))
                os.kill(job.pid, signal.SIGKILL)  # not yet waited for, so the id is still its own
            found.killed += job.ended()[0] == -signal.SIGKILL
        found.littered += bool(left(folder))
        code, _, err = run(line, folder)
        after = left(folder)
        if after:
            found.left += 1
            run("prune --delete", folder)
        trouble = ""
        if code or "Traceback" in err:
            trouble = f"exit {code}: {err.strip().splitlines()[-1] if err.strip() else ''}"
        elif left(folder):
            trouble = f"left: {left(folder)[0]}"
        elif (made := state(folder)) != reference:
            trouble = f"other bytes: {sorted(dict(made.items() ^ reference.items()))[:3]}"
        if trouble:
            found.wrong += 1
            found.said += (trouble,)
        shutil.rmtree(folder)
    return found


# --------------------------------------------------------------------------- pairs


def at_once(pair: Pair, folder: Path) -> str:
    """Run the commands of a pair at one moment; what is wrong afterwards, or nothing."""
    if pair.before:
        run(pair.before, folder)
    children = [Child(line, folder) for line in pair.commands]
    for each in children:
        each.go()
    ended = [each.ended() for each in children]
    for code, _, err in ended:
        if "Traceback" in err or code not in (0, 2, 3):
            return f"exit {code}: {err.strip().splitlines()[-1] if err.strip() else ''}"
    codes = tuple(sorted(code for code, _, _ in ended))
    if codes not in pair.codes:
        return f"exit codes {codes}: {' '.join(err.strip() for *_, err in ended)[-200:]}"
    trouble = pair.check(folder)
    if not trouble and left(folder):
        trouble = f"left: {left(folder)[0]}"
    return trouble


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--only", nargs="*", help="jobs and pairs by name")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    # Loaded once, before the forks.
    for verb in VERBS:
        if any(line.startswith(verb.name) for line in JOBS.values()):
            print(verb.name, verb.call.__module__, file=sys.stderr)
    draw = random.Random(given.seed)
    jobs = {k: v for k, v in JOBS.items() if not given.only or k in given.only}
    pairs = {k: v for k, v in PAIRS.items() if not given.only or k in given.only}
    killed: list[str] = []
    together: list[str] = []
    troubles: list[str] = []
    photos = [photo(n, "red green blue grey") for n in range(1, 101)]
    with FlickrServer(photos) as server, tempfile.TemporaryDirectory() as name:
        os.environ |= {"FLICKR": server.endpoint, "FLICKR_API_KEY": server.key}
        place = Path(name)
        prepare(place / "world")
        share, more = divmod(given.kills, len(jobs) or 1)
        for n, (job, line) in enumerate(jobs.items() if given.kills else ()):
            made = kill_job(line, place / "world", place, draw, share + (n < more))
            killed.append(row(job, made.killed, made.littered, made.left, made.wrong))
            troubles += [f"{job}: {said}" for said in made.said]
            print(killed[-1], *made.said, flush=True)
        for pair_name, pair in pairs.items() if given.rounds else ():
            wrong = []
            for _ in range(given.rounds):
                folder = place / "at-once"
                shutil.copytree(place / "world", folder, symlinks=True)
                if trouble := at_once(pair, folder):
                    wrong.append(trouble)
                shutil.rmtree(folder)
            codes = " or ".join(", ".join(map(str, each)) for each in pair.codes)
            together.append(row(pair_name, given.rounds, codes, len(wrong)))
            troubles += [f"{pair_name}: {said}" for said in wrong]
            print(together[-1], *wrong[:1], flush=True)
    if given.write:
        write_result("kills", HEAD.format(describe(), "\n".join(killed), "\n".join(together)))
    if troubles:
        raise SystemExit("\n".join(troubles))


def row(*cells: object) -> str:
    """A row of a table."""
    return f"| {' | '.join(map(str, cells))} |"


HEAD = """# Jobs that are killed, and jobs that work at once

`python benchmarks/kills.py --write`: {}.

Every job is killed with SIGKILL, up to two times before it runs to its end: just before a write that
is drawn, or after a time that is drawn. "Left by a kill": in so many cases there were temporary
files or folders before the run to the end; "left after it": in so many there still were, which
`heldout prune --delete` then removed. "Wrong": another exit code, a traceback, other bytes
than those of a run that nobody disturbed, or something temporary that stayed after `prune`.

| job | killed | left by a kill | left after it | wrong |
|---|---:|---:|---:|---:|
{}

Commands that start at one moment, after everything is loaded. "Wrong": a traceback, another exit code
than these, a temporary file that stays, a test set that `heldout verify` finds anything in, a truth,
judgement or run that is lost, doubled or contradicts another.

| at once | times | exit codes | wrong |
|---|---:|---|---:|
{}
"""


if __name__ == "__main__":
    main()
