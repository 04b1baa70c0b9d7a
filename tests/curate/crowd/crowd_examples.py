"""A small workspace to ask a crowd about: candidates and originals of three classes, with photos."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

import heldout
from heldout.core.workspace import Workspace
from heldout.data.judgements.judgement import Judgement
from heldout.data.judgements.store import JudgementStore
from heldout.data.labels.label_space import Class, LabelSpace
from heldout.data.testset import Card, image_table, make_pool, make_testset, save, truth_table

NAMES = ("cat", "dog", "owl")
SPACE = LabelSpace(
    "pets",
    tuple(
        Class(
            name,
            names=(name, f"{name} <animal>"),
            gloss=f"an animal that is a {name}",
            links=(f"https://pets.example/{name}?a=1&b=2",),
            similar=tuple(other for other in NAMES if other != name),
        )
        for name in NAMES
    ),
)
CHILD = """
import sys
from pathlib import Path
from heldout.cli.app import invoke
from heldout.testing.recipe_child import Moments
moments = Moments(Path(sys.argv[2]), int(sys.argv[1]) or None)
sys.addaudithook(moments)
code = invoke(sys.argv[3:])
print("writes", moments.count)
sys.exit(code)
"""
"""A command that kills itself before a write below a folder, or counts them."""
SIZES = {"candidates": 4, "positive": 1, "negative": 1}


def photo(path: Path, seed: int, size: tuple[int, int]) -> None:
    """A photo with everything in its file that must not be published."""
    draw = np.random.default_rng(seed)
    small = Image.fromarray(draw.integers(0, 255, (6, 8, 3), dtype=np.uint8))
    exif = Image.Exif()
    exif[0x010E] = "somebody's photo"
    exif[0x0112] = 6  # stored on its side
    path.parent.mkdir(parents=True, exist_ok=True)
    small.resize(size).save(path, "JPEG", exif=exif, comment=b"a secret", dpi=(72, 72))


def save_set(
    workspace: Workspace, name: str, count: int, *, photos: bool, size: tuple[int, int]
) -> None:
    ids = [f"{name}-{n:03}" for n in range(count)]
    paths = [f"{image}.jpg" for image in ids]
    if photos:
        for n, path in enumerate(paths):
            photo(workspace.root / "photos" / name / path, n, size)
    tables: dict[str, Any] = {
        "images": image_table({"image_id": ids, "path": paths}),
        "truths": {"original": truth_table(ids, [NAMES[n % 3] for n in range(count)])},
        "label_space": SPACE,
    }
    root = workspace.root / "photos" / name
    if name == "pool":
        save(make_pool(name, **tables, images_root=root), workspace.pools / name)
    else:
        card = Card(name=name, label_space=SPACE.name, images_root=str(root))
        save(make_testset(card, **tables), workspace.testsets / name)


def workspace_of(
    root: Path, *, candidates: int = 30, originals: int = 12, photos: bool = False
) -> Workspace:
    """A workspace with a pool, an original set ``val``, and ``grids.json`` with ten candidates a class."""
    workspace = Workspace(root)
    save_set(workspace, "pool", candidates, photos=photos, size=(640, 400))
    save_set(workspace, "val", originals, photos=photos, size=(120, 200))
    similar = root / "similar.json"
    similar.write_text('{"cat": ["dog"], "dog": ["owl"], "owl": ["cat"]}')
    heldout.verbs.crowd_grids(
        "pool",
        controls="val",
        similar=similar,
        grid=SIZES,
        out=root / "grids.json",
        workspace=workspace,
    )
    return workspace


def stored_votes(workspace: Workspace) -> list[Judgement]:
    with JudgementStore(workspace.judgements) as store:
        return list(store.stream(question="vote"))


def counts(result: Any) -> dict[str, int]:
    return {record.name: record.value for record in result.records if record.record == "count"}


def of_kind(result: Any, kind: str) -> Sequence[Any]:
    return [record for record in result.records if record.record == kind]
