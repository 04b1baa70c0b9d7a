"""Label maps: how predictions in one label space are judged in another.

A model predicts among N source classes; a test set has K target classes. Each target class has its
own accepted set of source classes. What counts as the prediction has two readings, and they give
different accuracies, so a map always states which one it is:

``restricted``  argmax over K: source classes that no target accepts are taken out first, and the
                best of the rest is the prediction. This is how ImageNet-A and ImageNet-R are
                scored by their authors.
``full``        argmax over N, judged on K: the model's own prediction counts, and one that no
                target accepts is wrong.

Restricted accuracy is never lower than full accuracy.

Maps in files are the JSON that heldout writes, or groups of source classes as superclasses are
written: JSON ``{"target": source}`` or ``{"target": [source, ...]}``, or a table with the columns
``target`` and ``source``, one accepted class per row. A source is an id, an index, a name that only
one class has, or a node of WordNet for all classes under it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from heldout.core import schema
from heldout.core.errors import BadFile, LabelError, MismatchError, UserError
from heldout.core.files import existing_file, read_json
from heldout.core.tables import SUFFIXES
from heldout.core.workspace import check_slug, slug
from heldout.data.labels.label_space import LabelSpace, LabelSpaceFile, listed
from heldout.data.labels.superclasses import read_groups
from heldout.data.labels.wordnet import Hierarchy

Indices = NDArray[np.int64]
Kind = Literal["identity", "subset", "many-to-one", "hierarchy"]
Reading = Literal["restricted", "full"]
READINGS: tuple[Reading, ...] = get_args(Reading)
FITTED = ("subset:restricted", "subset:full", "hierarchy:restricted", "hierarchy:full")
"""Maps to the label space of whatever test set is evaluated."""
_FILES = (".json", *SUFFIXES)


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
        right = _checked_truth(truth, self.classes, len(self.known))
        return np.asarray(self.targets == right[:, None])

    def unknown(self, k: int = 1) -> NDArray[np.bool_]:
        """(n,): whether some of the best ``k`` targets are not on file.

        A miss among these is not certain: counting them as misses and as hits bounds the
        accuracy from below and above.
        """
        return np.asarray(self.known < min(k, self.classes))


def _checked_indices(values: NDArray[Any], size: int, what: str, *, minimum: int) -> Indices:
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


def _checked_truth(truth: NDArray[Any], classes: int, rows: int) -> Indices:
    right = _checked_indices(truth, classes, "truth", minimum=0)
    if right.shape != (rows,):
        raise MismatchError(f"{len(right)} truths for {rows} predictions", fix="join by image id")
    return right


class AcceptedCsr(NamedTuple):
    """Accepted sets as two arrays: those of target t are ``indices[indptr[t]:indptr[t + 1]]``.

    ``indptr``   (K + 1,)
    ``indices``  source indices, sorted within each target
    """

    indptr: Indices
    indices: Indices


@dataclass(frozen=True)
class LabelMap:
    """How predictions in ``source`` are judged in ``target``.

    ``accepted``  for each target class, in order, the sorted indices of the source classes that
                  count as that target; never empty, and each class's set is its own
    ``reading``   ``restricted`` or ``full``, see the head of the module

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
        check_slug(self.name, "a label map")
        if self.reading not in READINGS:
            raise LabelError(
                f"{self.reading!r} is not a reading", fix=f"use one of {', '.join(READINGS)}"
            )
        for item, sources in zip(self.target, self.accepted, strict=True):
            if not sources:
                raise self._error(
                    f"no class of {self.source.name} is accepted for {item.id} ({item.name})",
                    fix="give it a class, or leave it out of the target label space",
                )
        if not self.overlaps:
            return
        if not self.allow_overlap:
            shared = self.overlaps[0]
            both = [self.target.classes[t] for t, s in enumerate(self.accepted) if shared in s]
            raise self._error(
                f"{listed([self.source.classes[shared]])} is accepted for {listed(both)}",
                fix="give it to one of them, or allow overlap under the reading 'full'",
            )
        if self.reading == "restricted":
            raise self._error(
                "targets that share a class have no argmax over K", fix="use the reading 'full'"
            )

    def _error(self, problem: str, *, fix: str) -> LabelError:
        return LabelError(f"label map {self.name}: {problem}", fix=fix)

    def __repr__(self) -> str:
        return (
            f"LabelMap({self.describe()!r}, {self.source.name} {len(self.source)} -> "
            f"{self.target.name} {len(self.target)})"
        )

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
        flat = np.array([i for sources in self.accepted for i in sources], dtype=np.int64)
        return AcceptedCsr(np.concatenate([[0], np.cumsum(sizes)]), flat)

    @property
    def _targets(self) -> Indices:
        """The target of each of :attr:`csr`'s ``indices``."""
        return np.repeat(np.arange(len(self.target)), np.diff(self.csr.indptr))

    def accepted_ids(self, target_id: str) -> tuple[str, ...]:
        """Ids of the source classes that count as a target class."""
        return tuple(self.source.ids[i] for i in self.accepted[self.target.index(target_id)])

    @cached_property
    def target_of_source(self) -> Indices:
        """(N,): the target index of each source class, -1 where none accepts it.

        Indexed by the truths of the source's test set it picks the clean baseline of a subset: the
        images whose target is not -1, judged with this same map.
        """
        if self.overlaps:
            raise self._error(
                f"{self.source.ids[self.overlaps[0]]} belongs to several targets",
                fix="judge with judge_topk, which needs only the accepted sets",
            )
        table = np.full(len(self.source), -1, dtype=np.int64)
        table[self.csr.indices] = self._targets
        table.flags.writeable = False
        return table

    def map_topk(self, topk: NDArray[Any]) -> Indices:
        """(n, k) source indices, best first, to (n, k) target indices; -1 = in no target.

        Ranks stay where they are: this is argmax over N judged on K. A source index of -1 means
        no prediction and stays -1.
        """
        checked = _checked_indices(topk, len(self.source), "class", minimum=-1)
        return np.where(checked < 0, np.int64(-1), self.target_of_source[checked])

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
        sources = _checked_indices(topk, len(self.source), "class", minimum=-1)
        right = _checked_truth(truth, len(self.target), len(sources))
        accepted = np.zeros((len(self.target), len(self.source)), dtype=np.bool_)
        accepted[self._targets, self.csr.indices] = True
        return (sources >= 0) & accepted[right[:, None], sources]

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
        return np.maximum.reduceat(logits[:, self.csr.indices], self.csr.indptr[:-1], axis=1)


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
        target = source.subset(name or "", target)
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
    if target is None:
        target = LabelSpace.from_ids(name or "", groups)
    accepted = _accepted(groups, source, target)
    # One class each and no class twice: the classes are only renamed, which is a subset.
    flat = [sources[0] for sources in accepted if len(sources) == 1]
    renamed = len(set(flat)) == len(accepted)
    return LabelMap(
        name or target.name,
        "subset" if renamed else "many-to-one",
        source,
        target,
        accepted,
        reading,
        allow_overlap=allow_overlap,
    )


