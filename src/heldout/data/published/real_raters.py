"""The raters' answers behind the ReaL labels, and the experts' and raters' answers on the gold set.

L. Beyer et al., "Are we done with ImageNet?", 2020. One ``.npz`` file holds ``tensor``, shape
(raters, pairs, 3): one-hot no, maybe, yes, all zero where a rater did not see a pair; ``info``,
(pairs, 2): image and class number as text; ``ids``, (raters,). The tensor of ``raters.npz`` is 0.4
GB of mostly zeros, so it is read one rater at a time.
"""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from heldout.core.errors import BadFile
from heldout.core.files import existing_file
from heldout.data.judgements.judgement import Judgement
from heldout.data.judgements.panel import Panel, from_codes, subject_key
from heldout.data.judgements.questions import QUESTIONS
from heldout.data.published.class_numbers import class_ids, class_of

IntArray = npt.NDArray[np.int64]
_ANSWERS = ("wrong", "unclear", "correct")  # no, maybe, yes: the tensor's last axis
_FIX = "fetch the file again"


@dataclass(frozen=True, eq=False)
class _Answers:
    """Who gave which answer about which pair, in codes; ``pairs`` are (image, class id)."""

    pairs: list[tuple[str, str]]
    raters: list[str]
    rater: IntArray
    pair: IntArray
    answer: IntArray


def read_real_answers(
    path: Path,
    *,
    classes: Sequence[str] | None = None,
    images: Collection[str] | None = None,
    prefix: str = "real",
) -> Iterator[Judgement]:
    """Each answer as a ``label`` judgement about (image, class): yes is correct, maybe unclear.

    ``images`` restricts to these images. Raters are named ``<prefix>-<id>``.
    """
    found = _read(path, classes, images, prefix)
    for rater, pair, answer in zip(
        found.rater.tolist(), found.pair.tolist(), found.answer.tolist(), strict=True
    ):
        image_id, class_id = found.pairs[pair]
        yield Judgement(
            question="label",
            subject={"class_id": class_id, "image_id": image_id},
            answer=_ANSWERS[answer],
            who=found.raters[rater],
            source=path.name,
        )


def read_real_panel(
    path: Path,
    *,
    classes: Sequence[str] | None = None,
    images: Collection[str] | None = None,
    prefix: str = "real",
) -> Panel:
    """The same answers as a panel at once, for consensus over all of them in seconds."""
    found = _read(path, classes, images, prefix)
    keys = [subject_key({"image_id": image, "class_id": name}) for image, name in found.pairs]
    order = QUESTIONS["label"].answers
    recode = np.array([order.index(answer) for answer in _ANSWERS])
    subjects, subject = _compact(keys, found.pair)
    workers, worker = _compact(found.raters, found.rater)
    return from_codes("label", subjects, workers, order, subject, worker, recode[found.answer])


def _compact(names: list[str], codes: IntArray) -> tuple[tuple[str, ...], IntArray]:
    """Sorted names that occur, and the codes renumbered to them."""
    used = sorted(np.unique(codes).tolist(), key=names.__getitem__)
    number = np.zeros(len(names), dtype=np.int64)
    number[used] = np.arange(len(used))
    return tuple(names[code] for code in used), number[codes]


def _read(
    path: Path, classes: Sequence[str] | None, images: Collection[str] | None, prefix: str
) -> _Answers:
    ids = class_ids(classes)
    with _members(existing_file(path, "file of ReaL answers")) as archive:
        info, raters = _array(path, archive, "info"), _array(path, archive, "ids")
        if info.ndim != 2 or info.shape[1] != 2 or info.dtype.kind != "U" or raters.ndim != 1:
            raise BadFile(path, "holds no (image, class) pairs and rater ids", fix=_FIX)
        pairs = [
            (image, class_of(_number(text), ids, path, image)) for image, text in info.tolist()
        ]
        wanted = None
        if images is not None:
            chosen = frozenset(images)
            wanted = np.array([image in chosen for image, _ in pairs], dtype=bool)
        if not len(raters):
            raise BadFile(path, "holds no raters", fix=_FIX)
        columns: list[tuple[IntArray, IntArray, IntArray]] = []
        for rater, cells in enumerate(_slabs(path, archive, (len(raters), len(pairs), 3))):
            if not np.isin(cells, (0, 1)).all() or (cells.sum(axis=1) > 1).any():
                raise BadFile(path, f"rater {raters[rater]} gave two answers at once", fix=_FIX)
            pair, answer = np.nonzero(cells if wanted is None else cells * wanted[:, None])
            columns.append((np.full(len(pair), rater, dtype=np.int64), pair, answer))
    names = [f"{prefix}-{rater}" for rater in raters.tolist()]
    who, what, which = (np.concatenate(column) for column in zip(*columns, strict=True))
    return _Answers(pairs, names, who, what, which)


def _number(text: str) -> int | str:
    return int(text) if text.isascii() and text.isdigit() else text


@contextmanager
def _members(path: Path) -> Iterator[zipfile.ZipFile]:
    try:
        with zipfile.ZipFile(path) as archive:
            yield archive
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, ValueError) as error:
        raise BadFile(path, f"is not a readable .npz file ({error})", fix=_FIX) from None


def _open(path: Path, archive: zipfile.ZipFile, name: str) -> IO[bytes]:
    try:
        return archive.open(f"{name}.npy")
    except KeyError:
        raise BadFile(
            path, f"holds no array {name!r}", fix="choose raters.npz or golden.npz"
        ) from None


def _array(path: Path, archive: zipfile.ZipFile, name: str) -> npt.NDArray[Any]:
    with _open(path, archive, name) as handle:
        array: npt.NDArray[Any] = np.lib.format.read_array(handle, allow_pickle=False)
    return array


def _slabs(
    path: Path, archive: zipfile.ZipFile, shape: tuple[int, int, int]
) -> Iterator[npt.NDArray[Any]]:
    """The tensor one rater at a time: arrays of shape (pairs, 3)."""
    with _open(path, archive, "tensor") as handle:
        read_header = {
            (1, 0): np.lib.format.read_array_header_1_0,
            (2, 0): np.lib.format.read_array_header_2_0,
        }.get(np.lib.format.read_magic(handle))
        if read_header is None:
            raise BadFile(path, "holds an array of an unknown version", fix=_FIX)
        found, fortran, dtype = read_header(handle)
        if found != shape or fortran or dtype.kind not in "buif":
            raise BadFile(
                path, f"holds answers of shape {found}, its raters and pairs say {shape}", fix=_FIX
            )
        size = shape[1] * shape[2] * dtype.itemsize
        for _ in range(shape[0]):
            data = handle.read(size)
            if len(data) != size:
                raise BadFile(path, "breaks off", fix=_FIX)
            yield np.frombuffer(data, dtype=dtype).reshape(shape[1:])
