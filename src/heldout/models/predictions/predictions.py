"""Predictions: one model's outputs on a set of images, joined by image id and never by position."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from heldout.core.errors import MismatchError, UserError
from heldout.core.files import canonical_json
from heldout.data.labels.label_space import LabelSpace

if TYPE_CHECKING:
    import pyarrow as pa

TOP_K = 5
HASHED_ROWS = 4096


@dataclass(frozen=True, eq=False, kw_only=True)
class Predictions:
    """One model's outputs.

    ``image_ids``  Arrow string array, n
    ``topk``       int32 (n, k): class indices of ``label_space``, best first; -1 where there is none
    ``logits``     float (n, classes) or None when only the top k were kept
    ``failures``   row -> why this image has no output; its ``topk`` row is all -1
    ``identity``   what tells this model from any other: weights, preprocessing, source file
    ``digests``    SHA-256 of the bytes that the model was given, None for failures; None as a whole
                   where nobody knows them, as for imports; no part of the hash
    ``stored_hash`` the hash that the store recorded when it wrote these outputs
    """

    model: str
    image_ids: pa.StringArray
    topk: np.ndarray
    label_space: LabelSpace
    logits: np.ndarray | None = None
    failures: Mapping[int, str] = field(default_factory=dict)
    identity: Mapping[str, Any] = field(default_factory=dict)
    run: Mapping[str, Any] = field(default_factory=dict)
    digests: Sequence[str | None] | None = None
    stored_hash: str = ""

    def __post_init__(self) -> None:
        n = len(self.image_ids)
        if self.topk.ndim != 2 or len(self.topk) != n:
            raise UserError(f"{self.model}: {n} images but top-k of shape {self.topk.shape}")
        if self.logits is not None and self.logits.shape != (n, len(self.label_space)):
            raise UserError(
                f"{self.model}: logits of shape {self.logits.shape} do not fit {n} images and the "
                f"{len(self.label_space)} classes of {self.label_space.name}",
                fix="name the label space of the model with --classes",
            )

    def __len__(self) -> int:
        return len(self.image_ids)

    @cached_property
    def hash(self) -> str:
        """SHA-256 over all rows sorted by image id: equal outputs, equal hash."""
        if self.stored_hash:
            return self.stored_hash
        import pyarrow.compute as pc

        # By code point, as Python sorts text: UTF-8 bytes have the same order.
        sort = pc.sort_indices(self.image_ids)
        order = sort.to_numpy(zero_copy_only=False).astype(np.int64)
        digest = hashlib.sha256(self.label_space.fingerprint.encode())
        digest.update("\n".join(self.image_ids.take(sort).to_pylist()).encode())
        digest.update(np.ascontiguousarray(self.topk[order], "<i4").tobytes())
        if self.logits is not None:
            # Some rows at a time: in float32 all of them are twice what they are here.
            for start in range(0, len(order), HASHED_ROWS):
                some = self.logits[order[start : start + HASHED_ROWS]]
                digest.update(np.ascontiguousarray(some, "<f4").tobytes())
        digest.update(
            canonical_json(
                sorted([self.image_ids[row].as_py(), why] for row, why in self.failures.items())
            ).encode()
        )
        return digest.hexdigest()

    @cached_property
    def key(self) -> str:
        """What the store files it under: see :func:`identity_key`."""
        return identity_key(self.identity, self.label_space)

    def rows_for(self, image_ids: Any, *, testset: str) -> np.ndarray:
        """The row of each of ``image_ids`` here, int64 (n,); a missing image is a mismatch."""
        import pyarrow.compute as pc

        if image_ids.equals(self.image_ids):
            return np.arange(len(self))
        rows = pc.index_in(image_ids, value_set=self.image_ids)
        if rows.null_count:
            example = image_ids.filter(rows.is_null())[0].as_py()
            raise MismatchError(
                f"predictions of {self.model} lack {rows.null_count} of the {len(image_ids)} images "
                f"of {testset}, such as {example!r}",
                fix="they are of another set, or of an older revision: predict on this one",
            )
        found: np.ndarray = rows.to_numpy(zero_copy_only=False).astype(np.int64)
        return found

    def renamed(self, model: str) -> Predictions:
        """The same outputs under another model name."""
        return replace(self, model=model)


def identity_key(identity: Mapping[str, Any], label_space: LabelSpace) -> str:
    """Twelve hexadecimal digits over what identifies a model and the label space that it answers in."""
    text = canonical_json({"identity": dict(identity), "classes": label_space.fingerprint})
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def top_k(logits: np.ndarray, k: int = TOP_K) -> np.ndarray:
    """Indices of the ``k`` largest logits, best first, ties to the smaller index; int32 (n, k).

    >>> top_k(np.array([[0.1, 0.7, 0.7]]), 2).tolist()
    [[1, 2]]
    """
    k = min(k, logits.shape[1])
    losses = -logits
    # A partition finds the k-th value; only what is at or above it is sorted.
    limits = np.partition(losses, k - 1, axis=1)[:, k - 1]
    best = []
    for row, limit in zip(losses, limits, strict=True):
        near = np.flatnonzero(row <= limit)
        best.append(near[np.argsort(row[near], kind="stable")[:k]])
    return np.array(best, np.int32).reshape(len(logits), k)


def as_stored(values: np.ndarray) -> np.ndarray:
    """Logits as they are kept: float16, what lies beyond its range at its ends.

    >>> as_stored(np.array([1.5, -1e9], np.float32)).tolist()
    [1.5, -65504.0]
    """
    limit = float(np.finfo(np.float16).max)
    kept: np.ndarray = np.clip(values, -limit, limit).astype(np.float16)
    return kept
