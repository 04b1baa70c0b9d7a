"""Which importer a file needs: named by the user, or inferred from the file's shape."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from heldout.core.errors import BadFile, NotFound, UserError
from heldout.core.files import read_json
from heldout.core.request import make
from heldout.core.tables import SUFFIXES
from heldout.core.workspace import slug
from heldout.data.importing.folders import label_space_of_folders, read_folders
from heldout.data.importing.tabular import label_space_of_table, read_table
from heldout.data.labels import LabelSpace
from heldout.data.published.cifar import read_cifar
from heldout.data.published.clip_geoyfcc import read_frame, read_released, released_testset
from heldout.data.published.imagenetv2 import read_classes, read_imagenetv2
from heldout.data.published.siscore import METADATA, is_metadata, read_siscore
from heldout.data.published.truths import (
    RELEASED_CUT,
    TruthFile,
    read_imagenet_m,
    read_multilabel,
    read_real,
    read_real_scores,
)
from heldout.data.requests import TESTSET_OPTIONS, ImportTestsetRequest
from heldout.data.testset.testset import TestSet


def testset_format(path: Path) -> str:
    """The format of a test set on disk, inferred from its shape."""
    if is_metadata(path / METADATA if path.is_dir() else path):
        return "siscore"
    if path.is_dir():
        return "folders"
    if not path.is_file():
        raise NotFound(f"no file or folder {path}", fix="check the path")
    suffix = path.suffix.lower()
    if suffix == ".npy":
        return "cifar"
    if suffix in SUFFIXES:
        return "table"
    if suffix == ".json":
        return "imagenetv2"
    raise BadFile(
        path, "is of no known shape", fix=f"name its --format: {', '.join(TESTSET_OPTIONS)}"
    )


def read_testset(path: Path, *, parent: TestSet | None = None, **options: Any) -> TestSet:
    """Read a test set of any known shape; it is not yet saved.

    ``options`` are those of :class:`~heldout.data.requests.ImportTestsetRequest`. Without ``classes``, CIFAR
    arrays are of ``cifar-10`` and everything else of ``imagenet-1k``.
    """
    named = None if parent is None else parent.name
    return read_asked(
        make(ImportTestsetRequest, {"paths": path, "parent": named, **options}), path, parent
    )


def read_asked(request: ImportTestsetRequest, path: Path, parent: TestSet | None = None) -> TestSet:
    """Read one of the test sets that a request names; ``parent`` is the one that it names."""
    chosen: str = request.format
    if chosen == "auto" and request.parent is not None:
        chosen = "imagenet-m"
    elif chosen == "auto":
        chosen = "siscore" if request.metadata is not None else testset_format(path)
    request.check_format(chosen)
    name, classes = request.name, request.classes
    if chosen == "imagenet-m" and parent is not None:
        return read_imagenet_m(path, parent=parent, name=name or "imagenet-m")
    if chosen == "clip-geoyfcc":
        return _released(request)
    # Class folders, or a table's classes, may be the label space themselves.
    own = classes == chosen and chosen in ("folders", "table")
    space = None if classes is None or own else read_classes(classes)
    if chosen == "imagenetv2":
        review = request.reviews
        if review is not None and review.is_dir():
            review /= f"{path.stem}_review.json"
        return read_imagenetv2(path, name=name, label_space=space, review=review)
    if chosen == "siscore":
        return read_siscore(path, name=name, metadata=request.metadata, label_space=space)
    if chosen == "cifar":
        return read_cifar(path, name=name, label_space=space)
    if chosen == "folders":
        title = name or slug(path.resolve().name)
        if own:
            space = label_space_of_folders(path, name=title)
        return read_folders(
            path,
            name=title,
            label_space=space or LabelSpace.load("imagenet-1k"),
            names=request.label_kind or ("id" if own else "auto"),
            columns=request.folder_columns,
        )
    title, column = name or slug(path.stem), request.class_column or "class_id"
    if own:
        space = label_space_of_table(path, name=title, class_column=column)
    return read_table(
        path,
        name=title,
        label_space=space or LabelSpace.load("imagenet-1k"),
        id_column=request.id_column or "image_id",
        class_column=column,
        label_kind=request.label_kind or "id",
        several=request.several,
        separators=request.separators,
    )


def _released(request: ImportTestsetRequest) -> TestSet:
    indices, classes = request.paths
    columns = request.keep_columns
    frame = request.frame and read_frame(request.frame, request.id_column or "file_name", columns)
    return released_testset(
        read_released(indices, classes, cap=request.cap),
        name=request.name or slug(indices.stem.replace("_", "-")),
        frame=frame,
        columns=columns,
    )


def truth_format(path: Path) -> str:
    """The format of a truth file, inferred from its shape."""
    if not path.is_file():
        raise NotFound(f"no file {path}", fix="check the path")
    suffix = path.suffix.lower()
    if suffix == ".json" and isinstance(read_json(path), list):
        return "real"
    known = {".csv": "multilabel", ".json": "multilabel", ".npz": "real-scores"}
    if suffix in known:
        return known[suffix]
    raise BadFile(
        path, "is of no known shape", fix="name its --format: multilabel, real or real-scores"
    )


def read_truth(
    path: Path, testset: TestSet, *, form: str = "auto", cut: float | None = None
) -> TruthFile:
    """Read a truth of any known shape for a test set; ``cut`` is for ReaL scores."""
    chosen = truth_format(path) if form == "auto" else form
    if chosen == "real-scores":
        return read_real_scores(path, testset=testset, cut=RELEASED_CUT if cut is None else cut)
    if cut is not None:
        raise UserError(f"{path} has no scores to cut", fix="leave out --cut")
    return (read_real if chosen == "real" else read_multilabel)(path, testset=testset)
