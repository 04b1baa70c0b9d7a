"""From a pool or a test set with features to a problem: classes, domains and parts of its images."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

import numpy as np

from heldout.core.errors import NotApplicable, NotFound, UserError
from heldout.curate.active.problem import SHARES, Problem, make_problem
from heldout.data.testset.pool import Pool
from heldout.models.embeddings.encode import rows_of
from heldout.models.embeddings.store import Embeddings

_FOLDER = "folder:"


@dataclass(frozen=True)
class Left:
    """How many images were left out, and why."""

    without_class: int = 0
    without_domain: int = 0
    without_features: int = 0
    unknown: int = 0
    """Labels of images that are not there."""


def domain_values(pool: Pool, name: str) -> list[str | None]:
    """The domain of every image: a column, a membership, or ``folder:N`` of its path.

    ``folder:1`` is the first folder of an image's path, ``folder:2`` the second. An image with
    several values of a membership has no domain of its own.
    """
    if name.startswith(_FOLDER):
        return _folders(pool, name)
    if name in pool.images.column_names:
        values = pool.images[name].to_pylist()
        return [None if value is None else str(value) for value in values]
    found: dict[str, str | None] = {}
    columns = pool.memberships["column"].to_pylist()
    if name in columns:
        for image, column, value in zip(
            pool.memberships["image_id"].to_pylist(),
            columns,
            pool.memberships["value"].to_pylist(),
            strict=True,
        ):
            if column == name:
                found[image] = None if image in found else str(value)
        return [found.get(image) for image in pool.images["image_id"].to_pylist()]
    offered = [c for c in pool.images.column_names if c in pool.columns] + sorted(set(columns))
    raise NotFound(
        f"{pool.name} has no column {name!r}",
        fix=f"it has {', '.join(offered) or 'none'}; folder:1 is the first folder of the path",
    )


def class_values(pool: Pool, *, truth: str | None = None, column: str | None = None) -> list[Any]:
    """The class of every image: of a truth with one class an image, or of a column; None where none."""
    ids = pool.images["image_id"].to_pylist()
    if column is not None:
        if column not in pool.images.column_names:
            raise NotFound(f"{pool.name} has no column {column!r}", fix="name one that it has")
        return [None if v is None else str(v) for v in pool.images[column].to_pylist()]
    table = pool.truth(truth)
    found: dict[str, str | None] = {}
    for image, label in zip(
        table["image_id"].to_pylist(), table["class_id"].to_pylist(), strict=True
    ):
        # An image with rows of two classes has no single class to learn.
        found[image] = None if image in found else label
    return [found.get(image) for image in ids]


def pool_problem(
    pool: Pool,
    features: Embeddings | None,
    *,
    domain: str,
    truth: str | None = None,
    class_column: str | None = None,
    split: str | None = None,
    shares: tuple[float, float, float] = SHARES,
    split_seed: int = 0,
) -> tuple[Problem, Left]:
    """A problem from a pool; images without a class, a domain or features are left out, and counted.

    ``split``  a column with the values train, validation and test; drawn by ``shares`` otherwise
    """
    ids = pool.images["image_id"].to_pylist()
    labels = class_values(pool, truth=truth, column=class_column)
    domains = domain_values(pool, domain)
    vectors, has = feature_rows(features, ids)
    parts = None
    if split is not None:
        if split not in pool.images.column_names:
            raise NotFound(f"{pool.name} has no column {split!r}", fix="name one that it has")
        parts = [str(value) for value in pool.images[split].to_pylist()]
    labelled = np.array([label is not None for label in labels])
    placed = np.array([value is not None for value in domains])
    kept = np.flatnonzero(labelled & placed & has)
    if not len(kept):
        raise NotApplicable(
            f"no image of {pool.name} has a class, a domain and features",
            fix="check --domain, --truth or --class, and --features",
        )
    problem = make_problem(
        pool.name,
        ids=[ids[row] for row in kept],
        labels=[labels[row] for row in kept],
        domains=[domains[row] or "" for row in kept],
        features=None if vectors is None else vectors[kept],
        parts=None if parts is None else [parts[row] for row in kept],
        shares=shares,
        split_seed=split_seed,
        truth=class_column or truth or next(iter(pool.truths), "original"),
    )
    left = Left(
        int((~labelled).sum()),
        int((labelled & ~placed).sum()),
        int((labelled & placed & ~has).sum()),
    )
    return problem, left


def unlabelled_problem(
    pool: Pool, features: Embeddings | None, *, domain: str, labels: Mapping[str, str]
) -> tuple[Problem, Left]:
    """A problem of all images of a pool, of which only some have a class: ``labels`` by image id."""
    ids = pool.images["image_id"].to_pylist()
    domains = domain_values(pool, domain)
    vectors, has = feature_rows(features, ids)
    placed = np.array([value is not None for value in domains])
    kept = np.flatnonzero(placed & has)
    if not len(kept):
        raise NotApplicable(
            f"no image of {pool.name} has a domain and features",
            fix="check --domain and --features",
        )
    problem = make_problem(
        pool.name,
        ids=[ids[row] for row in kept],
        labels=[labels.get(ids[row]) for row in kept],
        domains=[domains[row] or "" for row in kept],
        features=None if vectors is None else vectors[kept],
        parts=["train"] * len(kept),
    )
    left = Left(0, int((~placed).sum()), int((placed & ~has).sum()), len(labels.keys() - set(ids)))
    return problem, left


def feature_rows(
    features: Embeddings | None, ids: list[str]
) -> tuple[np.ndarray | None, np.ndarray]:
    """The features of ids, float32 (n, d) or None, and which images have some, bool (n,)."""
    if features is None:
        return None, np.ones(len(ids), bool)
    vectors = np.asarray(features.vectors[rows_of(features, ids)], np.float32)
    return vectors, np.asarray(np.isfinite(vectors).all(axis=1))


def _folders(pool: Pool, name: str) -> list[str | None]:
    text = name.removeprefix(_FOLDER)
    if not text.isdecimal() or int(text) < 1:
        raise UserError(
            f"no domain {name!r}", fix="write folder:1 for the first folder of the path"
        )
    place = int(text) - 1
    paths = pool.images["path"].to_pylist()
    names = pool.images["image_id"].to_pylist()
    found: list[str | None] = []
    for path, image in zip(paths, names, strict=True):
        parts = PurePosixPath(path or image).parts[:-1]
        found.append(parts[place] if place < len(parts) else None)
    return found
