"""Which importer a file needs: named by the user, or inferred from the file's shape."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from heldout.core.errors import BadFile, NotFound, UserError
from heldout.core.files import read_json
from heldout.core.tables import SUFFIXES
from heldout.core.workspace import slug
from heldout.data.importing.folders import label_space_of_folders, read_folders
from heldout.data.importing.tabular import label_space_of_table, read_table
from heldout.data.labels import BUILT_IN, LabelSpace
from heldout.data.labels.label_space import LABEL_KINDS, LabelKind
from heldout.data.published.cifar import read_cifar
from heldout.data.published.imagenetv2 import read_class_info, read_imagenetv2
from heldout.data.published.siscore import METADATA, is_metadata, read_siscore
from heldout.data.published.truths import (
    RELEASED_CUT,
    TruthFile,
    read_imagenet_m,
    read_multilabel,
    read_real,
    read_real_scores,
)
from heldout.data.testset.testset import TestSet

TESTSET_FORMATS = ("imagenetv2", "folders", "cifar", "table", "imagenet-m", "siscore")
TRUTH_FORMATS = ("multilabel", "real", "real-scores")
OWN_CLASSES = ("folders", "table")
"""``--classes folders`` or ``table``: class folders, or a table's classes, are the label space."""


def read_classes(text: str) -> LabelSpace:
    """The label space that ``--classes`` names: built in, a label-space file or class_info.json."""
    if text in BUILT_IN:
        return LabelSpace.load(text)
    path = Path(text)
    if not path.is_file():
        raise NotFound(
            f"no label space {text!r}", fix=f"give a file, or one of {', '.join(BUILT_IN)}"
        )
    value = read_json(path)
    return read_class_info(path) if isinstance(value, list) else LabelSpace.read(path)


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
        path, "is of no known shape", fix=f"name its --format: {', '.join(TESTSET_FORMATS)}"
    )


def read_testset(
    path: Path,
    *,
    name: str | None = None,
    form: str = "auto",
    classes: str | None = None,
    reviews: Path | None = None,
    blacklist: Path | None = None,
    class_names: str = "auto",
    id_column: str = "image_id",
    class_column: str = "class_id",
    parent: TestSet | None = None,
    metadata: str | None = None,
    folder_columns: Sequence[str] = (),
    several: bool = False,
    unlabelled: bool = False,
    separators: Mapping[str, str] | None = None,
) -> TestSet:
    """Read a test set of any known shape; it is not yet saved.

    Without ``classes``, CIFAR arrays are of ``cifar-10`` and everything else of ``imagenet-1k``.
    ``several``, ``unlabelled`` and ``separators`` are for tables: see :func:`read_table`.
    """
    chosen = "imagenet-m" if form == "auto" and parent is not None else form
    chosen = "siscore" if chosen == "auto" and metadata is not None else chosen
    chosen = testset_format(path) if chosen == "auto" else chosen
    only = {
        "--metadata": ("siscore", metadata is not None),
        "--folder-column": ("folders", folder_columns),
        "--several": ("table", several),
        "--unlabelled": ("table", unlabelled),
        "--separator": ("table", separators),
    }
    for option, (kind, given) in only.items():
        if given and chosen != kind:
            raise UserError(f"{option} is for --format {kind}", fix="leave it out")
    if chosen == "imagenet-m":
        if parent is None:
            raise UserError(f"{path} lists images of another test set", fix="name it with --parent")
        return read_imagenet_m(path, parent=parent, name=name or "imagenet-m")
    own = classes in OWN_CLASSES and classes == chosen
    space = None if classes is None or own else read_classes(classes)
    if chosen == "imagenetv2":
        review = reviews
        if reviews is not None and reviews.is_dir():
            review = reviews / f"{path.stem}_review.json"
        return read_imagenetv2(
            path, name=name, label_space=space, review=review, blacklist=blacklist
        )
    if chosen == "siscore":
        return read_siscore(path, name=name, metadata=metadata, label_space=space)
    if chosen == "cifar":
        return read_cifar(path, name=name, label_space=space)
    if chosen == "folders":
        title = name or slug(path.resolve().name)
        if own:
            space = label_space_of_folders(path, name=title)
            class_names = "id" if class_names == "auto" else class_names
        return read_folders(
            path,
            name=title,
            label_space=space or LabelSpace.load("imagenet-1k"),
            names="auto" if class_names == "auto" else _kind(class_names),
            columns=folder_columns,
        )
    if chosen == "table":
        title = name or slug(path.stem)
        if own:
            space = label_space_of_table(path, name=title, class_column=class_column)
        return read_table(
            path,
            name=title,
            label_space=space or LabelSpace.load("imagenet-1k"),
            id_column=id_column,
            class_column=class_column,
            label_kind="id" if class_names == "auto" else _kind(class_names),
            several=several,
            unlabelled=unlabelled,
            separators=separators,
        )
    raise UserError(f"no format {chosen!r}", fix=f"use one of {', '.join(TESTSET_FORMATS)}")


def _kind(text: str) -> LabelKind:
    if text not in LABEL_KINDS:
        raise UserError(
            f"{text!r} is not a way to name a class", fix=f"use {', '.join(LABEL_KINDS)}"
        )
    return text  # narrowed by the check


def truth_format(path: Path) -> str:
    """The format of a truth file, inferred from its shape."""
    if not path.is_file():
        raise NotFound(f"no file {path}", fix="check the path")
    suffix = path.suffix.lower()
    if suffix == ".csv":
        return "multilabel"
    if suffix == ".npz":
        return "real-scores"
    if suffix == ".json":
        return "real" if isinstance(read_json(path), list) else "multilabel"
    raise BadFile(
        path, "is of no known shape", fix=f"name its --format: {', '.join(TRUTH_FORMATS)}"
    )


def read_truth(
    path: Path, testset: TestSet, *, form: str = "auto", cut: float = RELEASED_CUT
) -> TruthFile:
    """Read a truth of any known shape for a test set."""
    chosen = truth_format(path) if form == "auto" else form
    if chosen == "multilabel":
        return read_multilabel(path, testset=testset)
    if chosen == "real":
        return read_real(path, testset=testset)
    if chosen == "real-scores":
        return read_real_scores(path, testset=testset, cut=cut)
    raise UserError(f"no format {chosen!r}", fix=f"use one of {', '.join(TRUTH_FORMATS)}")
