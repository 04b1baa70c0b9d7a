"""Label maps: how predictions in one label space are judged in another.

A model predicts among N source classes; a test set has K target classes. Each target class has its
own accepted set of source classes. What counts as the prediction has two readings, and they give
different accuracies, so a map always states which one it is:

``restricted``  argmax over K: source classes that no target accepts are taken out first, and the
                best of the rest is the prediction. This is how ImageNet-A and ImageNet-R are
                scored by their authors.
``full``        argmax over N, judged on K: the model's own prediction stands, and one that no
                target accepts is wrong.

Restricted accuracy is never lower than full accuracy.
"""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from heldout.core.errors import BadFile, LabelError, MismatchError
from heldout.core.files import existing_file, read_json, write_json
from heldout.core.workspace import slug
from heldout.data.labels.label_space import LabelSpace, checked_name, listed
from heldout.data.labels.wordnet import Hierarchy

Indices = NDArray[np.int64]


@dataclass(frozen=True)
class MappedTopk:
    """A model's best target classes, as far as its stored top-k can tell.

    ``targets``  (n, k) target indices, best first. Under ``full``, -1 stands at a rank whose source
                 class no target accepts. Under ``restricted``, -1 fills the ranks after the
                 known ones.
    ``known``    (n,) how many leading ranks are certain. A stored top-5 may hold no accepted
                 class at all: then 0 are known and the true prediction is not on file.
    ``classes``  K
    """

    targets: Indices
    known: Indices
    classes: int

    def hits(self, truth: NDArray[Any]) -> NDArray[np.bool_]:
        """(n, k): whether the target at each rank is the truth, ``truth`` being (n,) in 0..K-1."""
        truth = checked_indices(truth, self.classes, "truth", minimum=0)
        if truth.shape != self.known.shape:
            raise MismatchError(
                f"{len(truth)} truths for {len(self.known)} predictions", fix="join by image id"
            )
        return np.asarray(self.targets == truth[:, None])

    def unknown(self, k: int = 1) -> NDArray[np.bool_]:
        """(n,): whether some of the best ``k`` targets are not on file.

        A miss among these is no certain miss: counting them as misses and as hits bounds the
        accuracy from below and above.
        """
        return np.asarray(self.known < min(k, self.classes))


def checked_topk(topk: NDArray[Any]) -> NDArray[Any]:
    """``topk`` if it has the shape (n, k) with at least one rank."""
    if topk.ndim != 2 or topk.shape[1] == 0:
        raise MismatchError(f"top-k of shape {topk.shape}", fix="give an array of images x ranks")
    return topk


def checked_indices(values: NDArray[Any], size: int, what: str, *, minimum: int) -> Indices:
    """``values`` as int64, all in ``minimum`` to ``size - 1``."""
    values = np.asarray(values)
    if values.dtype.kind not in "iu":
        raise LabelError(f"a {what} is {values.dtype}, not an index", fix="give integers")
    if values.size and (int(values.min()) < minimum or int(values.max()) >= size):
        bad = int(values.min()) if int(values.min()) < minimum else int(values.max())
        raise LabelError(
            f"{what} index {bad} is outside {minimum} to {size - 1}",
            fix="check the label space: off by one, or another space",
        )
    return values.astype(np.int64)


Kind = Literal["identity", "subset", "many-to-one", "hierarchy"]
Reading = Literal["restricted", "full"]
KINDS: tuple[Kind, ...] = ("identity", "subset", "many-to-one", "hierarchy")
READINGS: tuple[Reading, ...] = ("restricted", "full")
_BLOCK = 4096  # rows of logits that are gathered at once


@dataclass(frozen=True)
class AcceptedCsr:
    """Accepted sets as two arrays: those of target t are ``indices[indptr[t]:indptr[t + 1]]``.

    ``indptr``   (K + 1,)
    ``indices``  source indices, sorted within each target
    """

    indptr: Indices
    indices: Indices


