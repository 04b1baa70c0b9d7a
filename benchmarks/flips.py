"""One flipped byte in a stored file, then the ordinary commands: the same numbers, or an error.

Claim: of 1,000 seeded flips over every kind of stored file none gives another number without an error,
and none ends in a traceback. ``verify`` finds whatever makes a command stop.

Run: ``python benchmarks/flips.py``. Writes benchmarks/results/flips.md.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import re
import shutil
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow.parquet as pq
from PIL import Image

from heldout.cli.app import invoke
from heldout.core.files import sha256_file
from heldout.core.workspace import Workspace
from heldout.data.judgements.judgement import Judgement
from heldout.data.judgements.store import JudgementStore
from heldout.data.labels import LabelSpace
from heldout.data.testset import (
    Card,
    image_table,
    make_testset,
    membership_table,
    save,
    truth_table,
)

PAINTS = {"red": (230, 10, 10), "green": (10, 230, 10), "blue": (10, 10, 230), "white": (250,) * 3}
SPACE = LabelSpace.from_ids("paints", list(PAINTS))
MODELS = """
from heldout.data.labels import LabelSpace
from heldout.testing.model import FakeModel

one = FakeModel("one", label_space=LabelSpace.read("classes.json"))
two = FakeModel("two", label_space=LabelSpace.read("classes.json"))
"""
_ANNOTATE = "annotate pool -e fake --classes classes.json -o out.parquet --json"
_SCORE = "score -t paints-1 --metric top1 --metric nll --by light --by seen --replicates 50 --json"


class Kind(NamedTuple):
    """A kind of stored file: where it is, the commands that read it, and how ``verify`` is asked."""

    pattern: str
    commands: tuple[str, ...]
    verify: str = "verify --no-files --json"


KINDS = {
    "test set": Kind(
        "testsets/**/*", ("ls --json", _SCORE, "score -t paints-1 --truth second --json")
    ),
    "pool": Kind("pools/**/*", ("ls --json", _ANNOTATE)),
    "predictions": Kind("predictions/**/*", (_SCORE, "ls --json")),
    "embeddings": Kind("embeddings/**/*", (_ANNOTATE,)),
    "judgements": Kind("judgements.db", ("export judgements -o out.jsonl",)),
    "saved records": Kind(
        "scores.json", ("report scores.json -o out.html",), "verify scores.json --json"
    ),
    "unfinished job": Kind(
        "runs/predict-*/**/*",
        ("predict -m models.py:two -t paints-1", "score -t paints-1 -m two --json"),
        "",
    ),
    "ledger": Kind("ledger/*", ("predict -m models.py:one -t paints-1", _SCORE), ""),
}


class Flip(NamedTuple):
    """One flip and what came of it: ``same``, ``refused``, or what must not be."""

    kind: str
    file: str
    place: int
    outcome: str
    said: str


def heldout(line: str) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of one command in the current folder."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = invoke(line.split())
        except Exception:
            traceback.print_exc(file=err)
            code = 1
    return code, out.getvalue(), err.getvalue()


def build(root: Path, *, images: int = 40) -> None:
    """A workspace with every kind of stored file, in the current folder, which is ``root``."""
    rng = np.random.default_rng(0)
    names, labels, digests = [], [], []
    for number in range(images):
        label = list(PAINTS)[number % 4]
        path = root / "pictures" / f"{number:03d}.png"
        path.parent.mkdir(exist_ok=True)
        noise = rng.integers(-40, 40, (12, 12, 3))
        pixels = np.clip(np.array(PAINTS[label]) + noise, 0, 255).astype(np.uint8)
        Image.fromarray(pixels).save(path)
        names.append(path.name)
        labels.append(label)
        digests.append(sha256_file(path))
    members = [(n, "seen", ("park", "street", "sea")[i % 3]) for i, n in enumerate(names)]
    table = {"image_id": names, "path": names, "sha256": digests}
    table["light"] = ["day" if i % 3 else "night" for i in range(images)]
    made = make_testset(
        Card(
            name="paints-1",
            label_space="paints",
            counts={"images": images, "parent": 90},
            recipe={"name": "drawn", "parameters": {"cap": 7}, "seed": 3},
            parents=({"name": "more-paints", "content_hash": "5" * 64},),
            truths={"original": {"kind": "single"}, "second": {"kind": "single"}},
            images_root="../../pictures",
        ),
        images=image_table(table),
        truths={
            "original": truth_table(names, labels),
            "second": truth_table(names, [*labels[1:], labels[0]]),
        },
        label_space=SPACE,
        memberships=membership_table(members),
    )
    save(made, root / "testsets" / "paints-1")
    time.sleep(2.1)  # so that the ledger takes the images
    SPACE.write(root / "classes.json")
    (root / "models.py").write_text(MODELS)
    np.save(root / "outside.npy", rng.normal(size=(images, 4)).astype(np.float32))
    with JudgementStore(Workspace(root).judgements) as store:
        store.add(
            Judgement(
                question="label",
                subject={"image_id": name, "class_id": label},
                answer=("correct", "wrong", "unclear")[i % 3],
                who=f"w{i % 5}",
                when="2026-01-01T00:00:00Z",
                testset="paints-1",
            )
            for i, (name, label) in enumerate(zip(names, labels, strict=True))
        )
    for line in (
        "predict -m models.py:one -t paints-1",
        "predict -m models.py:two -t paints-1 --shard 1/2",
        "import predictions outside.npy -t paints-1",
        "annotate pictures -e fake --classes classes.json --name pool",
        "score -t paints-1 --metric top1 --by light --replicates 50 --save scores.json",
    ):
        code, _, err = heldout(line)
        if code:
            raise SystemExit(f"{line}: {err}")


def results(commands: Sequence[str]) -> list[tuple[int, str, str]]:
    """What commands print and write."""
    found = []
    for line in commands:
        code, out, err = heldout(line)
        for name in ("out.parquet", "out.jsonl", "out.html"):
            path = Path(name)
            if name in line and path.exists():
                if name == "out.parquet":
                    out += repr(pq.read_table(path).to_pylist())
                else:
                    out += re.sub(r"20\d\d-\d\d-\d\d \d\d:\d\d UTC", "", path.read_text())
                path.unlink()
        found.append((code, out, err))
    return found


def judged(before: Sequence[tuple[int, str, str]], after: Sequence[tuple[int, str, str]]) -> str:
    """What came of a flip: the worst of its commands."""
    outcome = "same"
    for (code, out, _), (now, shown, err) in zip(before, after, strict=True):
        if "Traceback" in err or now == 1:
            return "traceback"
        if now == 2 and sum(text.startswith("error: ") for text in err.splitlines()) == 1:
            outcome = "refused"
        elif (now, shown) != (code, out) and outcome == "same":
            return "another number"
    return outcome


def flips(root: Path, *, count: int, seed: int = 0) -> Iterator[Flip]:
    """Flip ``count`` bytes, one at a time in a fresh copy of the workspace, kind by kind in turn."""
    rng = np.random.default_rng(seed)
    place, whole = root / "w", root / "whole"
    here = Path.cwd()
    try:
        place.mkdir(parents=True)
        os.chdir(place)
        build(place)
        shutil.copytree(place, whole)
        known: dict[str, list[tuple[int, str, str]]] = {}
        for number in range(count):
            name = list(KINDS)[number % len(KINDS)]
            kind = KINDS[name]
            if name not in known:
                _restore(whole, place)
                known[name] = results(kind.commands)
            _restore(whole, place)
            files = [
                p for p in sorted(place.glob(kind.pattern)) if p.is_file() and p.stat().st_size
            ]
            path = files[rng.integers(len(files))]
            data = bytearray(path.read_bytes())
            at, change = int(rng.integers(len(data))), int(rng.integers(1, 256))
            data[at] ^= change
            path.write_bytes(data)
            found = [heldout(kind.verify)] if kind.verify else []
            after = results(kind.commands)
            outcome = judged(known[name], after)
            if found and ("Traceback" in found[0][2] or found[0][0] not in (0, 1, 2)):
                outcome = "traceback"
            elif outcome == "refused" and found and not (found[0][0] or "checksums" in found[0][2]):
                outcome = "unseen by verify"
            said = next((err for code, _, err in (*after, *found) if code not in (0, 3)), "")
            file = path.relative_to(place).as_posix()
            yield Flip(name, file, at, outcome, said.strip().splitlines()[-1] if said else "")
    finally:
        os.chdir(here)


def _restore(whole: Path, place: Path) -> None:
    """Make ``place`` what ``whole`` is; files that are the same stay, as the ledger knows them."""
    os.chdir(place)
    kept = {p.relative_to(whole): p.read_bytes() for p in whole.rglob("*") if p.is_file()}
    for path in sorted(place.rglob("*"), reverse=True):
        if path.is_dir():
            if not any(path.iterdir()):
                path.rmdir()
        elif path.relative_to(place) not in kept:
            path.unlink()
    for name, data in kept.items():
        path = place / name
        if not path.is_file() or path.read_bytes() != data:
            path.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(whole / name, path)


def main() -> None:
    from machine import describe, write_result

    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--flips", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    counts: dict[str, Counter[str]] = {name: Counter() for name in KINDS}
    with tempfile.TemporaryDirectory() as folder:
        for flip in flips(Path(folder), count=asked.flips, seed=asked.seed):
            counts[flip.kind][flip.outcome] += 1
            if flip.outcome not in ("same", "refused"):
                print(json.dumps(flip._asdict()), flush=True)
    columns = ("same", "refused", "another number", "traceback", "unseen by verify")
    rows = [
        f"| {name} | {sum(found.values())} | " + " | ".join(str(found[c]) for c in columns) + " |"
        for name, found in counts.items()
    ]
    write_result(
        "flips",
        f"# One flipped byte\n\n{describe()}. {asked.flips:,} flips of seed {asked.seed}, each in a "
        "fresh copy of a small workspace, then the commands that read such files.\n\n"
        f"| kind of file | flips | {' | '.join(columns)} |\n|---|{'---:|' * 6}\n"
        + "\n".join(rows)
        + "\n",
    )


if __name__ == "__main__":
    main()
