"""The rows of an export: one for each image and class, with a file name that is safe anywhere."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import PurePosixPath
from urllib.parse import quote

from heldout.data.images.sources import is_image_name
from heldout.data.testset.exporters.export import Failure
from heldout.data.testset.testset import TestSet

_IMAGE_SUFFIX = re.compile(r"\.(jpe?g|png|webp|gif|bmp|tiff?|ppm|pgm)\Z", re.IGNORECASE)
_LONGEST = 120


@dataclass(frozen=True, kw_only=True)
class Row:
    """One image with one of its classes; ``index`` is the class's position in the label space."""

    image_id: str
    class_id: str
    index: int
    path: str | None
    uri: str | None
    sha256: str | None
    source: str | None
    licence: str | None
    attribution: str | None


def export_rows(testset: TestSet, truth: str | None) -> tuple[list[Row], list[Failure]]:
    """Rows in the order of the images table, then of classes; images without a class fail."""
    table = testset.truth(truth)
    classes: dict[str, set[str]] = {}
    for image, label in zip(
        table["image_id"].to_pylist(), table["class_id"].to_pylist(), strict=True
    ):
        if label is not None:
            classes.setdefault(image, set()).add(label)
    names = ("image_id", "path", "uri", "sha256", "source", "licence", "attribution")
    columns = [testset.images[name].to_pylist() for name in names]
    rows: list[Row] = []
    failures: list[Failure] = []
    for values in zip(*columns, strict=True):
        fields = dict(zip(names, values, strict=True))
        labels = classes.get(fields["image_id"])
        if labels is None:
            reason = f"has no class in truth {truth or testset.card.default_truth}"
            failures.append(Failure(image_id=fields["image_id"], reason=reason))
            continue
        indexed = sorted((testset.label_space.index(label), label) for label in labels)
        rows += [Row(class_id=label, index=index, **fields) for index, label in indexed]
    return rows, failures


class FileNames:
    """Gives each row a file name of its own in its folder, also where case does not count.

    A name depends on the image, not on the rows around it; only where two would be equal does a
    piece of the image id's hash tell them apart.
    """

    def __init__(self) -> None:
        self._taken: set[tuple[str, str]] = set()

    def take(self, folder: str, row: Row, suffix: str = "") -> str:
        """A file name for ``row`` in ``folder``; ``suffix`` ends a name that no image has."""
        given = PurePosixPath((row.path or row.image_id).replace("\\", "/")).name
        stem, ending = _split(given if is_image_name(given) else f"{given}{suffix}")
        name = f"{safe_name(stem)}{ending}"
        if not self._add(folder, name):
            digest = hashlib.sha256(f"{row.image_id}\n{row.class_id}".encode()).hexdigest()
            length = 8
            while not self._add(folder, name):
                name = f"{safe_name(stem)}-{digest[:length]}{ending}"
                length += 8
        return name

    def _add(self, folder: str, name: str) -> bool:
        key = (folder.casefold(), name.casefold())
        if key in self._taken:
            return False
        self._taken.add(key)
        return True


def _split(name: str) -> tuple[str, str]:
    found = _IMAGE_SUFFIX.search(name)
    return (name[: found.start()], found.group()) if found and found.start() else (name, "")


def safe_name(text: str) -> str:
    """A text as one file or folder name: what could lead elsewhere or is special is escaped.

    >>> safe_name("n01440764"), safe_name("../x"), safe_name("a/b")
    ('n01440764', '%2E.%2Fx', 'a%2Fb')
    """
    name = "".join(
        c if c.isalnum() or c in "-_. ()+,=@~" else quote(c, safe="") for c in text
    ).replace("/", "%2F")
    if name.startswith(".") or not name:
        name = f"%2E{name[1:]}"
    if name.endswith((".", " ")):
        name = name[:-1] + quote(name[-1], safe="").replace(".", "%2E")
    if len(name.encode()) > _LONGEST:
        digest = hashlib.sha256(text.encode()).hexdigest()[:16]
        name = name.encode()[: _LONGEST - 17].decode(errors="ignore") + f"-{digest}"
    return name