@dataclass(frozen=True, eq=False)
class LabelMap:
    """How predictions in ``source`` are judged in ``target``; see :mod:`heldout.data.labels.label_map`.

    ``accepted``  for each target class, in order, the sorted indices of the source classes that
                  count as that target; never empty, and each class's set is its own
    ``reading``   ``restricted`` or ``full``, see the module's head

    Two targets may share a source class only where the maker allowed it (``overlaps``), and only
    under ``full``: with a shared class there is no one best target.
    """

    name: str
    kind: Kind
    source: LabelSpace
    target: LabelSpace
    accepted: tuple[tuple[int, ...], ...]
    reading: Reading
    allow_overlap: bool = False

    def __post_init__(self) -> None:
        checked_name(self.name, "a label map")
        _checked_choice(self.kind, KINDS, "kind")
        _checked_choice(self.reading, READINGS, "reading")
        if len(self.accepted) != len(self.target):
            raise LabelError(
                f"label map {self.name} has {len(self.accepted)} accepted sets "
                f"for {len(self.target)} classes of {self.target.name}",
                fix="give one for each",
            )
        for item, sources in zip(self.target, self.accepted, strict=True):
            if not sources:
                raise LabelError(
                    f"label map {self.name}: no class of {self.source.name} is accepted for "
                    f"{item.id} ({item.name})",
                    fix="give it a class, or leave it out of the target label space",
                )
            if list(sources) != sorted(set(sources)):
                raise LabelError(
                    f"label map {self.name}: the accepted set of {item.id} is not sorted",
                    fix="sort it",
                )
            if sources[0] < 0 or sources[-1] >= len(self.source):
                raise LabelError(
                    f"label map {self.name}: {item.id} accepts an index outside 0 to "
                    f"{len(self.source) - 1}",
                    fix=f"use indices of {self.source.name}",
                )
        if self.overlaps and not self.allow_overlap:
            shared = self.overlaps[0]
            both = [self.target.classes[t] for t, s in enumerate(self.accepted) if shared in s]
            raise LabelError(
                f"label map {self.name}: {self.source.classes[shared].id} "
                f"({self.source.classes[shared].name}) is accepted for {listed(both)}",
                fix="give it to one of them, or allow overlap under the reading 'full'",
            )
        if self.overlaps and self.reading == "restricted":
            raise LabelError(
                f"label map {self.name}: targets that share a class have no argmax over K",
                fix="use the reading 'full'",
            )

    def __repr__(self) -> str:
        return (
            f"LabelMap({self.describe()!r}, {self.source.name} {len(self.source)} -> "
            f"{self.target.name} {len(self.target)})"
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, LabelMap):
            return NotImplemented
        return (
            self._key == other._key and self.source == other.source and self.target == other.target
        )

    def __hash__(self) -> int:
        return hash(self._key)

    @property
    def _key(self) -> tuple[object, ...]:
        return (self.name, self.kind, self.accepted, self.reading, self.allow_overlap)

    def describe(self) -> str:
        """What the ``label_map`` field of records holds.

        ``identity``, or kind, name and reading such as ``subset:imagenet-a:restricted``.
        """
        return "identity" if self.kind == "identity" else f"{self.kind}:{self.name}:{self.reading}"

    @cached_property
    def overlaps(self) -> tuple[int, ...]:
        """Source indices that more than one target accepts, sorted."""
        counts = np.bincount(self.csr.indices, minlength=len(self.source))
        return tuple(int(i) for i in np.flatnonzero(counts > 1))

    @cached_property
    def csr(self) -> AcceptedCsr:
        """The accepted sets as arrays."""
        sizes = np.array([len(sources) for sources in self.accepted], dtype=np.int64)
        flat = np.fromiter(
            (i for sources in self.accepted for i in sources),
            dtype=np.int64,
            count=int(sizes.sum()),
        )
        return AcceptedCsr(np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64), flat)

    def accepted_matrix(self) -> NDArray[np.bool_]:
        """(K, N): whether a target accepts a source class."""
        matrix = np.zeros((len(self.target), len(self.source)), dtype=np.bool_)
        rows = np.repeat(np.arange(len(self.target)), np.diff(self.csr.indptr))
        matrix[rows, self.csr.indices] = True
        return matrix

    def accepted_ids(self, target_id: str) -> tuple[str, ...]:
        """Ids of the source classes that count as a target class."""
        return tuple(self.source.ids[i] for i in self.accepted[self.target.index(target_id)])

    @cached_property
    def target_of_source(self) -> Indices:
        """(N,): the target index of each source class, -1 where none accepts it."""
        if self.overlaps:
            raise LabelError(
                f"label map {self.name}: {self.source.ids[self.overlaps[0]]} belongs to several "
                "targets, so no class has one target",
                fix="judge with judge_topk, which needs only the accepted sets",
            )
        table = np.full(len(self.source), -1, dtype=np.int64)
        table[self.csr.indices] = np.repeat(np.arange(len(self.target)), np.diff(self.csr.indptr))
        table.flags.writeable = False
        return table

    def map_truth(self, truth: NDArray[Any]) -> Indices:
        """Source indices to target indices of the same shape, -1 for a class outside the target.

        The clean baseline of a subset: the images of the source's test set whose mapped truth is
        not -1, judged with this same map.
        """
        checked = checked_indices(truth, len(self.source), "class", minimum=-1)
        return np.where(checked < 0, np.int64(-1), self.target_of_source[checked])

    def map_topk(self, topk: NDArray[Any]) -> Indices:
        """(n, k) source indices, best first, to (n, k) target indices; -1 = in no target.

        Ranks stay where they are: this is argmax over N judged on K. A source index of -1 means
        no prediction and stays -1.
        """
        return self.map_truth(checked_topk(topk))

    def restrict_topk(self, topk: NDArray[Any]) -> MappedTopk:
        """(n, k) source indices, best first, to the best targets among the K.

        What no target accepts is taken out, and of several source classes of one target the first
        stands for it. The first rank is the argmax over K that full logits would give, provided
        that it is known.
        """
        mapped = self.map_topk(topk)
        # A stable sort puts equal targets side by side in rank order: the first of a run stays.
        by_target = np.argsort(mapped, axis=1, kind="stable")
        grouped = np.take_along_axis(mapped, by_target, axis=1)
        first = grouped >= 0
        first[:, 1:] &= grouped[:, 1:] != grouped[:, :-1]
        keep = np.zeros_like(first)
        np.put_along_axis(keep, by_target, first, axis=1)
        order = np.argsort(~keep, axis=1, kind="stable")
        targets = np.take_along_axis(np.where(keep, mapped, -1), order, axis=1)
        return MappedTopk(targets, keep.sum(axis=1).astype(np.int64), len(self.target))

    def read_topk(self, topk: NDArray[Any]) -> MappedTopk:
        """(n, k) source indices to targets under this map's own reading."""
        if self.reading == "restricted":
            return self.restrict_topk(topk)
        mapped = self.map_topk(topk)
        # Under `full` every stored rank is certain, and no list of k ranks can say more.
        known = np.full(len(mapped), max(mapped.shape[1], len(self.target)), dtype=np.int64)
        return MappedTopk(mapped, known, len(self.target))

    def judge_topk(self, topk: NDArray[Any], truth: NDArray[Any]) -> NDArray[np.bool_]:
        """(n, k): whether each rank is right, under this map's reading; ``truth`` is (n,) targets.

        Top-1 accuracy is the mean of column 0, top-k accuracy that of ``any`` over k columns. The
        only judgement that overlapping targets allow. Under ``restricted`` a miss may be a class
        that is not on file: :meth:`MappedTopk.unknown` of :meth:`read_topk` says where.
        """
        if not self.overlaps:
            return self.read_topk(topk).hits(truth)
        sources = checked_indices(checked_topk(topk), len(self.source), "class", minimum=-1)
        right = checked_indices(truth, len(self.target), "truth", minimum=0)
        if right.shape != sources.shape[:1]:
            raise MismatchError(
                f"{len(right)} truths for {len(sources)} predictions", fix="join by image id"
            )
        return (sources >= 0) & self.accepted_matrix()[right[:, None], sources]

    def map_logits(self, logits: NDArray[Any]) -> NDArray[Any]:
        """(n, N) logits to (n, K), whose argmax is the prediction of the restricted reading.

        The best accepted source class stands for the target. The winner is then the target of the
        best-ranked accepted class, so stored top-k and logits agree; no target gains by having
        many classes; and any increasing transform of the logits gives the same answer. The dtype
        is kept; NaN stays NaN.
        """
        if logits.ndim != 2 or logits.shape[1] != len(self.source):
            raise MismatchError(
                f"logits of shape {logits.shape} for the {len(self.source)} classes of "
                f"{self.source.name}",
                fix="use the label space of the model",
            )
        starts, columns = self.csr.indptr[:-1], self.csr.indices
        if len(columns) == len(self.target):  # one class each: nothing to combine
            return logits[:, columns]
        out = np.empty((len(logits), len(self.target)), dtype=logits.dtype)
        for start in range(0, len(logits), _BLOCK):
            block = logits[start : start + _BLOCK]
            part = out[start : start + _BLOCK]
            np.maximum.reduceat(block[:, columns], starts, axis=1, out=part)
        return out


