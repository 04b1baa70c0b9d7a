"""Small pools with known contexts, a slow way to everything, and strategies for hypothesis."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import strategies as st

from heldout.core.unpickle import read_pickle
from heldout.curate.contexts.subsets import Subsets, make_subsets
from heldout.data.published.metashift import split_subset_name
from heldout.data.testset.tables import image_table, membership_table
from heldout.data.testset.testset import TestSet, make_pool

Sets = Mapping[str, Iterable[str]]


def subsets_from(sets: Sets) -> Subsets:
    """Subsets from name -> image ids."""
    rows = [(image, name) for name in sorted(sets) for image in sorted(sets[name])]
    return make_subsets([image for image, _ in rows], [name for _, name in rows])


def pool_of_words(
    shown: Mapping[str, Iterable[str]],
    *,
    column: str = "object",
    stated: Mapping[str, Iterable[str]] | None = None,
    general: Mapping[str, Iterable[str]] | None = None,
    name: str = "pool",
) -> TestSet:
    """A pool from image -> words that it shows, subsets that are stated of it, and places."""
    ids = sorted({*shown, *(stated or {}), *(general or {})})
    rows = [(image, column, word) for image in shown for word in shown[image]]
    rows += [(image, "attribute", text) for image in stated or {} for text in (stated or {})[image]]
    rows += [(image, "general", text) for image in general or {} for text in (general or {})[image]]
    images = image_table(
        {
            "image_id": ids,
            "source": [f"site-{len(i) % 2}" for i in ids],
            "licence": ["CC-BY-4.0" if i.endswith("1") else None for i in ids],
            "attribution": [f"author of {i}" for i in ids],
        }
    )
    return make_pool(name, images=images, memberships=membership_table(rows))


def random_shown(seed: int, images: int, words: str, *, most: int = 5) -> dict[str, list[str]]:
    """Images that show a few of some words each, reproducibly."""
    random = np.random.default_rng(seed)
    names = words.split()
    return {
        f"image-{i:04d}": sorted(
            random.choice(names, size=int(random.integers(1, most + 1)), replace=False).tolist()
        )
        for i in range(images)
    }


def make_sources() -> dict[str, Any]:
    """Sources for the conformance suite: objects, attributes and places."""
    shown = random_shown(3, 120, "cat dog sofa bed car tree grass", most=4)
    stated = {i: [f"{w}(white)" for w in words[:1]] for i, words in shown.items()}
    places = {i: ["indoors" if len(words) % 2 else "outdoors"] for i, words in shown.items()}
    return {"pool": pool_of_words(shown, stated=stated, general=places)}


def slow_pairs(shown: Mapping[str, Iterable[str]]) -> dict[str, set[str]]:
    """Two words in one image, both ways round, by plain sets."""
    found: dict[str, set[str]] = {}
    for image, words in shown.items():
        for subject in set(words):
            for context in set(words) - {subject}:
                found.setdefault(f"{subject}({context})", set()).add(image)
    return found


def slow_overlap(a: set[str], b: set[str], measure: str) -> float:
    """The coefficient by set operations."""
    shared = len(a & b)
    return shared / (min(len(a), len(b)) if measure == "overlap" else len(a | b))


def published_sets(folder: Path) -> dict[str, set[str]]:
    """MetaShift's published attribute subsets."""
    path = folder / "metashift" / "attributes-candidate-subsets.pkl"
    sets: dict[str, set[str]] = read_pickle(path, allow=[("collections", "defaultdict")])
    return sets


def published_objects(sets: Mapping[str, set[str]]) -> dict[str, set[str]]:
    """What each image of the published subsets shows: the subjects that attributes are stated of."""
    shown: dict[str, set[str]] = {}
    for name, images in sets.items():
        for image in images:
            shown.setdefault(image, set()).add(split_subset_name(name).subject)
    return shown


@st.composite
def class_sets(draw: st.DrawFn, subject: str = "cat", most: int = 6) -> dict[str, set[str]]:
    """A few subsets of one class over a few images; every one has at least two images."""
    contexts = [f"c{i}" for i in range(draw(st.integers(2, most)))]
    images = [f"i{i:02d}" for i in range(draw(st.integers(4, 14)))]
    return {
        f"{subject}({context})": draw(st.sets(st.sampled_from(images), min_size=2))
        for context in contexts
    }
