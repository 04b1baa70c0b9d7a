"""Generated candidates, and the recipe written as plainly as possible."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from heldout.curate.domains.requests import DomainsParameters
from heldout.curate.recipe import Sources
from heldout.data.testset.hashing import row_hash
from heldout.data.testset.testset import TestSet, make_pool

Row = dict[str, Any]
PLACES = ("Africa", "Asia", "Europe", "Oceania")


def make_rows(
    seed: int,
    n: int,
    *,
    classes: int = 9,
    places: tuple[str, ...] = PLACES,
    levels: int = 12,
    missing: float = 0.0,
    numbers: bool = False,
) -> list[Row]:
    """Rows with unevenly large classes and domains, similarities with many ties, perhaps holes."""
    rng = np.random.default_rng(seed)
    sizes = 1 / np.arange(1, classes + 1)
    shares = np.arange(1, len(places) + 1) ** 2.0
    ids = rng.permutation(n)
    rows = []
    for i in range(n):
        country = f"land-{rng.integers(0, 6)}"
        row: Row = {
            "image_id": int(ids[i]) if numbers else f"photo-{ids[i]:05d}",
            "class_id": f"class-{rng.choice(classes, p=sizes / sizes.sum())}",
            "domain": places[rng.choice(len(places), p=shares / shares.sum())],
            "similarity": float(np.float32(rng.integers(-levels, levels) / 16)),
            "country": country,
            "uid": f"user-{rng.integers(0, 1 + n // 6)}",
            "is_train": bool(rng.random() < 0.7),
        }
        for column in ("class_id", "domain", "similarity"):
            if rng.random() < missing:
                row[column] = None
        rows.append(row)
    return rows


def as_table(rows: list[Row]) -> pa.Table:
    ids = pa.int64() if rows and isinstance(rows[0]["image_id"], int) else pa.string()
    schema = pa.schema(
        [
            ("image_id", ids),
            ("class_id", pa.string()),
            ("domain", pa.string()),
            ("similarity", pa.float32()),
            ("country", pa.string()),
            ("uid", pa.string()),
            ("is_train", pa.bool_()),
        ]
    )
    return pa.Table.from_pylist(rows, schema=schema)


def write_rows(rows: list[Row], path: Path, *, files: int = 1, group: int = 50) -> Path:
    """One Parquet file, or a folder of several, in small row groups."""
    table = as_table(rows)
    if files == 1:
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(table, path, row_group_size=group)
        return path
    path.mkdir(parents=True)
    edges = np.linspace(0, len(table), files + 1).astype(int)
    for number, (low, high) in enumerate(pairwise(edges.tolist())):
        pq.write_table(
            table.slice(low, high - low), path / f"part-{number:03d}.parquet", row_group_size=group
        )
    return path


def slow_select(
    rows: list[Row], parameters: DomainsParameters, *, seed: int
) -> tuple[list[str], list[tuple[str, int, int]]]:
    """The ids that are chosen, sorted, and (rule, rows in, rows out): one rule after the other."""
    steps: list[tuple[str, int, int]] = []

    def step(name: str, before: list[Row], after: list[Row]) -> list[Row]:
        steps.append((name, len(before), len(after)))
        return after

    p = parameters
    needed = ["image_id", p.class_column, p.domain]
    if p.similarity is not None:
        needed.append(p.similarity)
    left = step("complete", rows, [r for r in rows if all(r[c] is not None for c in needed)])
    if p.top is not None:
        ranked = sorted(left, key=lambda r: (-r[p.similarity or ""], r["image_id"]))
        left = step("top", left, ranked[: p.top])
    sizes = Counter(r[p.domain] for r in left)
    total = len(left)
    good = {
        name
        for name, size in sizes.items()
        if Fraction(size) >= Fraction(repr(p.min_domain_share)) * total and size >= p.min_domain
    }
    left = step("domain_minimum", left, [r for r in left if r[p.domain] in good])
    if p.domain_cap is not None:
        other = int(row_hash(["domain cap"], seed=seed)[0])
        left = step("domain_cap", left, _lowest(left, p.domain, p.domain_cap, other))
    if p.exclude:
        names = {text.split("=")[0] for text in p.exclude}
        left = step("exclusions", left, [r for r in left if r[p.class_column] not in names])
    if p.min_class_domains > 1:
        spread: dict[str, set[str]] = {}
        for r in left:
            spread.setdefault(r[p.class_column], set()).add(r[p.domain])
        left = step(
            "class_domains",
            left,
            [r for r in left if len(spread[r[p.class_column]]) >= p.min_class_domains],
        )
    if p.min_class > 1:
        counts = Counter(r[p.class_column] for r in left)
        left = step(
            "class_minimum", left, [r for r in left if counts[r[p.class_column]] >= p.min_class]
        )
    if p.classes is not None:
        counts = Counter(r[p.class_column] for r in left)
        chosen = sorted(counts, key=lambda c: (-counts[c], c))[: p.classes]
        left = step("largest_classes", left, [r for r in left if r[p.class_column] in chosen])
    after = left if p.cap is None else _lowest(left, p.class_column, p.cap, seed)
    left = step("cap", left, after)
    return sorted(str(r["image_id"]) for r in left), steps


def _lowest(rows: list[Row], column: str, cap: int, seed: int) -> list[Row]:
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(row[column], []).append(row)
    return [
        row
        for group in groups.values()
        for row in sorted(group, key=lambda r: int(row_hash([str(r["image_id"])], seed=seed)[0]))[
            :cap
        ]
    ]


def pool_from(rows: list[Row], *, name: str = "candidates") -> TestSet:
    """The rows as a pool in memory, with licences."""
    table = as_table(rows)
    ids = table["image_id"].cast(pa.string())
    images: dict[str, Any] = {"image_id": ids}
    n = len(table)
    for column in ("path", "uri", "sha256"):
        images[column] = pa.nulls(n, pa.string())
    for column in ("width", "height"):
        images[column] = pa.nulls(n, pa.int32())
    images["source"] = pa.array(["web"] * n)
    images["licence"] = pa.array(["CC-BY-2.0", "CC-BY-SA-2.0", None] * (n // 3 + 1))[:n]
    images["attribution"] = table["uid"]
    images["weight"] = pa.nulls(n, pa.float64())
    for column in table.column_names[1:]:
        images[column] = table[column]
    return make_pool(name, images=pa.table(images))


def make_sources() -> Sources:
    """Sources for the conformance suite."""
    return {"pool": pool_from(make_rows(1, 400, missing=0.02))}