def _checked_choice(value: str, allowed: Sequence[str], what: str) -> None:
    if value not in allowed:
        raise LabelError(f"{value!r} is no {what}", fix=f"use one of {', '.join(allowed)}")


def identity_map(space: LabelSpace) -> LabelMap:
    """Predictions and truth in the same label space; both readings are the same."""
    accepted = tuple((position,) for position in range(len(space)))
    return LabelMap("identity", "identity", space, space, accepted, "full")


def subset_map(
    source: LabelSpace,
    target: LabelSpace | Iterable[str],
    *,
    reading: Reading,
    name: str | None = None,
) -> LabelMap:
    """A test set that has only some of the model's classes, under the same ids.

    ``target`` is a label space or the ids in the order wanted; ids need a ``name``.
    """
    if not isinstance(target, LabelSpace):
        target = source.subset(_needed(name, "ids"), target)
    accepted = tuple((source.index(class_id),) for class_id in target.ids)
    return LabelMap(name or target.name, "subset", source, target, accepted, reading)


def many_to_one_map(
    source: LabelSpace,
    groups: Mapping[str, Iterable[str]],
    *,
    reading: Reading,
    name: str | None = None,
    target: LabelSpace | None = None,
    allow_overlap: bool = False,
) -> LabelMap:
    """Target classes that each accept several source classes; ``groups``: target id to source ids.

    Without ``target`` the targets are the keys in their order. A source class in two groups is
    refused unless ``allow_overlap``.
    """
    for key, group in groups.items():
        if isinstance(group, str):
            raise LabelError(f"the group of {key!r} is one text", fix="give a list of class ids")
    if target is None:
        target = LabelSpace.from_ids(_needed(name, "groups"), groups)
    for key in groups:
        target.index(key)
    accepted = tuple(
        tuple(sorted({source.index(class_id) for class_id in groups.get(key, ())}))
        for key in target.ids
    )
    single = all(len(sources) == 1 for sources in accepted)
    flat = [sources[0] for sources in accepted if sources]
    kind: Kind = "subset" if single and len(set(flat)) == len(flat) else "many-to-one"
    return LabelMap(
        name or target.name, kind, source, target, accepted, reading, allow_overlap=allow_overlap
    )


