"""Counts of a set of subsets: of the whole, and of each class."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from heldout.core.errors import NotFound
from heldout.core.files import read_versioned_json
from heldout.curate.contexts.candidates import Candidates
from heldout.data.labels.label_space import LabelSpace

STATISTICS = "statistics.json"
"""The document of a set that holds them."""


def statistics(found: Candidates, space: LabelSpace, classes: Mapping[str, str]) -> dict[str, Any]:
    """As JSON: ``counts``; ``sizes`` of the kept subsets; ``classes``, largest first; ``merged``.

    ``coverage`` of a class is the share of its images with any context that kept subsets hold.
    """
    kept = found.kept
    rows = []
    for subject in kept.subjects:
        mine = kept.of(subject)
        largest = int(np.argmax(mine.sizes))
        rows.append(
            {
                "class": classes[subject],
                "subject": subject,
                "subsets": len(mine),
                "images": len(mine.image_ids),
                "coverage": len(mine.image_ids) / found.images[subject],
                "largest": mine.names[largest],
                "largest_images": int(mine.sizes[largest]),
                "median_images": float(np.median(mine.sizes)),
            }
        )
    sizes = kept.sizes
    return {
        "counts": dict(found.counts),
        "label_space": space.name,
        "sizes": {
            "least": int(sizes.min()),
            "median": float(np.median(sizes)),
            "mean": float(sizes.mean()),
            "most": int(sizes.max()),
            "memberships": int(sizes.sum()),
        },
        "classes": sorted(rows, key=lambda row: (-int(str(row["images"])), str(row["subject"]))),
        "merged": {word: list(meant) for word, meant in sorted(found.merged.items())},
    }


def read_statistics(folder: Path) -> dict[str, Any]:
    """The statistics of a set in its folder, as :func:`statistics` made them."""
    path = folder / STATISTICS
    if not path.is_file():
        raise NotFound(
            f"no {STATISTICS} in {folder}", fix="make the set with heldout build contexts"
        )
    return read_versioned_json(path, version=1)
