"""The labelling task: candidates, test images, domains and features, from a pool or a test set."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from heldout.core.engine import Progress, no_progress
from heldout.core.errors import NotApplicable, NotFound, UserError
from heldout.core.workspace import Workspace
from heldout.curate.active.classifier import Images
from heldout.curate.active.requests import PARTS
from heldout.curate.active.strategies import proportional
from heldout.data.images import ImageSource
from heldout.data.testset.hashing import derived_seed, row_hash
from heldout.data.testset.tables import memberships_by_column
from heldout.data.testset.testset import TestSet
from heldout.models.descriptors import image_encoder
from heldout.models.embeddings import Embeddings, embed, is_embeddings, read_embeddings, rows_of

TRAIN, VALIDATION, TEST = range(3)
SHARES = (0.5, 0.2, 0.3)
"""Of the images, in each part."""


@dataclass(frozen=True, eq=False, kw_only=True)
class LabelingTask:
    """Images in the order of their ids. Build one with :func:`make_problem`.

    ``labels``   int64 (n,), places in ``classes``; -1 where unknown (never in validation or test)
    ``domains``  int64 (n,), places in ``domain_names``
    ``parts``    int8 (n,): 0 train, 1 validation, 2 test
    """

    name: str
    ids: tuple[str, ...]
    features: np.ndarray | None
    labels: np.ndarray
    domains: np.ndarray
    parts: np.ndarray
    classes: tuple[str, ...]
    domain_names: tuple[str, ...]
    truth: str = "original"

    def __len__(self) -> int:
        return len(self.ids)

    def rows(self, part: int) -> np.ndarray:
        """The rows of a part, int64, ascending."""
        return np.flatnonzero(self.parts == part)

    def images(self, rows: np.ndarray) -> Images:
        """The images at some rows, as trainers take them."""
        return Images(
            [self.ids[row] for row in rows.tolist()],
            None if self.features is None else self.features[rows],
        )

    @cached_property
    def id_column(self) -> Any:
        """The ids as an Arrow array, for hashes."""
        import pyarrow as pa

        return pa.array(self.ids, pa.string())

    @cached_property
    def domain_sizes(self) -> np.ndarray:
        """Images of each domain in the part ``train``, int64 (domains,): the natural mix."""
        return np.bincount(self.domains[self.rows(TRAIN)], minlength=len(self.domain_names))

    @cached_property
    def digest(self) -> str:
        """SHA-256 over all that results depend on."""
        made = hashlib.sha256()
        for texts in (self.ids, self.classes, self.domain_names):
            made.update(f"{len(texts)}\n".encode())
            made.update("\n".join(texts).encode("utf-8"))
        for array in (self.labels, self.domains, self.parts, self.features):
            if array is not None:
                made.update(f"{array.dtype.str} {array.shape}\n".encode())
                made.update(np.ascontiguousarray(array).data)
        return made.hexdigest()


def make_problem(
    name: str,
    *,
    ids: Sequence[str],
    labels: Sequence[str | None],
    domains: Sequence[str],
    features: np.ndarray | None = None,
    parts: Sequence[str] | None = None,
    split_seed: int = 0,
    truth: str = "original",
) -> LabelingTask:
    """A problem from columns of equal length, in any order of rows; ids are distinct.

    ``parts`` are given as texts (``val`` is validation), or drawn by :data:`SHARES` inside every
    domain and class, by hashes of ids and ``split_seed``.
    """
    order = sorted(range(len(ids)), key=lambda row: ids[row])
    names = tuple(ids[row] for row in order)
    classes, found = _codes([labels[row] or "" for row in order])
    domain_names, where = _codes([domains[row] for row in order])
    if parts is None:
        split = draw_parts(names, found * len(domain_names) + where, seed=split_seed)
    else:
        split = _part_codes([parts[row] for row in order], name)
    if (found[split != TRAIN] < 0).any():
        raise NotApplicable(
            f"{name}: images of validation or test have no class", fix="leave them out"
        )
    return LabelingTask(
        name=name,
        ids=names,
        features=None if features is None else np.asarray(features, np.float32)[order],
        labels=found,
        domains=where,
        parts=split,
        classes=classes,
        domain_names=domain_names,
        truth=truth,
    )


def _codes(values: Sequence[str]) -> tuple[tuple[str, ...], np.ndarray]:
    """The distinct values, sorted, and the place of each value among them; -1 for an empty one."""
    names = tuple(sorted({*values} - {""}))
    places = {name: place for place, name in enumerate(names)}
    return names, np.array([places.get(value, -1) for value in values], np.int64)


def draw_parts(ids: Sequence[str], strata: np.ndarray, *, seed: int) -> np.ndarray:
    """Parts drawn inside every stratum, int8 (n,): :data:`SHARES` met to one image in each.

    Who goes where follows from hashes of ids. Leftovers of strata are spread by rounding shares of
    the strata's sizes one after the other, so that the parts as a whole keep their shares.
    """
    hashes = row_hash(ids, seed=derived_seed("active parts", seed))
    order = np.lexsort((hashes, strata))
    parts = np.zeros(len(strata), np.int8)
    _, starts, sizes = np.unique(strata[order], return_index=True, return_counts=True)
    held = np.zeros(len(PARTS))
    seen = 0
    for start, size in zip(starts.tolist(), sizes.tolist(), strict=True):
        seen += size
        floor = np.floor(np.asarray(SHARES) * size)
        owed = np.maximum(np.asarray(SHARES) * seen - held - floor, 0.0)
        # The stratum's own whole shares, then one more image to the parts that are owed most.
        counts = floor.astype(np.int64)
        left = size - int(counts.sum())
        counts += proportional(owed, np.ones(len(PARTS), np.int64), left)
        held += counts
        parts[order[start : start + size]] = np.repeat(np.arange(len(PARTS)), counts)
    return parts


def _part_codes(texts: Sequence[str], name: str) -> np.ndarray:
    known = {part: code for code, part in enumerate(PARTS)} | {"val": VALIDATION}
    unknown = sorted({text for text in texts if text not in known})
    if unknown:
        raise UserError(
            f"{name}: {unknown[0]!r} is not a part",
            fix=f"use {', '.join(PARTS)} as the split's values",
        )
    return np.array([known[text] for text in texts], np.int8)


_PREFIX = "embeddings:"


def pool_features(
    pool: TestSet,
    text: str,
    *,
    workspace: Workspace,
    images: ImageSource | Path | str | None = None,
    workers: int | None = None,
    progress: Progress = no_progress,
) -> Embeddings:
    """Features of a pool's images: read where ``text`` is a path of vectors, else made and kept.

    ``text``  ``embeddings:PATH`` or a path; the name of an encoder; or that of a model
    """
    path = Path(text.removeprefix(_PREFIX))
    if text.startswith(_PREFIX) or is_embeddings(path):
        return read_embeddings(path)
    return embed(
        pool,
        image_encoder(text),
        workspace=workspace,
        images=images,
        workers=workers,
        progress=progress,
    )


_FOLDER = "folder:"


@dataclass(frozen=True)
class Left:
    """How many images were left out, and why."""

    without_class: int = 0
    without_domain: int = 0
    without_features: int = 0
    unknown: int = 0
    """Labels of images that are not there."""


def domain_values(pool: TestSet, name: str) -> list[str | None]:
    """The domain of every image: a column, a membership, or ``folder:N`` of its path.

    ``folder:1`` is the first folder of an image's path, ``folder:2`` the second. An image with
    several values of a membership has no domain of its own.
    """
    if name.startswith(_FOLDER):
        return _folders(pool, name)
    if name in pool.images.column_names:
        return _column(pool, name)
    columns = memberships_by_column(pool.memberships)
    if name in columns:
        found = columns[name]
        return [_only(found.get(image, [])) for image in pool.images["image_id"].to_pylist()]
    offered = [c for c in pool.images.column_names if c in pool.card.columns] + sorted(columns)
    raise NotFound(
        f"{pool.name} has no column {name!r}",
        fix=f"it has {', '.join(offered) or 'none'}; folder:1 is the first folder of the path",
    )


def class_values(
    pool: TestSet, *, truth: str | None = None, column: str | None = None
) -> list[str | None]:
    """The class of every image: of a truth with one class per image, or of a column; None where none."""
    if column is not None:
        return _column(pool, column)
    table = pool.truth(truth)
    found: defaultdict[str, list[str]] = defaultdict(list)
    for image, label in zip(
        table["image_id"].to_pylist(), table["class_id"].to_pylist(), strict=True
    ):
        found[image].append(label)
    return [_only(found[image]) for image in pool.images["image_id"].to_pylist()]


def _only(values: Sequence[str]) -> str | None:
    """The value of an image; one with several, such as rows of two classes, has none of its own."""
    return values[0] if len(values) == 1 else None


def pool_problem(
    pool: TestSet,
    features: Embeddings | None,
    *,
    domain: str,
    truth: str | None = None,
    class_column: str | None = None,
    split: str | None = None,
    split_seed: int = 0,
    labels: Mapping[str, str] | None = None,
) -> tuple[LabelingTask, Left]:
    """A problem from a pool; images without a class, a domain or features are left out, and counted.

    ``split``   a column with the values train, validation and test; drawn by :data:`SHARES` otherwise
    ``labels``  the labels so far, by image id, in place of a truth and of parts: then images without
                a class are the candidates, and are not left out
    """
    ids = pool.images["image_id"].to_pylist()
    if labels is None:
        known = class_values(pool, truth=truth, column=class_column)
        parts = None if split is None else _column(pool, split)
        needed = np.array([bool(label) for label in known])
    else:
        known, parts = [labels.get(image) for image in ids], ["train"] * len(ids)
        needed = np.ones(len(ids), bool)
    domains = domain_values(pool, domain)
    vectors, has = feature_rows(features, ids)
    placed = np.array([bool(value) for value in domains])
    kept = np.flatnonzero(needed & placed & has)
    if not len(kept):
        raise NotApplicable(
            f"no image of {pool.name} has a class where one is needed, a domain and features",
            fix="check --domain, --truth or --class-column, and --features",
        )
    problem = make_problem(
        pool.name,
        ids=[ids[row] for row in kept],
        labels=[known[row] for row in kept],
        domains=[domains[row] or "" for row in kept],
        features=None if vectors is None else vectors[kept],
        parts=None if parts is None else [str(parts[row]) for row in kept],
        split_seed=split_seed,
        truth=class_column or truth or next(iter(pool.truths), "original"),
    )
    left = Left(
        int((~needed).sum()),
        int((needed & ~placed).sum()),
        int((needed & placed & ~has).sum()),
        len((labels or {}).keys() - set(ids)),
    )
    return problem, left


def _column(pool: TestSet, name: str) -> list[str | None]:
    if name not in pool.images.column_names:
        raise NotFound(f"{pool.name} has no column {name!r}", fix="name one that it has")
    values = pool.images[name].to_pylist()
    return [None if value is None else str(value) for value in values]


def feature_rows(
    features: Embeddings | None, ids: list[str]
) -> tuple[np.ndarray | None, np.ndarray]:
    """The features of ids, float32 (n, d) or None, and which images have some, bool (n,)."""
    if features is None:
        return None, np.ones(len(ids), bool)
    vectors = np.asarray(features.vectors[rows_of(features, ids)], np.float32)
    return vectors, np.asarray(np.isfinite(vectors).all(axis=1))


def _folders(pool: TestSet, name: str) -> list[str | None]:
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