def hierarchy_map(
    source: LabelSpace,
    target: LabelSpace | Iterable[str],
    *,
    reading: Reading,
    name: str | None = None,
    hierarchy: Hierarchy | None = None,
    allow_overlap: bool = False,
) -> LabelMap:
    """Target classes that are nodes of a hierarchy: each accepts the source classes at or under it.

    ``target`` is a label space whose classes have WordNet ids (or ids that are nodes), or node ids.
    The hierarchy is WordNet's unless another is given. Nested nodes such as dog and animal share
    classes, which is refused unless ``allow_overlap``.
    """
    tree = Hierarchy.wordnet() if hierarchy is None else hierarchy
    if not isinstance(target, LabelSpace):
        nodes = tuple(target)
        for node in nodes:
            tree.parents(node)
        if hierarchy is None:
            target = LabelSpace.load("wordnet-nodes").subset(_needed(name, "nodes"), nodes)
        else:
            target = LabelSpace.from_ids(_needed(name, "nodes"), nodes)
    positions: dict[str, list[int]] = {}
    for position, item in enumerate(source):
        positions.setdefault(item.node, []).append(position)
    if not any(node in tree for node in positions):
        raise LabelError(
            f"no class of {source.name} is a node of {tree.name}",
            fix="give its classes their wnid, or a hierarchy that holds them",
        )
    accepted = []
    for item in target:
        below = tree.distances_down(item.node)
        under = [positions[node] for node in below if node in positions]
        accepted.append(tuple(int(i) for i in np.sort(np.concatenate([[], *under]).astype(int))))
    return LabelMap(
        name or target.name,
        "hierarchy",
        source,
        target,
        tuple(accepted),
        reading,
        allow_overlap=allow_overlap,
    )