def _accepted(
    groups: Mapping[str, Iterable[str]], source: LabelSpace, target: LabelSpace
) -> tuple[tuple[int, ...], ...]:
    """Accepted sets by id as indices, in the order of the target."""
    for key in groups:
        target.index(key)
    return tuple(tuple(sorted({source.index(i) for i in groups.get(k, ())})) for k in target.ids)


def hierarchy_map(
    source: LabelSpace,
    target: LabelSpace | Iterable[str],
    *,
    reading: Reading,
    name: str | None = None,
    allow_overlap: bool = False,
) -> LabelMap:
    """Target classes that are nodes of WordNet: each accepts the source classes at or under it.

    ``target`` is a label space whose classes have WordNet ids (or ids that are nodes), or node ids.
    Nested nodes such as dog and animal share classes, which is refused unless ``allow_overlap``.
    """
    tree = Hierarchy.wordnet()
    if not isinstance(target, LabelSpace):
        target = LabelSpace.load("wordnet-nodes").subset(name or "", target)
    accepted = tuple(
        tuple(source.index(class_id) for class_id in tree.leaves(item.node, source))
        for item in target
    )
    return LabelMap(
        name or target.name,
        "hierarchy",
        source,
        target,
        accepted,
        reading,
        allow_overlap=allow_overlap,
    )


PUBLISHED_SUBSETS: Mapping[str, Reading] = {
    "imagenet-a": "restricted",
    "imagenet-r": "restricted",
}
"""Published test sets over 200 of ImageNet-1k's classes, and the reading their authors score by.

The names are those of their built-in label spaces. ImageNet-A is Hendrycks, Zhao, Basart,
Steinhardt, Song: Natural Adversarial Examples, CVPR 2021; ImageNet-R is Hendrycks et al.: The Many
Faces of Robustness, ICCV 2021. The clean baseline of both is the images of the same classes in
``imagenet-validation-original``, judged with the same map: accuracy over all 1,000 classes would
not do, being an argmax over more classes.
"""


def published_map(name: str, *, reading: Reading | None = None) -> LabelMap:
    """The map from ImageNet-1k to a published subset, under its authors' reading or another."""
    if name not in PUBLISHED_SUBSETS:
        raise LabelError(
            f"no built-in label map {name!r}", fix=f"use one of {', '.join(PUBLISHED_SUBSETS)}"
        )
    chosen = reading or PUBLISHED_SUBSETS[name]
    return subset_map(LabelSpace.load("imagenet-1k"), LabelSpace.load(name), reading=chosen)


