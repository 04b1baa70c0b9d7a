"""Subsets of a pool as plain JSON: ``{subject(context): [image ids]}``, or nested by category."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from heldout.core.errors import NotApplicable
from heldout.core.files import write_text
from heldout.data.published.subset_names import parted
from heldout.data.testset.pool import Pool

COLUMNS = ("attribute", "subset", "relation")
"""The membership columns whose values are ``subject(context)``."""


def subsets_of(pool: Pool) -> dict[str, list[str]]:
    """Every ``subject(context)`` of a pool with its image ids; both sorted."""
    import pyarrow as pa
    import pyarrow.compute as pc

    rows = pool.memberships.filter(
        pc.is_in(pool.memberships["column"], value_set=pa.array(COLUMNS, pa.string()))
    )
    if not len(rows):
        raise NotApplicable(
            f"pool {pool.name} has no subsets of its own",
            fix="heldout build contexts makes them from objects",
        )
    grouped = rows.sort_by([("value", "ascending"), ("image_id", "ascending")])
    found: dict[str, list[str]] = {}
    for value, image_id in zip(
        grouped["value"].to_pylist(), grouped["image_id"].to_pylist(), strict=True
    ):
        ids = found.setdefault(value, [])
        if not ids or ids[-1] != image_id:
            ids.append(image_id)
    return found


def structured_subsets(pool: Pool) -> dict[str, dict[str, dict[str, list[str]]]]:
    """Category → subject → attribute → image ids, by the categories that the pool was read with.

    An attribute of several categories is under each; one of none is under ``other``.
    """
    categories = pool.facts.get("attribute_categories", {})
    found: dict[str, dict[str, dict[str, list[str]]]] = {}
    for name, ids in subsets_of(pool).items():
        subject, context = parted(name)
        for category in categories.get(context, ["other"]):
            found.setdefault(category, {}).setdefault(subject, {})[context] = ids
    return {category: found[category] for category in sorted(found)}


def write_subsets(pool: Pool, path: Path, *, structured: bool = False) -> None:
    """Write a pool's subsets as JSON that the source ``metashift`` reads back."""
    import json

    made: dict[str, Any] = dict(structured_subsets(pool) if structured else subsets_of(pool))
    write_text(path, json.dumps(made, ensure_ascii=False, indent=0, separators=(",", ":")) + "\n")