def _needed(name: str | None, what: str) -> str:
    if name is None:
        raise LabelError(f"a label map made from {what} needs a name", fix="give name=")
    return name


@dataclass(frozen=True, kw_only=True)
class PublishedSubset:
    """A test set over some of ImageNet-1k's classes.

    ``name``      also the name of its built-in label space
    ``reading``   how its authors score it
    ``baseline``  the test set whose images of the same classes are its clean baseline. Judged with
                  the same map, they give the accuracy that a drop is measured from; accuracy over
                  all 1,000 classes would not do, being an argmax over more classes.
    ``citation``  where it comes from
    """

    name: str
    reading: Reading
    baseline: str
    citation: str

    @property
    def class_ids(self) -> tuple[str, ...]:
        """The ids of its classes, sorted."""
        return LabelSpace.load(self.name).ids


PUBLISHED_SUBSETS: Mapping[str, PublishedSubset] = {
    item.name: item
    for item in (
        PublishedSubset(
            name="imagenet-a",
            reading="restricted",
            baseline="imagenet-validation-original",
            citation="Hendrycks, Zhao, Basart, Steinhardt, Song: Natural Adversarial Examples, "
            "CVPR 2021",
        ),
        PublishedSubset(
            name="imagenet-r",
            reading="restricted",
            baseline="imagenet-validation-original",
            citation="Hendrycks et al.: The Many Faces of Robustness, ICCV 2021",
        ),
    )
}


def published_map(name: str, *, reading: Reading | None = None) -> LabelMap:
    """The map from ImageNet-1k to a published subset, under its authors' reading or another."""
    if name not in PUBLISHED_SUBSETS:
        raise LabelError(
            f"no built-in label map {name!r}", fix=f"use one of {', '.join(PUBLISHED_SUBSETS)}"
        )
    chosen = reading or PUBLISHED_SUBSETS[name].reading
    return subset_map(LabelSpace.load("imagenet-1k"), LabelSpace.load(name), reading=chosen)


SCHEMA_VERSION = 1
FITTED = ("subset:restricted", "subset:full", "hierarchy:restricted", "hierarchy:full")
"""Maps to the label space of whatever test set is evaluated."""
_SOURCE_COLUMNS = ("source", "source_index", "source_name")


def read_label_map(
    path: str | Path,
    *,
    source: LabelSpace | None = None,
    target: LabelSpace | None = None,
    reading: Reading | None = None,
) -> LabelMap:
    """Read a label map from a ``.csv`` or ``.json`` file.

    ``source`` and ``reading`` are needed unless the file says them. Without ``target`` the target
    classes are those of the file, in its order. The map is named after the file.
    """
    path = existing_file(Path(path), "label map")
    try:
        if path.suffix.lower() == ".json":
            value = read_json(path)
            if isinstance(value, dict) and value.get("kind") == "label_map":
                return _from_dict(value, source, reading)
            refuse_repeated_keys(path)
            pairs = _json_pairs(value, _needed_source(source))
        elif path.suffix.lower() == ".csv":
            pairs = _csv_pairs(path, _needed_source(source))
        else:
            raise LabelError("is neither .csv nor .json", fix="rename or convert it")
        if reading is None:
            raise LabelError(
                "does not say how the argmax is read",
                fix=f"give reading={' or '.join(READINGS)}, on the command line FILE:READING",
            )
        groups: dict[str, list[str]] = {}
        for target_id, source_id in pairs:
            groups.setdefault(target_id, []).append(source_id)
        return many_to_one_map(
            _needed_source(source),
            groups,
            reading=reading,
            name=slug(path.stem),
            target=target,
        )
    except LabelError as error:
        raise LabelError(f"{path}: {error.message}", fix=error.fix) from None
    except csv.Error as error:  # such as a quote that is never closed
        raise LabelError(f"{path}: is not a CSV table ({error})", fix="mend it") from None