class LabelMapFile(schema.Document, frozen=True, kw_only=True):
    """The JSON file of a label map: both label spaces by value, accepted sets by id."""

    schema_version: int = 1
    kind: Literal["label_map"] = "label_map"
    name: str
    map_kind: Kind
    reading: Reading
    allow_overlap: bool = False
    source: LabelSpaceFile
    target: LabelSpaceFile
    accepted: dict[str, list[str]]

    @classmethod
    def of(cls, label_map: LabelMap) -> LabelMapFile:
        """What :func:`write_label_map` writes."""
        return cls(
            name=label_map.name,
            map_kind=label_map.kind,
            reading=label_map.reading,
            allow_overlap=label_map.allow_overlap,
            source=label_map.source.file(),
            target=label_map.target.file(),
            accepted={i: list(label_map.accepted_ids(i)) for i in label_map.target.ids},
        )

    def label_map(self) -> LabelMap:
        """The map of the file."""
        source, target = self.source.label_space(), self.target.label_space()
        return LabelMap(
            self.name,
            self.map_kind,
            source,
            target,
            _accepted(self.accepted, source, target),
            self.reading,
            allow_overlap=self.allow_overlap,
        )


def write_label_map(label_map: LabelMap, path: str | Path) -> None:
    """Write a map as JSON that :func:`read_label_map` reads back as an equal map."""
    schema.write(Path(path), LabelMapFile.of(label_map))


def read_label_map(
    path: str | Path,
    *,
    source: LabelSpace | None = None,
    reading: Reading | None = None,
) -> LabelMap:
    """Read a label map from a JSON file or a table.

    ``source`` and ``reading`` are needed unless the file states them. The target classes are those
    of the file, in its order. The map is named after the file.
    """
    path = existing_file(Path(path), "label map")
    suffix = path.suffix.lower()
    if suffix not in _FILES:
        raise BadFile(path, f"is not one of {', '.join(_FILES)}", fix="rename or convert it")
    value = read_json(path) if suffix == ".json" else None
    try:
        if isinstance(value, dict) and value.get("kind") == "label_map":
            file = schema.convert(value, LabelMapFile, where=path, fix="write it again")
            made = file.label_map()
            _check_source(made, source)
            return replace(made, reading=reading or made.reading)
        if reading is None:
            raise LabelError(
                "does not say how the argmax is read",
                fix=f"give reading={' or '.join(READINGS)}, on the command line FILE:READING",
            )
        classes = _needed_source(source)
        groups = read_groups(path, classes, group="target", member="source")
        return many_to_one_map(classes, groups, reading=reading, name=slug(path.stem))
    except BadFile:
        raise
    except UserError as error:
        raise BadFile(path, error.message, fix=error.fix) from None


def load_label_map(
    text: str | Path,
    *,
    source: LabelSpace | None = None,
    target: LabelSpace | None = None,
) -> LabelMap:
    """A map by what :meth:`LabelMap.describe` wrote, by built-in name, or by file.

    ``imagenet-a`` takes its authors' reading; ``imagenet-a:full`` gives another, and so does
    ``FILE.csv:full`` for a file. With ``target``, the label space of a test set, ``subset:full`` and
    ``subset:restricted`` are its classes among the source's, and ``hierarchy:full`` and
    ``hierarchy:restricted`` take for each of them all source classes at or under it in WordNet; a
    file whose targets are its classes is put in its order.
    """
    wanted = os.fspath(text)
    if wanted == "identity":
        return identity_map(_needed_source(source))
    name = wanted
    reading: Reading | None = None
    for said in READINGS:
        if wanted.endswith(f":{said}"):
            name, reading = wanted.removesuffix(f":{said}"), said
    if target is not None and wanted in FITTED and reading is not None:
        make = subset_map if name == "subset" else hierarchy_map
        return make(_needed_source(source), target, reading=reading)
    if name != wanted:
        name = name.removeprefix("subset:")
    if name in PUBLISHED_SUBSETS:
        made = published_map(name, reading=reading)
        _check_source(made, source)
        return made
    if Path(name).suffix.lower() not in _FILES:
        raise LabelError(
            f"no label map {wanted!r}",
            fix=f"use identity, a .csv or .json file, or one of {', '.join(PUBLISHED_SUBSETS)}"
            + ("" if target is None else f", {', '.join(FITTED)}"),
        )
    made = read_label_map(name, source=source, reading=reading)
    if target is None or set(made.target.ids) != set(target.ids):
        return made
    accepted = tuple(made.accepted[made.target.index(class_id)] for class_id in target.ids)
    return replace(made, target=target, accepted=accepted)


def _check_source(made: LabelMap, source: LabelSpace | None) -> None:
    if source is not None and source.fingerprint != made.source.fingerprint:
        raise LabelError(
            f"label map {made.name} is from {made.source.name}, the predictions are in "
            f"{source.name}",
            fix="give a map from that label space",
        )


def _needed_source(source: LabelSpace | None) -> LabelSpace:
    if source is None:
        raise LabelError("the source label space is not known", fix="give source=")
    return source
