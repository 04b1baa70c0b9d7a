"""What is to be learned: images with features, classes and domains, in three parts.

Candidates for labels are the part ``train``. Allocators and thresholds look at ``validation``, and
numbers are reported on ``test``: no image serves two of these ends.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from heldout.core.errors import MismatchError, NotApplicable, UserError
from heldout.curate.active.quotas import proportional
from heldout.curate.active.training import Images
from heldout.data.testset.rowhash import derived_seed, row_hash

PARTS = ("train", "validation", "test")
TRAIN, VALIDATION, TEST = range(3)
SHARES = (0.5, 0.2, 0.3)


@dataclass(frozen=True, eq=False, kw_only=True)
class Problem:
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
    shares: Sequence[float] = SHARES,
    split_seed: int = 0,
    truth: str = "original",
) -> Problem:
    """A problem from columns of equal length, in any order of rows.

    ``parts`` are given as texts (``val`` is validation), or drawn by ``shares`` inside every domain
    and class, by hashes of ids and ``split_seed``. Images whose features are not finite are refused.
    """
    order = sorted(range(len(ids)), key=lambda row: ids[row])
    names = tuple(ids[row] for row in order)
    for given in (labels, domains, features, parts):
        if given is not None and len(given) != len(ids):
            raise MismatchError(
                f"{name}: {len(ids)} images, but {len(given)} values of a column",
                fix="give one value an image",
            )
    if len(set(names)) != len(names):
        raise UserError(f"{name} has an image id twice", fix="give every image its own id")
    known = tuple(sorted({c for c in labels if c}))
    codes = {label: place for place, label in enumerate(known)}
    found = np.array([codes.get(labels[row] or "", -1) for row in order], np.int64)
    domain_names = tuple(sorted(set(domains)))
    places = {domain: place for place, domain in enumerate(domain_names)}
    where = np.array([places[domains[row]] for row in order], np.int64)
    vectors = None
    if features is not None:
        vectors = np.ascontiguousarray(np.asarray(features, np.float32)[order])
        bad = np.flatnonzero(~np.isfinite(vectors).all(axis=1))
        if len(bad):
            raise NotApplicable(
                f"{len(bad)} images have no features, such as {names[bad[0]]!r}",
                fix="leave them out",
            )
    if parts is None:
        split = draw_parts(names, found * len(domain_names) + where, shares, seed=split_seed)
    else:
        split = _part_codes([parts[row] for row in order], name)
    if (found[split != TRAIN] < 0).any():
        raise NotApplicable(
            f"{name}: images of validation or test have no class", fix="leave them out"
        )
    return Problem(
        name=name,
        ids=names,
        features=vectors,
        labels=found,
        domains=where,
        parts=split,
        classes=known,
        domain_names=domain_names,
        truth=truth,
    )


def draw_parts(
    ids: Sequence[str], strata: np.ndarray, shares: Sequence[float], *, seed: int
) -> np.ndarray:
    """Parts drawn inside every stratum, int8 (n,): shares met to one image in each.

    Who goes where follows from hashes of ids. Leftovers of strata are spread by rounding shares of
    the strata's sizes one after the other, so that the parts as a whole keep their shares.
    """
    if len(shares) != len(PARTS) or min(shares) < 0 or abs(sum(shares) - 1) > 1e-9:
        raise UserError(
            f"the shares {', '.join(f'{share:g}' for share in shares)}",
            fix="give three that sum to 1, for train, validation and test",
        )
    hashes = row_hash(ids, seed=derived_seed("active parts", seed))
    order = np.lexsort((hashes, strata))
    parts = np.zeros(len(strata), np.int8)
    _, starts, sizes = np.unique(strata[order], return_index=True, return_counts=True)
    held = np.zeros(len(PARTS))
    seen = 0
    for start, size in zip(starts.tolist(), sizes.tolist(), strict=True):
        seen += size
        floor = np.floor(np.asarray(shares) * size)
        owed = np.maximum(np.asarray(shares) * seen - held - floor, 0.0)
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
            f"{name}: {unknown[0]!r} is no part",
            fix=f"use {', '.join(PARTS)} as the split's values",
        )
    return np.array([known[text] for text in texts], np.int8)