def write_label_map(label_map: LabelMap, path: str | Path) -> None:
    """Write a map as JSON that :func:`read_label_map` reads back as an equal map."""
    write_json(Path(path), label_map_to_dict(label_map))


def label_map_to_dict(label_map: LabelMap) -> dict[str, Any]:
    """A map as a JSON object: both label spaces by value, accepted sets by id."""
    return {
        "schema_version": SCHEMA_VERSION,
        "kind": "label_map",
        "name": label_map.name,
        "map_kind": label_map.kind,
        "reading": label_map.reading,
        "allow_overlap": label_map.allow_overlap,
        "source": label_map.source.to_dict(),
        "target": label_map.target.to_dict(),
        "accepted": {
            class_id: list(label_map.accepted_ids(class_id)) for class_id in label_map.target.ids
        },
    }


def load_label_map(
    text: str | Path,
    *,
    source: LabelSpace | None = None,
    target: LabelSpace | None = None,
    reading: Reading | None = None,
) -> LabelMap:
    """A map by what :meth:`LabelMap.describe` wrote, by built-in name, or by file.

    ``imagenet-a`` takes its authors' reading; ``imagenet-a:full`` says another, and so does
    ``FILE.csv:full`` of a file. With ``target``, the label space of a test set, ``subset:full`` and
    ``subset:restricted`` are its classes among the source's, and ``hierarchy:full`` and
    ``hierarchy:restricted`` take for each of them all source classes at or under it in WordNet; the
    targets of a file that are its classes stand in its order.
    """
    wanted = os.fspath(text)
    if wanted == "identity":
        return identity_map(_needed_source(source))
    if target is not None and wanted in FITTED:
        make = subset_map if wanted.startswith("subset:") else hierarchy_map
        fitted: Reading = "full" if wanted.endswith(":full") else "restricted"
        return make(_needed_source(source), target, reading=fitted)
    name = wanted
    for said in READINGS:
        if wanted.endswith(f":{said}"):
            name, reading = wanted.removesuffix(f":{said}"), said
    if name != wanted and name.startswith("subset:"):
        name = name.removeprefix("subset:")
    if name in PUBLISHED_SUBSETS:
        made = published_map(name, reading=reading)
    elif Path(name).suffix.lower() in (".csv", ".json"):
        made = read_label_map(name, source=source, reading=reading)
        return made if target is None else _in_order_of(made, target)
    else:
        raise LabelError(
            f"no label map {wanted!r}",
            fix=f"use identity, a .csv or .json file, or one of {', '.join(PUBLISHED_SUBSETS)}"
            + ("" if target is None else f", {', '.join(FITTED)}"),
        )
    if source is not None and source.fingerprint != made.source.fingerprint:
        raise LabelError(
            f"label map {wanted} is from {made.source.name}, the predictions are in {source.name}",
            fix="give a map from that label space",
        )
    return made


def _in_order_of(made: LabelMap, target: LabelSpace) -> LabelMap:
    """A map whose targets are the classes of ``target``, in its order; any other as it is."""
    if set(made.target.ids) != set(target.ids):
        return made
    accepted = tuple(made.accepted[made.target.index(class_id)] for class_id in target.ids)
    return replace(made, target=target, accepted=accepted)


def _needed_source(source: LabelSpace | None) -> LabelSpace:
    if source is None:
        raise LabelError("the source label space is not known", fix="give source=")
    return source


def _from_dict(
    value: dict[str, Any], source: LabelSpace | None, reading: Reading | None
) -> LabelMap:
    version = value.get("schema_version")
    if not isinstance(version, int) or version > SCHEMA_VERSION:
        raise LabelError(f"has schema_version {version!r}", fix="upgrade heldout")
    for key, kind in (("name", str), ("source", dict), ("target", dict), ("accepted", dict)):
        if not isinstance(value.get(key), kind):
            raise LabelError(f"has no good {key!r}", fix="write the file again")
    if value.get("map_kind") not in KINDS:
        raise LabelError(
            f"{value.get('map_kind')!r} is no kind", fix=f"use one of {', '.join(KINDS)}"
        )
    own, target = LabelSpace.from_dict(value["source"]), LabelSpace.from_dict(value["target"])
    if source is not None and source.fingerprint != own.fingerprint:
        raise LabelError(
            f"is from label space {own.name}, the predictions are in {source.name}",
            fix="give a map from that label space",
        )
    accepted: dict[str, Any] = value["accepted"]
    for key, ids in accepted.items():
        target.index(key)
        if not isinstance(ids, list):
            raise LabelError(f"accepted classes of {key!r} are no list", fix="write the file again")
    return LabelMap(
        value["name"],
        value["map_kind"],
        own,
        target,
        tuple(tuple(sorted({own.index(i) for i in accepted.get(key, [])})) for key in target.ids),
        reading or value.get("reading", ""),
        allow_overlap=value.get("allow_overlap") is True,
    )


def refuse_repeated_keys(path: Path) -> None:
    """JSON readers keep the last of equal keys, which would drop accepted classes silently."""

    def checked(pairs: list[tuple[str, Any]]) -> None:
        keys = [key for key, _ in pairs]
        if len(set(keys)) < len(keys):
            twice = next(key for key in keys if keys.count(key) > 1)
            raise LabelError(f"{twice!r} is there twice", fix="give it one list of classes")

    json.loads(path.read_bytes(), object_pairs_hook=checked)


def _json_pairs(value: Any, source: LabelSpace) -> Iterable[tuple[str, str]]:
    if not isinstance(value, dict) or not value or "schema_version" in value:
        raise LabelError("is no label map", fix='write {"target": ["source", ...], ...}')
    for target_id, entries in value.items():
        for entry in entries if isinstance(entries, list) else [entries]:
            if isinstance(entry, bool) or not isinstance(entry, int | str):
                raise LabelError(
                    f"{target_id!r} accepts {entry!r}", fix="write class ids or indices"
                )
            if isinstance(entry, int):
                yield target_id, _id_at(source, entry)
            else:
                yield target_id, source.get(entry).id
        if entries == []:
            raise LabelError(f"{target_id!r} accepts nothing", fix="give it a class, or remove it")


def _csv_pairs(path: Path, source: LabelSpace) -> Iterable[tuple[str, str]]:
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError:
        raise BadFile(path, "is not UTF-8 text", fix="save it as UTF-8") from None
    reader = csv.DictReader(io.StringIO(text, newline=""))
    columns = reader.fieldnames or []
    named = [column for column in _SOURCE_COLUMNS if column in columns]
    if "target" not in columns or len(named) != 1:
        raise LabelError(
            f"has the columns {', '.join(columns) or 'none'}",
            fix=f"give it target and one of {', '.join(_SOURCE_COLUMNS)}",
        )
    resolve: dict[str, Callable[[str], str]] = {
        "source": lambda cell: source.get(cell).id,
        "source_index": lambda cell: _id_at(source, _integer(cell)),
        "source_name": lambda cell: source.by_name(cell).id,
    }
    rows = 0
    for row in reader:
        target_id, cell = row.get("target"), row.get(named[0])
        if not target_id or not cell:
            raise LabelError(f"line {reader.line_num} is incomplete", fix="fill in both columns")
        try:
            yield target_id, resolve[named[0]](cell)
        except LabelError as error:
            raise LabelError(f"line {reader.line_num}: {error.message}", fix=error.fix) from None
        rows += 1
    if not rows:
        raise LabelError("has no rows", fix="write one accepted class a row")


def _integer(cell: str) -> int:
    try:
        return int(cell)
    except ValueError:
        raise LabelError(f"{cell!r} is no index", fix="write an integer") from None


def _id_at(source: LabelSpace, index: int) -> str:
    if not 0 <= index < len(source):
        raise LabelError(
            f"index {index} is outside 0 to {len(source) - 1}", fix=f"use indices of {source.name}"
        )
    return source.ids[index]
